"""Compares the sums that a ledger keeps over its placements with those that follow from the
placements.
"""

from collections import Counter
from datetime import datetime, timedelta

from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.placement.recent_use import HALF_LIFE, RecentUse
from iris.scheduling.placement.turns import allowed_demand
from iris.scheduling.quotas.use import QuotaUse
from tests.small_world import taken

OWED_AFTER = timedelta(hours=1)
#: The times after the last pass at which the recent use is compared.
LATER = (timedelta(0), timedelta(milliseconds=400), timedelta(seconds=1), HALF_LIFE, 3 * HALF_LIFE)


def check_kept_sums(ledger: Ledger, now: datetime) -> None:
    """Fails if a sum differs from that over `ledger.live`.

    Args:
        now: the time of the last pass.
    """
    _check_occupancy(ledger)
    _check_recent_use(ledger, now)
    _check_quotas(ledger)
    seats = Counter(seat.slice_id for each in ledger.live.values() for seat in each.seats)
    assert ledger._seated.uses._seats == seats
    assert ledger.idle().keys() == {*ledger.host_index.slices_of_groups} - seats.keys()


def _check_occupancy(ledger: Ledger) -> None:
    kept = ledger._seated.occupied
    if kept is None or kept.index is not ledger._host_index:
        return  # the next pass derives it
    live = list(ledger.live.values())
    assert kept.free == [
        [has - used for has, used in zip(host.resources.vector, taken(host, live), strict=True)]
        for host in kept.index.hosts
    ]
    assert kept.tasks == sum(len(each.seats) * each.tasks_per_host for each in live)


def _check_quotas(ledger: Ledger) -> None:
    kept, anew = ledger.quotas, QuotaUse(ledger.quotas.table, ledger.live.values())

    def without_zeros(use: QuotaUse) -> tuple[object, object]:
        used = {bounded: amount for bounded, amount in use.used.items() if amount}
        return used, {pool: amount for pool, amount in use.pools.items() if amount}

    assert without_zeros(kept) == without_zeros(anew)
    if ledger.has_quotas:
        allowed = allowed_demand(ledger.waiting, anew)
        assert ledger.demand() == {shape: count for shape, (count, _) in allowed.items()}
        assert ledger.firsts(allowed) == {shape: first for shape, (_, first) in allowed.items()}


def _check_recent_use(ledger: Ledger, now: datetime) -> None:
    """Compares the recent use with that of a scheduler that has just read its ledger again, at the
    latest time first: to ask for a later time changes nothing.
    """
    kept, anew = ledger._seated.recent_use, RecentUse(ledger._seated.recent_use.state())
    for placement in ledger.live.values():
        anew.begins(placement)
    for after in reversed(LATER):
        assert kept.lately(now + after, OWED_AFTER) == anew.lately(now + after, OWED_AFTER)
    held: Counter[tuple[str, str]] = Counter()
    for placement in ledger.live.values():
        held[placement.band, placement.user] += placement.weight
    assert held == {
        (band, user): weight
        for band, users in kept.lately(now, OWED_AFTER).held.items()
        for user, weight in users.items()
    }
    # A scheduler that was never asked for a later time has the same recent use.
    again = RecentUse(kept.state())
    for placement in ledger.live.values():
        again.begins(placement)
    assert kept.lately(now, OWED_AFTER) == again.lately(now, OWED_AFTER)
