"""Counts the work of the scheduler's passes, because a replay of its history repeats all of them.

The count depends only on the messages and the ledger, so a replay counts the same. It depends on no
clock, and on no cache: queries fill caches, and a replay has no queries.
"""

from collections.abc import Sized

from iris.model.job.requests import Shape
from iris.scheduling.placement.host_index import REMEMBERED_SHAPES, Candidates, HostIndex

# What else is done, as a multiple of a look at a host. Measured.
_PLACEMENT = 15
_LINE = 15
_TURN = 100
_PLACED = 250
_INDEXED = 10
_MATCHED = 5
_VICTIM = 10
_MESSAGE = 150


class Effort:
    """The work since this object was created."""

    def __init__(self) -> None:
        #: How often a host was examined, and the rest as a multiple of that.
        self.looks = 0
        self._index: HostIndex | None = None
        #: The shapes whose candidates have been found in that index.
        self._matched: set[Shape] = set()

    def received(self, messages: int) -> None:
        """This many messages, or reports during a recovery, were read and entered."""
        self.looks += _MESSAGE * messages

    def began(self, index: HostIndex, live: Sized, lines: int) -> None:
        """A pass or a search for victims began."""
        self.looks += _PLACEMENT * len(live) + _LINE * lines
        if index is not self._index:
            self.looks += _INDEXED * len(index.hosts)
            self._index = index
            self._matched.clear()

    def turn(self, shape: Shape, candidates: Candidates, index: HostIndex) -> None:
        """A request had its turn."""
        self.looks += _TURN
        if shape not in self._matched:
            if len(self._matched) >= REMEMBERED_SHAPES:
                self._matched.clear()
            self._matched.add(shape)
            # Constraints and variants are compared with hosts that do not become candidates, too.
            examined = index.hosts if shape.constraints or shape.group_by else candidates.hosts
            self.looks += _MATCHED * (1 + len(shape.constraints)) * len(examined) + len(
                shape.variants
            )

    def placed(self) -> None:
        """A request got hosts."""
        self.looks += _PLACED

    def searched(self, victims: Sized) -> None:
        """These possible victims, or hosts with victims, were examined."""
        self.looks += _VICTIM * len(victims)

    def compared(self, lines: int) -> None:
        """The heads of this many lines of the queue were compared."""
        self.looks += lines

    def explained(self, hosts: Sized, live: Sized, waiting: Sized, shapes: int) -> None:
        """The reasons of this many shapes were computed."""
        if shapes:
            self.looks += _PLACEMENT * len(live) + len(waiting) + 3 * (1 + shapes) * len(hosts)
