"""Bounds what a YAML text becomes: aliases and merge keys of a few lines can stand for billions of
values.
"""

import yaml

#: The most values that aliases and merge keys of a document may repeat. A configuration of a
#: thousand groups repeats fewer.
MAX_REPEATED = 100_000


class BoundedLoader(yaml.SafeLoader):
    """Loads YAML in a time that the length of its text limits, and refuses what takes longer."""

    def compose_document(self) -> yaml.Node | None:
        """Returns the document's root."""
        root = super().compose_document()
        if root is not None:
            _Repeats().size_of(root)
        return root


class _Repeats:
    """Counts the values of a document with all that its aliases repeat."""

    def __init__(self) -> None:
        #: The number of values in each collection.
        self._sizes: dict[yaml.Node, int] = {}
        self._within: set[yaml.Node] = set()
        self._repeated = 0

    def size_of(self, node: yaml.Node) -> int:
        """Returns the number of values in a node, with what its aliases repeat.

        Raises:
            yaml.composer.ComposerError: aliases repeat too many, or the node itself.
        """
        if node in self._within:
            raise yaml.composer.ComposerError(
                None, None, "the value contains an alias of itself", node.start_mark
            )
        if node in self._sizes:  # an alias: repeated once more
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
