"""Decides when the scheduler's ledger is full, and when its size has to be measured again.

The ledger travels to the scheduler's next run as one payload, which Temporal limits to 2 MiB. So
the scheduler refuses requests before the ledger gets that large. The size at the begin of a run is
exact: it is the size of the run's history, which begins with the ledger as it travelled,
compressed. What the run adds counts with its size before compression, which is several times
larger. So the scheduler continues as new when this estimate comes near the limit, and then knows
the exact size.
"""

from collections.abc import Iterable

from iris.model.host.hosts import Host
from iris.model.job.demand_limits import size_of
from iris.model.job.requests import Placement, Request
from iris.model.units import MIB
from iris.scheduling.ledger.recovery import RecoveryPage

#: The size in bytes of a full ledger. The rest of a payload is for what the scheduler cannot
#: refuse: hosts that join (17 bytes each), and requests that get hosts (3 bytes more than while
#: they wait).
FULL = 7 * MIB // 4
#: From this distance to `FULL`, in bytes, the size is measured again after `STEP`.
NEAR = MIB // 4
#: The least that a run adds, and four times the least that it removes from a full ledger, before
#: the size is measured again: continuing as new with a ledger of this size takes seconds.
STEP = MIB // 16
#: The most kinds of waiting and held requests, and the most of one user. Every pass looks at each
#: kind, and writing and reading ten thousand takes a second of the two that a workflow task may
#: take without yielding.
MOST_KINDS, MOST_OF_ONE_USER = 10_000, 5_000
#: The bytes of a row without its key: its time, its run, and the place of each task.
_ROW, _SEAT = 16, 10


class LedgerSize:
    """The size of the ledger in bytes.

    Args:
        began: the size of the history when the run began; 0 if the server does not report it.
    """

    def __init__(self, began: int = 0) -> None:
        self._began = began
        self._added = 0
        self._removed = 0

    @property
    def bytes(self) -> int:
        """An upper bound of the size: what was removed does not count before it is measured
        again.
        """
        return self._began + self._added

    @property
    def full(self) -> bool:
        """Whether new requests have to be refused."""
        return self.bytes >= FULL

    @property
    def stale(self) -> bool:
        """Whether the size has to be measured: the scheduler continues as new."""
        added = self.bytes >= FULL - NEAR and self._added >= STEP
        return added or (self.full and self._removed >= 4 * STEP)

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
