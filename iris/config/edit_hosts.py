"""Changes the machines that a configuration lists, in the text that its user wrote. Comments and
layout stay.

Each change finds the place of a value in the parsed text and replaces only that place. Then the
text is loaded again, and a change with another effect than the wanted one is refused. For example,
an alias may make two groups share a list.
"""

import re
from collections.abc import Collection, Sequence

import yaml

from iris.config.bounded_yaml import BoundedLoader
from iris.config.errors import InvalidConfig
from iris.config.load import load_config
from iris.config.new_cluster import as_yaml
from iris.model.errors import Rejected

_COMMA = re.compile(r"[ \t]*,")
_BLANKS = re.compile(r"[ \t]*")
#: Matches the rest of a line if it contains only blanks or a comment, and so no value.
_NO_VALUE = re.compile(r"[ \t]*(#[^\r\n]*)?(?=[\r\n]|$)")
_END_OF_LINE = re.compile(r"[^\r\n]*")
_NEWLINE = re.compile(r"\r?\n|\r|$")


def add_hosts(text: str, group: str, addresses: Sequence[str]) -> str:
    """Returns the text with these machines in the group. Machines of the list that were leaving the
    group stay in it.

    If `min_slices` covers all machines of the group, it is raised to cover the new ones, too. A
    `max_slices` below the number of machines stays.

    Raises:
        Rejected: the user must change the text by hand; the message says how.
    """
    before = load_config(text).scale_groups[group]
    hosts = (*before.hosts, *(each for each in addresses if each not in before.hosts))
    retiring = _without(before.retiring_hosts, addresses)
    always = before.min_slices and before.min_slices == len(before.hosts) - len(
        before.retiring_hosts
    )
    limited = before.max_slices < len(before.hosts)
    least = min(len(hosts) - len(retiring), before.max_slices if limited else len(hosts))
    sizes = {
        "min_slices": least if always else before.min_slices,
        "max_slices": before.max_slices if limited else len(hosts),
    }
    return _changed(text, group, hosts, retiring, sizes)


def retire_hosts(text: str, group: str, addresses: Sequence[str]) -> str:
    """Returns the text in which these machines of the group get no new slices.

    Raises:
        Rejected: the user must change the text by hand; the message says how.
    """
    before = load_config(text).scale_groups[group]
    retiring = (
        *before.retiring_hosts,
        *(each for each in addresses if each not in before.retiring_hosts),
    )
    sizes = {"min_slices": min(before.min_slices, len(before.hosts) - len(retiring))}
    return _changed(text, group, before.hosts, retiring, sizes)


def remove_hosts(text: str, group: str, addresses: Collection[str]) -> str:
    """Returns the text without these machines in the group. A group without machines is removed.

    Raises:
        Rejected: the user must change the text by hand; the message says how.
    """
    before = load_config(text).scale_groups[group]
    hosts, retiring = _without(before.hosts, addresses), _without(before.retiring_hosts, addresses)
    if not hosts:
        return _without_group(text, group)
    sizes = {
        "min_slices": min(before.min_slices, len(hosts) - len(retiring)),
        "max_slices": min(before.max_slices, len(hosts)),
        "buffer_slices": min(before.buffer_slices, len(hosts)),
    }
    return _changed(text, group, hosts, retiring, sizes)


def _without(addresses: Sequence[str], others: Collection[str]) -> tuple[str, ...]:
    return tuple(each for each in addresses if each not in others)


def _changed(
    text: str, group: str, hosts: tuple[str, ...], retiring: tuple[str, ...], sizes: dict[str, int]
) -> str:
    """Returns the text with these values in the group. Refuses a change that has another effect."""
    config = load_config(text)
    before = config.scale_groups[group]
    after = before.model_copy(update={"hosts": hosts, "retiring_hosts": retiring, **sizes})
    numbers = {key: size for key, size in sizes.items() if getattr(before, key) != size}
    try:
        changed = _with_list(text, group, "hosts", hosts)
        changed = _with_list(changed, group, "retiring_hosts", retiring)
        for key, size in numbers.items():
            changed = _with_number(changed, group, key, size)
        if load_config(changed) == config.model_copy(
            update={"scale_groups": {**config.scale_groups, group: after}}
        ):
            return changed
    except (_NotWritten, InvalidConfig):
        pass
    lists = {"hosts": (before.hosts, hosts), "retiring_hosts": (before.retiring_hosts, retiring)}
    values = [f"{key}: [{', '.join(new)}]" for key, (old, new) in lists.items() if old != new]
    values += [f"{key}: {size}" for key, size in numbers.items()]
    raise Rejected(
        f"the file cannot be changed automatically; write in scale_groups.{group}:"
        f" {', '.join(values)}"
    )


def _without_group(text: str, group: str) -> str:
    config = load_config(text)
    others = {name: each for name, each in config.scale_groups.items() if name != group}
    try:
        changed = _without_entry(text, ("scale_groups",), group)
        if load_config(changed) == config.model_copy(update={"scale_groups": others}):
            return changed
    except (_NotWritten, InvalidConfig):
        pass
    raise Rejected(f"the file cannot be changed automatically; remove scale_groups.{group} from it")


# -- lists and numbers of a group ------------------------------------------------------------


class _NotWritten(Exception):
    """The value cannot be changed automatically, because the configuration's text does not contain
    the section or key in a form in which only this value can be replaced.
    """


def _with_list(text: str, group: str, key: str, wanted: Sequence[str]) -> str:
    """Returns the text in which the list of the group has these items. Items that stay keep their
    places and comments.
    """
    found = _entry(text, group, key)
    if found is None:
        return (
            _with_entry(text, group, f"{key}: [{', '.join(map(as_yaml, wanted))}]")
            if wanted
            else text
        )
    if not wanted:
        return _without_entry(text, ("scale_groups", group), key)
    items = [each.value for each in _list(text, group, key).value]
    for address in _without(wanted, items):
        text = _with_item(text, _list(text, group, key), as_yaml(address))
    for address in _without(items, wanted):
        sequence = _list(text, group, key)
        number = [each.value for each in sequence.value].index(address)
        spans = [(each.start_mark.index, each.end_mark.index) for each in sequence.value]
        text = (
            _without_flow_span(text, spans, number)
            if sequence.flow_style
            else _without_lines(text, *spans[number])
        )
    return text


def _with_number(text: str, group: str, key: str, number: int) -> str:
    found = _entry(text, group, key)
    if found is None:
        return text  # the default of a limit follows from the list of machines
    return text[: found[1].start_mark.index] + str(number) + text[found[1].end_mark.index :]


def _mapping(text: str, path: Sequence[str]) -> yaml.MappingNode:
    """Returns the place of the mapping at this path. Raises `_NotWritten` if there is none."""
    found: yaml.Node | None = yaml.compose(text, BoundedLoader)
    for key in path:
        pairs = found.value if isinstance(found, yaml.MappingNode) else []
        found = next((value for name, value in pairs if name.value == key), None)
    if not isinstance(found, yaml.MappingNode):
        raise _NotWritten
    return found


def _entry(text: str, group: str, key: str) -> tuple[yaml.Node, yaml.Node] | None:
    """Returns the places of a key of the group and of its value, or None if the group does not have
    the key.
    """
    return next(
        (
            (name, value)
            for name, value in _mapping(text, ("scale_groups", group)).value
            if name.value == key
        ),
        None,
    )


def _list(text: str, group: str, key: str) -> yaml.SequenceNode:
    found = _entry(text, group, key)
    if found is None or not isinstance(found[1], yaml.SequenceNode):
        raise _NotWritten
    return found[1]


# -- changes of a text at a place -----------------------------------------------------------


def _with_entry(text: str, group: str, entry: str) -> str:
    """Returns the text with another entry in the group, after its list of machines."""
    found, mapping = _entry(text, group, "hosts"), _mapping(text, ("scale_groups", group))
    if found is None:
        raise _NotWritten
    name, end = found[0], _end(found[1])
    if mapping.flow_style:
        return f"{text[:end]}, {entry}{text[end:]}"
    return _with_line(text, end, name.start_mark.column, entry)


def _without_entry(text: str, path: Sequence[str], key: str) -> str:
    mapping = _mapping(text, path)
    spans = [(name.start_mark.index, _end(value)) for name, value in mapping.value]
    number = [name.value for name, _ in mapping.value].index(key)
    return (
        _without_flow_span(text, spans, number)
        if mapping.flow_style
        else _without_lines(text, *spans[number])
    )


def _with_item(text: str, sequence: yaml.SequenceNode, item: str) -> str:
    """Returns the text with the item at the end of the sequence."""
    if not sequence.flow_style:
        return _with_line(text, _end(sequence), sequence.start_mark.column, f"- {item}")
    if not sequence.value:
        start = sequence.start_mark.index + 1
        return f"{text[:start]}{item}{text[start:]}"
    end = sequence.value[-1].end_mark.index
    return f"{text[:end]}, {item}{text[end:]}"


def _end(value: yaml.Node) -> int:
    """Returns where the value ends. PyYAML includes the lines after a block in it."""
    if isinstance(value, yaml.CollectionNode) and not value.flow_style and value.value:
        last = value.value[-1]
        return _end(last[1] if isinstance(value, yaml.MappingNode) else last)
    return value.end_mark.index


def _with_line(text: str, after: int, column: int, line: str) -> str:
    """Returns the text with another line after the line of this place."""
    end = _match(_END_OF_LINE, text, after)
    newline = _NEWLINE.search(text)
    return f"{text[:end]}{(newline and newline[0]) or chr(10)}{' ' * column}{line}{text[end:]}"


def _without_lines(text: str, start: int, end: int) -> str:
    """Returns the text without the lines from one place to the other."""
    start = max(text.rfind("\n", 0, start), text.rfind("\r", 0, start)) + 1
    return text[:start] + text[_match(_NEWLINE, text, _match(_END_OF_LINE, text, end)) :]


def _without_flow_span(text: str, spans: Sequence[tuple[int, int]], number: int) -> str:
    """Returns the text without one of several values that are separated by commas. The comma after
    the last value may stay.
    """
    start, end = spans[number]
    comma = _COMMA.match(text, end)
    line = max(text.rfind("\n", 0, start), text.rfind("\r", 0, start)) + 1
    after = comma.end() if comma else end
    # The value has lines of its own.
    if not text[line:start].strip() and (rest := _NO_VALUE.match(text, after)):
        return text[:line] + text[_match(_NEWLINE, text, rest.end()) :]
    if number + 1 < len(spans):
        return text[:start] + text[_match(_BLANKS, text, after) :]
    before = spans[number - 1][1] if number else start
    if text[before:start].strip(" \t") in ("", ","):
        start = before
    return text[:start] + text[end:]


def _match(pattern: re.Pattern[str], text: str, start: int) -> int:
    """Returns where the match of the pattern at this place ends. The pattern must match at any
    place.
    """
    found = pattern.match(text, start)
    assert found is not None
    return found.end()
