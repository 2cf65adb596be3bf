"""Counts the work of the loop over turns from outside, and ends the loop at a limit.

`Counted` and `CountedPass` wrap a chooser (`iris.scheduling.placement.turns`), so the choosers
contain only their decisions. `Capacity` itself counts the hosts that it examines.
"""

import sys

from iris.model.job.requests import Request, Shape
from iris.scheduling.placement.effort import Effort
from iris.scheduling.placement.host_index import HostIndex
from iris.scheduling.placement.service_order import Turns
from iris.scheduling.placement.turns import HostChooser

NO_LIMIT = sys.maxsize


class Counted:
    """A `HostChooser` that counts the work for each request, and stops at a limit.

    Args:
        most_looks: the most work after the creation of this object. A look is the work to examine
            one host (`Effort`).
    """

    def __init__(
        self, chooser: HostChooser, index: HostIndex, effort: Effort, most_looks: int
    ) -> None:
        self._chooser = chooser
        self._index = index
        self._effort = effort
        self._last_look = effort.looks + most_looks

    def at_limit(self) -> bool:
        return self._effort.looks > self._last_look or self._chooser.at_limit()

    def choose(self, request: Request, turns: Turns) -> list[int] | None:
        self._effort.turn(request.shape, self._index.candidates(request), self._index)
        return self._chooser.choose(request, turns)


class CountedPass(Counted):
    """The `HostChooser` of a scheduling pass. Like `Counted`, it counts the work in looks and stops
    at a limit. It also counts the candidate hosts of each shape that has a turn, and stops at a
    limit on their sum.

    Args:
        lines: the number of lines in the queue. The requests of one line differ only in their keys
            and times.
        most_candidates: the limit on the sum of the candidate hosts of the shapes.
    """

    def __init__(
        self,
        chooser: HostChooser,
        index: HostIndex,
        effort: Effort,
        lines: int,
        *,
        most_looks: int,
        most_candidates: int,
    ) -> None:
        super().__init__(chooser, index, effort, most_looks)
        self._lines = lines
        self._most_candidates = most_candidates
        self._candidates = 0
        self._examined: set[Shape] = set()

    def at_limit(self) -> bool:
        return self._candidates > self._most_candidates or super().at_limit()

    def choose(self, request: Request, turns: Turns) -> list[int] | None:
        if request.shape not in self._examined:
            self._examined.add(request.shape)
            self._candidates += len(self._index.candidates(request).hosts)
        hosts = super().choose(request, turns)
        if hosts is not None:
            self._effort.placed()
        elif turns.has_served(request.shape):
            self._effort.compared(self._lines)  # `Turns.oldest` has compared the heads of the lines
        return hosts
