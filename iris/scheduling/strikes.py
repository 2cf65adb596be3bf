"""Counts the attempts in a row that each host spoils, and decides when a host is quarantined."""

from collections.abc import Iterable, Mapping

from iris.model.hosts import ClosedBy, Closure
from iris.scheduling.bounded_memory import remember

#: A host is quarantined after this number of attempts in a row that it did not take, or that a fault of the host ended.
STRIKES = 3
QUARANTINE = Closure(by=ClosedBy.QUARANTINE, reason=f"{STRIKES} attempts in a row failed there")


class Strikes:
    """The spoilt attempts in a row of each host.

    Attempts count across incarnations: an agent that crashes in each attempt is back, in a new incarnation, before the attempt is
    given up.
    """

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.counts = dict(counts)

    def count(self, spoilt: Iterable[str], ran: Iterable[str]) -> list[str]:
        """Records one attempt. Returns the hosts that have spoilt too many by now.

        Args:
            spoilt: the hosts that spoilt the attempt.
            ran: the hosts on which it ran; their counts begin anew.
        """
        for host_id in ran:
            self.forgive(host_id)
        spoilt = sorted(spoilt)
        for host_id in spoilt:
            remember(self.counts, host_id, self.counts.get(host_id, 0) + 1)
        return [host_id for host_id in spoilt if self.counts.get(host_id, 0) >= STRIKES]

    def forgive(self, host_id: str) -> None:
        """Forgets the spoilt attempts of a host."""
        self.counts.pop(host_id, None)
