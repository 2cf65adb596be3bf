"""Counts the work of the loop over turns from outside, and ends the loop at a limit.

`Counted` wraps a chooser (`iris.scheduling.placement.turns`), so the choosers contain only their
decisions. `Capacity` counts the hosts that it examines itself.
"""

from iris.model.job.requests import Request, Shape
from iris.model.job.spec import Band
from iris.scheduling.placement.effort import Effort
from iris.scheduling.placement.host_index import HostIndex
from iris.scheduling.placement.queue import Turns
from iris.scheduling.placement.turns import HostChooser


class Counted:
    """A chooser whose turns are counted.

    Args:
        most_looks: the most work, in looks of `Effort`, from now to the last turn; None: no limit.
    """

    def __init__(
        self, chooser: HostChooser, index: HostIndex, effort: Effort, most_looks: int | None
    ) -> None:
        self._chooser = chooser
        self._index = index
        self._effort = effort
        self._last_look = effort.looks + most_looks if most_looks is not None else None

    def at_limit(self) -> bool:
        spent = self._last_look is not None and self._effort.looks > self._last_look
        return spent or self._chooser.at_limit()

    def choose(self, request: Request, turns: Turns) -> list[int] | None:
        self._effort.turn(request.shape, self._index.candidates(request), self._index)
        return self._chooser.choose(request, turns)


class CountedPass(Counted):
    """The chooser of a scheduling pass, of which more is counted: placements, and the candidates of
    each shape.

    Args:
        lines: the number of lines in the queue.
        most_candidates: the most candidate hosts of all shapes together; None: no limit.
    """

    def __init__(
        self,
        chooser: HostChooser,
        index: HostIndex,
        effort: Effort,
        lines: int,
        *,
        most_looks: int | None,
        most_candidates: int | None,
    ) -> None:
        super().__init__(chooser, index, effort, most_looks)
        self._lines = lines
        self._most_candidates = most_candidates
        self._candidates = 0
        self._examined: set[Shape] = set()
        self._served: set[tuple[Band, Shape]] = set()

    def at_limit(self) -> bool:
        most = self._most_candidates
        return (most is not None and self._candidates > most) or super().at_limit()

    def choose(self, request: Request, turns: Turns) -> list[int] | None:
        if request.shape not in self._examined:
            self._examined.add(request.shape)
            self._candidates += len(self._index.candidates(request).hosts)
        hosts = super().choose(request, turns)
        served = (request.band, request.shape)
        if hosts is not None:
            self._effort.placed()
            self._served.add(served)
        elif served in self._served:
            self._effort.compared(self._lines)  # `Turns.oldest` has compared the heads of the lines
        return hosts
