"""What gangs hold of quotas, and whether another gang may start.

An account with a cohort may hold more than its nominal amounts while the others of the cohort use
less: it borrows. What an account keeps (`kept`) is never lent. What its gangs hold above that
counts in the pool of the cohort, and the pool never has more than all accounts lend together. So a
gang within its nominal amounts may still find the pool empty, because others borrow. Then
`iris.scheduling.quotas.reclaim` takes back what was borrowed.
"""

from collections.abc import Container, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from iris.model.host.resources import MAX_AMOUNT
from iris.model.job.requests import Placement, Request
from iris.scheduling.quotas.amounts import amounts_of
from iris.scheduling.quotas.table import Account, QuotaTable

_Pool = tuple[str, str]


class Verdict(IntEnum):
    """Whether a gang may start now."""

    FITS = 0  # within the nominal amounts
    BORROWS = 1  # with what others of a cohort do not use
    RECLAIMS = 2  # within the nominal amounts, but others have borrowed them
    STOPPED = 3  # a quota is used up


class Shortage(NamedTuple):
    """An amount that a gang needs and an account has not left."""

    account: int
    resource: str
    needed: int
    verdict: Verdict


class QuotaUse:
    """What gangs hold, by account. It follows each placement that begins or ends."""

    def __init__(self, table: QuotaTable, live: Iterable[Placement] = ()) -> None:
        self.table = table
        self.used: dict[int, dict[str, int]] = {}
        #: What is used of the pools of cohorts.
        self.pools: dict[_Pool, int] = {}
        self._amounts: dict[tuple[object, ...], Mapping[str, int]] = {}
        for placement in live:
            self.add(placement)

    def copy(self) -> "QuotaUse":
        """Returns a copy that a pass may change."""
        same = QuotaUse(self.table)
        same.used = {number: dict(used) for number, used in self.used.items()}
        same.pools = dict(self.pools)
        same._amounts = self._amounts
        return same

    def without(self, live: Iterable[Placement], keys: Container[str]) -> "QuotaUse":
        """Returns what the placements hold without those with these keys."""
        later = self.copy()
        for placement in live:
            if placement.key in keys:
                later.remove(placement)
        return later

    def add(self, gang: Request | Placement, count: int = 1) -> None:
        """Counts a gang that gets hosts, or this many of its kind."""
        self._change(gang, count)

    def remove(self, gang: Request | Placement) -> None:
        """Counts a gang no longer, because it has ended or is to be evicted."""
        self._change(gang, -1)

    def needs(self, request: Request) -> Mapping[str, int]:
        """Returns what the request counts, by resource."""
        key = (request.shape, request.claim.limits)
        found = self._amounts.get(key)
        if found is None:
            found = self._amounts[key] = amounts_of(request)
        return found

    def verdict(self, request: Request) -> Verdict:
        """Returns whether the request may start now."""
        if not self.table.knows(request):
            return Verdict.STOPPED
        found = Verdict.FITS
        for each in self._checked(request):
            if each is not found:
                # A gang that borrows anything takes nothing back.
                found = Verdict.STOPPED if found and each else max(found, each)
        return found

    def shortages(self, request: Request) -> list[Shortage]:
        """Returns the amounts that keep the request from starting within its quotas."""
        return [
            Shortage(number, resource, amount, verdict)
            for number in self.table.covering(request)
            for resource, amount in self.needs(request).items()
            if (verdict := self.verdict_of(number, resource, amount)) is not Verdict.FITS
        ]

    def verdict_of(self, number: int, resource: str, amount: int) -> Verdict:
        """Returns whether the account has this amount left."""
        account = self.table.accounts[number]
        nominal = account.nominal.get(resource)
        if nominal is None:
            return Verdict.FITS
        used = self.used_of(number, resource)
        after = used + amount
        if account.cohort is None:
            return Verdict.FITS if after <= nominal else Verdict.STOPPED
        kept = account.kept.get(resource, 0)
        pool = (account.cohort, resource)
        more = max(0, after - kept) - max(0, used - kept)
        has = not more or self.pools.get(pool, 0) + more <= self.table.lent[pool]
        if after <= nominal:
            return Verdict.FITS if has else Verdict.RECLAIMS
        most = account.borrow.get(resource)
        within = most is None or after <= nominal + most
        return Verdict.BORROWS if has and within else Verdict.STOPPED

    def used_of(self, number: int, resource: str) -> int:
        return self.used.get(number, {}).get(resource, 0)

    def left(self, number: int, resource: str) -> int:
        """Returns how much more the account may hold now, borrowed amounts included."""
        account = self.table.accounts[number]
        nominal, used = account.nominal[resource], self.used_of(number, resource)
        if account.cohort is None:
            return max(0, nominal - used)
        kept, pool = account.kept.get(resource, 0), (account.cohort, resource)
        free = max(0, kept - used) + max(0, self.table.lent[pool] - self.pools.get(pool, 0))
        most = account.borrow.get(resource)
        return max(0, free if most is None else min(free, nominal + most - used))

    def room(self, request: Request, *, borrowing: bool) -> int:
        """Returns how many gangs of this kind may start.

        Args:
            borrowing: with what others do not use; otherwise, within the nominal amounts, also
                where others have borrowed them.
        """
        if not self.table.knows(request):
            return 0
        found = MAX_AMOUNT
        for number in self.table.covering(request):
            nominal = self.table.accounts[number].nominal
            for resource, amount in self.needs(request).items():
                if resource in nominal:
                    left = (
                        self.left(number, resource)
                        if borrowing
                        else max(0, nominal[resource] - self.used_of(number, resource))
                    )
                    found = min(found, left // amount)
        return found

    def _checked(self, request: Request) -> Iterable[Verdict]:
        needs = self.needs(request).items()
        for number in self.table.covering(request):
            for resource, amount in needs:
                yield self.verdict_of(number, resource, amount)

    def _change(self, gang: Request | Placement, sign: int) -> None:
        if not self.table.rules:
            return
        amounts = self.needs(gang) if isinstance(gang, Request) else amounts_of(gang)
        for number in self.table.covering(gang):
            account = self.table.accounts[number]
            used = self.used.setdefault(number, {})
            for resource, amount in amounts.items():
                if resource in account.nominal:
                    before = used.get(resource, 0)
                    used[resource] = before + sign * amount
                    self._change_pool(account, resource, before, used[resource])

    def _change_pool(self, account: Account, resource: str, before: int, after: int) -> None:
        if account.cohort is not None:
            pool, kept = (account.cohort, resource), account.kept.get(resource, 0)
            more = max(0, after - kept) - max(0, before - kept)
            self.pools[pool] = self.pools.get(pool, 0) + more


def most_ever(use: QuotaUse, number: int, resource: str) -> int:
    """Returns the most that the account can ever hold of the resource."""
    account, table = use.table.accounts[number], use.table
    nominal = account.nominal[resource]
    if account.cohort is None:
        return nominal
    all_of_cohort = account.kept.get(resource, 0) + table.lent[account.cohort, resource]
    most = account.borrow.get(resource)
    return all_of_cohort if most is None else min(all_of_cohort, nominal + most)
