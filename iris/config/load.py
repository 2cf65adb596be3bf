"""Reads a configuration from YAML, applies the defaults, checks it, and writes it back."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from iris.config.bounded_yaml import BoundedLoader
from iris.config.checks.cluster import problems_of
from iris.config.defaults import apply_defaults, meaningless_keys, origins_of
from iris.config.errors import InvalidConfig, Where, dotted, section_at, shape_problems
from iris.config.schema import ClusterConfig
from iris.config.values import Section

#: Matches the name of a configuration file. It does not match the text of a configuration in one
#: line, which contains a key and a colon.
_FILE_NAME = re.compile(r"(?:(?!: ).)+\.ya?ml")
#: The example in error messages of how a configuration begins.
_FIRST = "platform: {local: {}}"
#: The limit on bytes of a configuration file. A configuration of a thousand groups has a megabyte.
_MOST_BYTES = 10_000_000
S = TypeVar("S", bound=Section)


def load_config(source: str | Path) -> ClusterConfig:
    """Returns the configuration in a text, or in the file at a path, with its defaults applied.

    Args:
        source: a `Path`, or the text of a configuration. A text of one word that ends in `.yaml` or
            `.yml` is a path, too.

    Raises:
        InvalidConfig: the configuration has errors; `problems` lists them.
        OSError: the file cannot be read.
    """
    path = Path(source) if isinstance(source, Path) or _FILE_NAME.fullmatch(source) else None
    return load_written(path)[0] if path is not None else _load(str(source), "the configuration")


def load_written(file: Path) -> tuple[ClusterConfig, str]:
    """Returns the configuration in a file and the file's exact text, both from one read.

    Raises:
        InvalidConfig, OSError: as `load_config` does.
    """
    with file.open("rb") as source:
        content = source.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise InvalidConfig([f"the file is larger than {_MOST_BYTES:,} bytes"], str(file))
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise InvalidConfig(["the file is not UTF-8 text"], str(file)) from None
    return _load(text, str(file)), text


def _load(text: str, name: str) -> ClusterConfig:
    tree, repeated = _parse(text, name)
    found: dict[Where, str] = {}
    tree = _without_nulls(tree, (), found)
    try:
        config = ClusterConfig.model_validate(tree)
    except ValidationError as error:
        found = {**shape_problems(error), **found}
        problems = [*repeated, *found.values(), *_further_problems(tree, found)]
        raise InvalidConfig(problems, name, lines_of(text)) from None
    problems = [*repeated, *found.values(), *problems_of(config := apply_defaults(config))]
    if problems:
        raise InvalidConfig(problems, name, lines_of(text))
    return config


def load_section(of: type[S], text: str, name: str, first: str) -> S:
    """Returns a section that has a file of its own.

    Args:
        of: the class of the section.
        name: the name of the file, for messages.
        first: what such a file begins with, for messages.

    Raises:
        InvalidConfig: the file has errors; `problems` lists them.
    """
    tree, repeated = _parse(text, name, first)
    try:
        section = of.model_validate(tree)
    except ValidationError as error:
        problems = [*repeated, *shape_problems(error, of).values()]
        raise InvalidConfig(problems, name, lines_of(text)) from None
    if repeated:
        raise InvalidConfig(repeated, name)
    return section


def dump_section(section: Section) -> str:
    """Returns a section as YAML, without its defaults."""
    values = section.model_dump(mode="json", exclude_defaults=True)
    return str(yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=100))


def lines_of(text: str) -> dict[str, int]:
    """Returns the line of each key and list item by its path: `scale_groups.tpu.zones.0`.

    The result is empty if the text is not YAML, or if its aliases repeat too many values. Keys that
    an alias repeats have only the line of their first place.
    """
    try:
        root = yaml.compose(text, BoundedLoader)
    except (yaml.YAMLError, RecursionError, ValueError):
        return {}
    return {} if root is None else dict(_lines_below(root, (), set()))


def dump_config(config: ClusterConfig, *, complete: bool = False) -> str:
    """Returns the configuration as YAML, which loads to an equal configuration."""
    return str(
        yaml.safe_dump(
            config_values(config, complete=complete), sort_keys=False, allow_unicode=True, width=120
        )
    )


def config_values(config: ClusterConfig, *, complete: bool = False) -> dict[str, Any]:
    """Returns the configuration as values for YAML and JSON.

    Args:
        complete: whether to include defaults; otherwise only the values that the user set.
    """
    values = config.model_dump(mode="json", exclude_unset=not complete, exclude_none=True)
    for name, group in config.scale_groups.items():
        for key in meaningless_keys(group):
            values["scale_groups"][name].pop(key, None)
    return values


def origins(source: str | ClusterConfig) -> dict[str, str]:
    """Returns the source of each value by its path, for a configuration or a YAML text.

    Raises:
        InvalidConfig: the text is not a valid configuration.
    """
    return origins_of(load_config(source) if isinstance(source, str) else source)


def _parse(text: str, name: str, first: str = _FIRST) -> tuple[dict[Any, Any], list[str]]:
    """Parses the YAML. Returns the mapping, and a problem for each repeated key.

    Args:
        first: what such a file begins with.
    """
    try:
        loader = BoundedLoader(text)
        tree = loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        raise InvalidConfig([f"{where}{problem}"], name) from None
    except (
        yaml.YAMLError,
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        ValueError,
    ) as error:
        # If a value does not match its tag (`!!bool maybe`), PyYAML raises one of Python's own
        # exceptions.
        raise InvalidConfig([f"invalid YAML: {' '.join(str(error).split())}"], name) from None
    if tree is None:
        raise InvalidConfig([f"the file is empty; start with {first}"], name)
    if not isinstance(tree, dict):
        what = type(tree).__name__
        problem = f"the top level is a {what}, not a mapping; start with {first}"
        raise InvalidConfig([problem], name)
    repeated = [
        f"line {each.line}, column {each.column}: {each.problem}" for each in loader.repeated
    ]
    return tree, repeated


def _without_nulls(tree: Any, path: Where, found: dict[Where, str]) -> Any:
    """Returns the tree with an empty mapping for each empty section (`local:`). Adds a problem to
    `found` for each other key without a value.
    """
    if not isinstance(tree, Mapping) or not _has_keys(path):
        return tree
    kept = {}
    for key, value in tree.items():
        here = (*path, key)
        if value is None and not _has_keys(here):
            found[here] = f"{dotted(here)}: has no value; set one or remove the key"
        else:
            kept[key] = {} if value is None else _without_nulls(value, here, found)
    return kept


def _has_keys(path: Where) -> bool:
    """Returns whether the path is a section, or contains sections."""
    return path == ("scale_groups",) or section_at(path) is not None


def _further_problems(tree: Any, found: Mapping[Where, str]) -> Iterator[str]:
    """Checks the groups and sections that have no errors in `found`, and yields their problems.

    Yields nothing if the platform, the controller or the name has errors, because all other checks
    depend on them.
    """
    if any(len(path) == 0 or path[0] in ("platform", "controller", "name") for path in found):
        return
    rest = {
        key: dict(value) if key == "scale_groups" and isinstance(value, Mapping) else value
        for key, value in tree.items()
    }
    for path in found:
        if path[0] == "scale_groups" and len(path) > 1:
            rest["scale_groups"].pop(path[1], None)
        else:
            rest.pop(path[0], None)
    left_out = {str(path[1]) for path in found if path[0] == "scale_groups" and len(path) > 1}
    yield from problems_of(apply_defaults(ClusterConfig.model_validate(rest)), sorted(left_out))


def _lines_below(
    node: yaml.Node, path: tuple[str | int, ...], seen: set[int]
) -> Iterator[tuple[str, int]]:
    """Yields the paths below a node with their lines. Visits each node once, because aliases could
    repeat many.
    """
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*path, str(key.value))
            yield dotted(here), key.start_mark.line + 1
            yield from _lines_below(value, here, seen)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            here = (*path, number)
            yield dotted(here), value.start_mark.line + 1
            yield from _lines_below(value, here, seen)
