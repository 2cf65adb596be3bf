"""Divides the limit of a large array among its parts.

A large array is split into parts, whose workflows start the tasks. The array's limit of running
tasks holds for all parts together, so the job gives each part a number of places. A part uses a
place for each task that it has started, until the task has ended. The job may learn late that a
task has ended, but never too early. So a place that the job counts as free is free.
"""

from collections.abc import Sequence
from typing import NamedTuple


class PartLoad(NamedTuple):
    """The number of unfinished tasks of one part of an array, and the limit on tasks that the part
    may run at once. The job learns late that tasks have ended, so the number may be too high.
    """

    #: The number of tasks of the part that have not ended.
    unfinished: int
    #: The limit, set by the job, on tasks of the part that may have a workflow at the same time; 0
    #: before the part begins.
    places: int = 0

    @property
    def used(self) -> int:
        """The most places that the part can use."""
        return min(self.unfinished, self.places)


def shares(limit: int, parts: Sequence[PartLoad]) -> list[int]:
    """Returns the new number of places for each part, which is never smaller than before. Earlier
    parts get free places first.
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
