"""Counts the work of the scheduler's passes. A replay of the scheduler's history repeats all of
them, so a run of the scheduler ends before the count gets too large.

The unit is a look: the work to examine one host once. The count depends only on the messages and
the ledger, so a replay counts the same. It depends on no clock and on no cache: queries fill
caches, and a replay has no queries.
"""

from collections.abc import Sized

from iris.model.job.requests import Shape
from iris.scheduling.placement.host_index import REMEMBERED_SHAPES, Candidates, HostIndex

# The measured work of the other steps, in looks.
_PLACEMENT = 15
_LINE = 15
_TURN = 100
_PLACED = 250
_INDEXED = 10
_MATCHED = 5
_VICTIM = 10
_MESSAGE = 150
_QUOTA = 15


class Effort:
    """The work of the scheduler since this object was created. The unit is a look: the work to
    examine one host. Each method counts one kind of work.
    """

    def __init__(self) -> None:
        #: The work so far. A look is the work to examine one host.
        self.looks = 0
        #: The host index of the last pass or search for victims.
        self._index: HostIndex | None = None
        #: The shapes whose candidate hosts have been found in `_index`.
        self._matched: set[Shape] = set()

    def received(self, messages: int) -> None:
        """Counts messages, or reports during a recovery, that were entered into the ledger."""
        self.looks += _MESSAGE * messages

    def began(self, index: HostIndex, live: Sized, lines: int) -> None:
        """Counts the preparation of a pass or of a search for victims."""
        self.looks += _PLACEMENT * len(live) + _LINE * lines
        if index is not self._index:
            self.looks += _INDEXED * len(index.hosts)
            self._index = index
            self._matched.clear()

    def turn(self, shape: Shape, candidates: Candidates, index: HostIndex) -> None:
        """Counts the turn of a request."""
        self.looks += _TURN
        if shape not in self._matched:
            if len(self._matched) >= REMEMBERED_SHAPES:
                self._matched.clear()
            self._matched.add(shape)
            # Constraints are also compared with hosts that do not become candidates.
            examined = index.hosts if shape.constraints or shape.group_by else candidates.hosts
            self.looks += _MATCHED * (1 + len(shape.constraints)) * len(examined) + len(
                shape.variants
            )

    def placed(self) -> None:
        """Counts a request that got hosts."""
        self.looks += _PLACED

    def checked_quotas(self, lines: int) -> None:
        """Counts the lines of the queue that were compared with quotas."""
        self.looks += _QUOTA * lines

    def searched(self, victims: Sized) -> None:
        """Counts possible victims, or hosts with victims, that were examined."""
        self.looks += _VICTIM * len(victims)

    def compared(self, lines: int) -> None:
        """Counts lines of the queue whose heads were compared."""
        self.looks += lines

    def explained(self, hosts: Sized, live: Sized, waiting: Sized, shapes: int) -> None:
        """Counts the shapes whose reasons were computed."""
        if shapes:
            self.looks += _PLACEMENT * len(live) + len(waiting) + 3 * (1 + shapes) * len(hosts)
