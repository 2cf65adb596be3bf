"""Reads YAML, and limits the size of the values that a text describes: with aliases and merge keys,
a few lines can describe billions of values.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml

from iris.model.errors import InvalidValue

#: The limit on values of a document that are copies made by aliases and merge keys. A configuration
#: of a thousand groups has fewer copies.
MAX_REPEATED = 100_000


class RepeatedKey(NamedTuple):
    """A key that occurs twice in a mapping. YAML would keep the last value without a warning."""

    key: str
    #: The line of the key's second occurrence, from 1 on.
    line: int
    #: The column of the key's second occurrence, from 1 on.
    column: int
    #: The line of the key's first occurrence, from 1 on.
    first_line: int

    @property
    def problem(self) -> str:
        return f"the key {self.key!r} is repeated; it is first set in line {self.first_line}"


class BoundedLoader(yaml.SafeLoader):
    """Loads YAML in a time that depends only on the length of the text. Refuses texts whose aliases
    repeat too many values.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        #: The repeated keys of all mappings.
        self.repeated: list[RepeatedKey] = []

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Returns a mapping, and records its repeated keys."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen: dict[str, int] = {}
        for key, _ in node.value:  # merged keys are added later
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                line = key.start_mark.line + 1
                if key.value in seen:
                    column = key.start_mark.column + 1
                    self.repeated.append(RepeatedKey(key.value, line, column, seen[key.value]))
                seen.setdefault(key.value, line)
        return node

    def compose_document(self) -> yaml.Node | None:
        """Returns the root of the document."""
        root = super().compose_document()
        if root is not None:
            _Repeats().size_of(root)
        return root


def read_mapping(text: str, field: str, name: str) -> Mapping[str, Any]:
    """Returns the keys and values of a YAML text.

    Args:
        field: what the text is, for errors.
        name: the name of the file, for errors.

    Raises:
        InvalidValue: the text is not YAML, is not a mapping, or repeats a key.
    """
    remedy = "write lines of KEY: VALUE"
    try:
        loader = BoundedLoader(text)
        found = loader.get_single_data()
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}, line {mark.line + 1}" if mark is not None else name
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise InvalidValue(field, where, f"is not YAML: {problem}", remedy) from None
    if not isinstance(found, Mapping):
        raise InvalidValue(field, name, "is no mapping", remedy)
    for each in loader.repeated:
        where = f"{name}, line {each.line}"
        raise InvalidValue(field, where, f"has an error: {each.problem}", "write each key once")
    return {str(key): value for key, value in found.items()}


class _Repeats:
    """Counts the values of a document, including repetitions by aliases."""

    def __init__(self) -> None:
        #: For each value of the document: the number of values in it, itself and the copies by
        #: aliases included.
        self._sizes: dict[yaml.Node, int] = {}
        self._within: set[yaml.Node] = set()
        self._repeated = 0

    def size_of(self, node: yaml.Node) -> int:
        """Returns the number of values in a node, repetitions by aliases included.

        Raises:
            yaml.composer.ComposerError: aliases repeat too many values, or an alias refers to a
                node that contains it.
        """
        if node in self._within:
            raise yaml.composer.ComposerError(
                None, None, "the value contains an alias of itself", node.start_mark
            )
        if node in self._sizes:  # an alias repeats the node
            self._repeated += self._sizes[node]
            if self._repeated > MAX_REPEATED:
                problem = (
                    f"aliases and merge keys repeat more than {MAX_REPEATED:,} values; write fewer"
                    " of them"
                )
                raise yaml.composer.ComposerError(None, None, problem, node.start_mark)
            return self._sizes[node]
        self._within.add(node)
        size = 1 + sum(self.size_of(each) for each in _values(node))
        self._within.remove(node)
        self._sizes[node] = size
        return size


def _values(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [each for pair in node.value for each in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []
