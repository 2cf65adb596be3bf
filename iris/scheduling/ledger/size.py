"""Decides when the scheduler's ledger is full, and when its size has to be measured again.

The ledger is passed to the scheduler's next run as one payload, which Temporal limits to 2 MiB. So
the scheduler refuses requests before the ledger gets that large. The size at the begin of a run is
exact: it is the size of the run's history, which begins with the compressed ledger. If messages
arrived before the first task of the run, they are in the history too; then the bound of the
previous run counts, if it is smaller. Entries that the run adds count with their size before
compression, which is several times larger. So the scheduler continues as new when this estimate
comes near the limit, and then knows the exact size.
"""

from collections.abc import Iterable

from iris.model.host.hosts import Host
from iris.model.job.demand_limits import size_of
from iris.model.job.requests import Placement, Request
from iris.model.units import MIB
from iris.scheduling.ledger.recovery import RecoveryPage

#: The size in bytes from which the ledger is full. The rest of the payload of 2 MiB is for changes
#: that the scheduler must accept: a host that joins (17 bytes), a request that gets hosts (3
#: bytes), and the records of use that wait for the store (35 to 60 bytes each, at most 5,000; most
#: of them take the place of a placement that has ended).
FULL = 7 * MIB // 4
#: The ledger's size is measured again only if it is at most this many bytes below `FULL`.
NEAR = MIB // 4
#: The ledger's size is measured again after a run has added this many bytes, or has removed four
#: times as many from a full ledger. To measure it, the scheduler continues as new, which takes
#: seconds with a ledger of this size, so it does not measure the size more often.
STEP = MIB // 16
#: The limits on lines of the queue (groups of waiting and held requests that are equal except for
#: their keys and times): of all users together, and of one user. Every pass examines each line. To
#: write and read ten thousand lines takes one of the two seconds that a workflow task may take
#: without yielding.
MOST_KINDS, MOST_OF_ONE_USER = 10_000, 5_000
#: The bytes of a request's or placement's row without its key and hosts, and the bytes that each
#: host of a placement adds.
_ROW, _SEAT = 16, 10
#: The number of events in a history that contains only the ledger: the start of the run, and the
#: scheduling and the start of its first workflow task.
_EVENTS_OF_A_START = 3
#: The bytes of removed entries are counted before compression. The compressed ledger usually
#: becomes smaller by at least these bytes divided by this number.
_COMPRESSION = 4


class LedgerSize:
    """An upper bound of the ledger's size in bytes.

    Args:
        began: the size in bytes of the history when the scheduler's run began; 0 if the server does
            not report it.
    """

    def __init__(self, began: int = 0) -> None:
        self._began = began
        self._added = 0
        self._removed = 0

    @classmethod
    def at_start(cls, history: int, events: int, carried: int) -> "LedgerSize":
        """Returns the size at the begin of a run.

        Args:
            history: the size of the run's history in bytes; 0 if the server does not report it.
            events: the number of events in that history.
            carried: the bound that the previous run passed on; 0 for an empty ledger.
        """
        return cls(history if events <= _EVENTS_OF_A_START else min(history, carried))

    @property
    def carried(self) -> int:
        """The bound for the next run, with the removed entries deducted."""
        return max(0, self.bytes - self._removed // _COMPRESSION)

    @property
    def bytes(self) -> int:
        """An upper bound of the size. Removed entries are deducted only when the size is measured
        again.
        """
        return self._began + self._added

    @property
    def full(self) -> bool:
        """Whether new requests have to be refused."""
        return self.bytes >= FULL

    @property
    def stale(self) -> bool:
        """Whether the size has to be measured again. Then the scheduler continues as new."""
        added = self.bytes >= FULL - NEAR and self._added >= STEP
        return added or (self.full and self._removed >= _COMPRESSION * STEP)

    def requested(self, request: Request, *, alike: bool) -> None:
        """Counts a request.

        Args:
            alike: whether it differs from another one only in its key and time.
        """
        self._added += len(request.key) + _ROW if alike else size_of(request)

    def placed(self, placement: Placement) -> None:
        self._added += len(placement.key) + _ROW + _SEAT * len(placement.seats)

    def joined(self, hosts: Iterable[Host]) -> None:
        self._added += sum(map(size_of, hosts))

    def recovered(self, page: RecoveryPage) -> None:
        self._added += size_of(page)

    def released(self, key: str) -> None:
        self._removed += len(key) + _ROW
