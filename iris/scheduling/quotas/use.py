"""What gangs hold of quotas, whether another gang may start, and which gangs hold what their quotas
have borrowed.

An account with a cohort may hold more than its nominal amounts while the others of the cohort use
less: it borrows. What an account keeps (`kept`) is never lent. What its gangs hold above that
counts in the pool of the cohort, and the pool never has more than all accounts lend together. So a
gang within its nominal amounts may still find the pool empty, because others borrow. Then
`iris.scheduling.placement.reclaim` takes back what was borrowed.
"""

from collections.abc import Container, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from iris.model.host.resources import MAX_AMOUNT
from iris.model.job.requests import Placement, Request
from iris.scheduling.quotas.amounts import amounts_of
from iris.scheduling.quotas.table import Bound, Bounded, Pool, QuotaTable


class Verdict(IntEnum):
    """Whether quotas allow a gang to start now."""

    FITS = 0  # within the nominal amounts
    BORROWS = 1  # with what others of a cohort do not use
    RECLAIMS = 2  # within the nominal amounts, but others have borrowed them
    STOPPED = 3  # a quota is used up


class Shortage(NamedTuple):
    """A resource of which a gang needs more than it may take from an account now."""

    account: int
    resource: str
    needed: int
    verdict: Verdict


class QuotaUse:
    """The amounts that gangs hold, by account and resource. Callers report each placement that
    begins or ends.
    """

    def __init__(self, table: QuotaTable, live: Iterable[Placement] = ()) -> None:
        self.table = table
        #: The number of gangs that began or ended so far. A cache compares it to notice that the
        #: use has changed.
        self.changes = 0
        self.used: dict[Bounded, int] = {}
        #: The amount that is used of each pool of a cohort.
        self.pools: dict[Pool, int] = {}
        for placement in live:
            self.add(placement)

    def copy(self) -> "QuotaUse":
        """Returns a copy that a pass may change."""
        same = QuotaUse(self.table)
        same.used, same.pools = dict(self.used), dict(self.pools)
        return same

    def without(self, live: Iterable[Placement], keys: Container[str]) -> "QuotaUse":
        """Returns what the placements hold without those with these keys."""
        later = self.copy()
        for placement in live if keys else ():
            if placement.key in keys:
                later.remove(placement)
        return later

    def add(self, gang: Request | Placement, count: int = 1) -> None:
        """Counts a gang that gets hosts, or this many of its kind."""
        if self.table.rules:
            self.changes += 1
            for bound in self.table.bounds(gang):
                self._change(bound, count)

    def remove(self, gang: Request | Placement) -> None:
        """Counts a gang no longer, because it has ended or is to be evicted."""
        self.add(gang, -1)

    def verdict(self, request: Request) -> Verdict:
        """Returns whether the request may start now."""
        found = Verdict.FITS
        for bound in self.table.bounds(request):
            each = self._verdict(bound)
            if each is Verdict.STOPPED:
                return each
            if each is not found:
                if found and each:
                    return Verdict.STOPPED  # a gang that borrows anything takes nothing back
                found = max(found, each)
        return found if self.table.knows(request) else Verdict.STOPPED

    def shortages(self, request: Request) -> list[Shortage]:
        """Returns the amounts that keep the request from starting within its quotas."""
        return [
            Shortage(*bound.of, bound.amount, verdict)
            for bound in self.table.bounds(request)
            if (verdict := self._verdict(bound)) is not Verdict.FITS
        ]

    def used_of(self, number: int, resource: str) -> int:
        return self.used.get((number, resource), 0)

    def left(self, bound: Bound) -> int:
        """Returns how much more the account may hold now, borrowed amounts included."""
        used = self.used.get(bound.of, 0)
        if bound.pool is None:
            return max(0, bound.nominal - used)
        lent = self.table.lent[bound.pool] - self.pools.get(bound.pool, 0)
        free = max(0, bound.kept - used) + max(0, lent)
        most = free if bound.borrow is None else bound.nominal + bound.borrow - used
        return max(0, min(free, most))

    def room(self, request: Request, *, borrowing: bool) -> int:
        """Returns how many gangs of this kind may start.

        Args:
            borrowing: with what others do not use; otherwise, within the nominal amounts, also
                where others have borrowed them.
        """
        found = MAX_AMOUNT if self.table.knows(request) else 0
        for bound in self.table.bounds(request):
            if not found:
                break
            left = (
                self.left(bound)
                if borrowing
                else max(0, bound.nominal - self.used.get(bound.of, 0))
            )
            found = min(found, left // bound.amount)
        return found

    def _verdict(self, bound: Bound) -> Verdict:
        used = self.used.get(bound.of, 0)
        after = used + bound.amount
        if bound.pool is None:
            return Verdict.FITS if after <= bound.nominal else Verdict.STOPPED
        if after <= bound.kept:
            return Verdict.FITS
        more = after - max(bound.kept, used)
        has = self.pools.get(bound.pool, 0) + more <= self.table.lent[bound.pool]
        if after <= bound.nominal:
            return Verdict.FITS if has else Verdict.RECLAIMS
        within = bound.borrow is None or after <= bound.nominal + bound.borrow
        return Verdict.BORROWS if has and within else Verdict.STOPPED

    def _change(self, bound: Bound, count: int) -> None:
        before = self.used.get(bound.of, 0)
        after = self.used[bound.of] = before + count * bound.amount
        if bound.pool is not None:
            more = max(0, after - bound.kept) - max(0, before - bound.kept)
            self.pools[bound.pool] = self.pools.get(bound.pool, 0) + more


class Borrowed(NamedTuple):
    """A gang that holds more than the nominal amounts of its quota."""

    placement: Placement
    cohort: str
    #: The name of the quota that has borrowed for the gang.
    quota: str
    #: The resources of which the gang holds borrowed amounts.
    resources: frozenset[str]


def gangs_of_accounts(table: QuotaTable, live: Iterable[Placement]) -> dict[int, list[Placement]]:
    """Returns the gangs that each account counts, by the number of the account."""
    found: dict[int, list[Placement]] = {}
    for placement in live:
        for number in table.covering(placement):
            found.setdefault(number, []).append(placement)
    return found


def borrowed_gangs(use: QuotaUse, gangs: Mapping[int, list[Placement]]) -> list[Borrowed]:
    """Returns the gangs that hold borrowed amounts.

    The nominal amounts of a quota belong to its gangs of the highest bands, and in a band to those
    that started first. So none of these gangs is evicted for another quota, however many of the
    others are.

    Args:
        gangs: the gangs by account.
    """
    table = use.table
    over = {
        number
        for (number, resource), used in use.used.items()
        if table.accounts[number].cohort is not None
        and used > table.accounts[number].nominal[resource]
    }
    found: list[Borrowed] = []
    for number in sorted(over):
        account = table.accounts[number]
        left = dict(account.nominal)
        for placement in sorted(gangs.get(number, ()), key=_precedence):
            counted = [
                (each, amount)
                for each, amount in amounts_of(placement).items()
                if each in account.nominal
            ]
            if beyond := [each for each, amount in counted if amount > left[each]]:
                found.append(
                    Borrowed(placement, account.cohort or "", account.name, frozenset(beyond))
                )
                continue
            for each, amount in counted:
                left[each] -= amount
    return found


def _precedence(placement: Placement) -> tuple[int, float, str]:
    started = placement.placed_at.timestamp() if placement.placed_at else 0.0
    return (placement.band.rank, started, placement.key)
