"""Evicts what runs on hosts that operators drain, at once or at a deadline."""

from datetime import datetime

from iris.model.host.hosts import ClosedBy, Closure
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.placement.preemption import Eviction


def next_deadline(ledger: Ledger) -> datetime | None:
    """Returns the next time at which tasks on a closed host are evicted; None if there is none."""
    times = (closure.evict_at for closure in ledger.closed.values() if closure.evict_at)
    return min(times, default=None)


def evict_due(ledger: Ledger, now: datetime) -> list[Eviction]:
    """Marks what runs on the hosts whose deadlines are over as being evicted."""
    due = [
        (host_id, closure.reason)
        for host_id, closure in ledger.closed.items()
        if closure.evict_at and closure.evict_at <= now
    ]
    evicted = []
    for host_id, reason in due:
        ledger.close(host_id, Closure(by=ClosedBy.DRAIN, reason=reason))
        evicted += evict_from(ledger, host_id)
    return evicted


def evict_from(ledger: Ledger, host_id: str) -> list[Eviction]:
    """Marks what runs on a closed host as being evicted."""
    return ledger.evict(host_id, f"evicted: host {host_id} is {ledger.closed[host_id]}")
