"""Counts the events in a row by which each host spoils attempts, and decides when a host is
quarantined.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from iris.model.host.hosts import ClosedBy, Closure
from iris.model.job.requests import Placement
from iris.scheduling.ledger.bounded_memory import remember

#: A host is quarantined after this many strikes in a row. A strike is an attempt that the host does
#: not start, or that a fault of the host ends.
STRIKES = 3
#: The closure of a quarantined host.
QUARANTINE = Closure(by=ClosedBy.QUARANTINE, reason=f"{STRIKES} attempts in a row failed there")


class Strikes:
    """Counts each host's consecutive strikes, which `STRIKES` defines.

    A failed attempt that was placed before the host's last strike is not a further strike: the same
    event, such as a short network outage, may have ended both attempts. A new incarnation of the
    host does not reset its count: an agent that crashes in each attempt restarts, in a new
    incarnation, before the failed attempt is released.
    """

    def __init__(self, counts: Mapping[str, int], struck_at: Mapping[str, datetime]) -> None:
        self.counts = dict(counts)
        #: When each host was last struck, by the scheduler's clock.
        self.struck_at = dict(struck_at)

    def count(
        self,
        spoilt_by: Iterable[str],
        placement: Placement | None,
        *,
        ran: bool,
        placed_at: datetime | None,
        now: datetime | None,
    ) -> list[str]:
        """Records one attempt. Returns the hosts that have reached `STRIKES`.

        Args:
            spoilt_by: the hosts that spoilt the attempt.
            placement: the hosts of the attempt; None if a new incarnation of them has ended it.
            ran: whether it ran on its other hosts. The strikes of these hosts are forgotten.
            placed_at: when the attempt was placed, used if `placement` is None. An attempt without
                a time counts as an event by itself.
            now: the time of the last pass; None if there was none.
        """
        spoilt = set(spoilt_by)
        for host_id in (
            {seat.host_id for seat in placement.seats} - spoilt
            if placement is not None and ran
            else ()
        ):
            self.forgive(host_id)
        placed_at = placement.placed_at if placement is not None else placed_at
        struck = [
            host_id
            for host_id in sorted(spoilt)
            if placed_at is None or self._is_news(host_id, placed_at)
        ]
        for host_id in struck:
            remember(self.counts, host_id, self.counts.get(host_id, 0) + 1)
            if (
                at := max((each for each in (placed_at, now) if each is not None), default=None)
            ) is not None:
                remember(self.struck_at, host_id, at)
        return [host_id for host_id in struck if self.counts.get(host_id, 0) >= STRIKES]

    def _is_news(self, host_id: str, placed_at: datetime) -> bool:
        last = self.struck_at.get(host_id)
        return last is None or placed_at > last

    def forgive(self, host_id: str) -> None:
        """Forgets the strikes of a host."""
        self.counts.pop(host_id, None)
