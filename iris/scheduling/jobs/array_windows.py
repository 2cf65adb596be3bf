"""Shares the places of a large array out to its parts. Pure.

A large array is split into parts, whose workflows start the tasks. The array's limit holds for all
parts together, so the job gives each part a number of places. A part uses a place for each task
that it has started, and gives none back before the task has ended. The job may know of an end late,
but never too early: so what is free by its knowledge is free.
"""

from collections.abc import Sequence
from typing import NamedTuple


class PartLoad(NamedTuple):
    """A part, as the job knows it."""

    #: The tasks that have not ended.
    unfinished: int
    #: The places that it has; 0: it has not begun.
    places: int = 0

    @property
    def used(self) -> int:
        """The most places that it can use."""
        return min(self.unfinished, self.places)


def shares(limit: int, parts: Sequence[PartLoad]) -> list[int]:
    """Returns the number of places for each part, which is never less than before. Earlier parts
    come first.
    """
    free = limit - sum(part.used for part in parts)
    found = []
    for part in parts:
        more = max(0, min(free, part.unfinished - part.used))
        free -= more
        found.append(part.used + more if more else part.places)
    return found


def chunks(values: Sequence[int], size: int) -> list[Sequence[int]]:
    """Splits the values into parts of this size; the last may be smaller."""
    return [values[at : at + size] for at in range(0, len(values), size)]
