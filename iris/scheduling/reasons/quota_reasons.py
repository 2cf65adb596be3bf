"""Explains why a quota stops a gang: how much is used, who holds it, and what to do."""

from collections import Counter
from collections.abc import Collection, Iterable
from functools import cached_property

from iris.model.job.requests import Placement, Request
from iris.model.quotas import NAMED, bare_amount, format_quota
from iris.scheduling.placement.refusals import QuotaStop, Refusal, RefusalCode
from iris.scheduling.quotas.table import CLUSTER
from iris.scheduling.quotas.use import QuotaUse, Shortage, Verdict

#: The maximum number of users that the reason of a waiting job names for one quota.
MOST_USERS = 3
#: The maximum number of quotas that the reason of a waiting job explains.
MOST_QUOTAS = 3


class QuotaReasons:
    """Computes why quotas stop requests, for one moment.

    Args:
        closed: the pools of cohorts from which no gang may borrow, because a gang waits for amounts
            that its quota has lent.
    """

    def __init__(
        self,
        use: QuotaUse,
        live: Collection[Placement],
        closed: Collection[tuple[str, str]] = (),
    ) -> None:
        self._use = use
        self._live = live
        self._closed = closed

    def apply_to(self, request: Request) -> bool:
        """Returns whether there are quotas, or named limits that the request takes."""
        return bool(self._use.table.rules or request.claim.limits)

    def refusal(self, request: Request) -> Refusal | None:
        """Returns why a quota stops the request; None if none does."""
        if not self.apply_to(request):
            return None
        if (never := self.never(request)) is not None:
            return never
        verdict = self._use.verdict(request)
        if verdict is Verdict.FITS:
            return None
        shortages = self._use.shortages(request)
        if verdict is Verdict.BORROWS:
            shortages = [each for each in shortages if self._pool(each) in self._closed]
        elif any(each.verdict is not Verdict.BORROWS for each in shortages):
            shortages = [each for each in shortages if each.verdict is not Verdict.BORROWS]
        if not shortages:
            return None
        stops = tuple(self._stop(each) for each in shortages[:MOST_QUOTAS])
        return Refusal(
            code=RefusalCode.QUOTA,
            message="; ".join(map(_sentence, stops)),
            quotas=stops,
            remedy=_remedy(stops[0], reclaims=verdict is Verdict.RECLAIMS),
        )

    def never(self, request: Request) -> Refusal | None:
        """Returns why the request needs more than a quota ever allows; None if it does not."""
        limits = self._use.table.rules.limits
        unknown = [name for name, _ in request.claim.limits if name not in limits]
        if unknown:
            there = f"it has {', '.join(sorted(limits))}" if limits else "it has none"
            return Refusal(
                code=RefusalCode.QUOTA,
                message=f"the cluster has no limit {unknown[0]}; {there}",
                remedy="use one of its limits, or add it to limits in the configuration",
            )
        for bound in self._use.table.bounds(request):
            most = bound.most_ever(self._use.table.lent)
            if bound.amount > most:
                number, resource = bound.of
                account = self._use.table.accounts[number]
                return Refusal(
                    code=RefusalCode.QUOTA,
                    message=(
                        f"the gang needs {format_quota(resource, bound.amount)}, and"
                        f" {_of(account.name, account.holder)} allows at most"
                        f" {bare_amount(resource, most)}"
                    ),
                    remedy=f"request less, or raise {_path(account.name, resource)}",
                )
        return None

    def _pool(self, shortage: Shortage) -> tuple[str, str]:
        return self._use.table.accounts[shortage.account].cohort or "", shortage.resource

    def _stop(self, shortage: Shortage) -> QuotaStop:
        use, resource = self._use, shortage.resource
        account = use.table.accounts[shortage.account]
        users = self._holders.get((shortage.account, resource), Counter())
        borrowed = {
            other.name: over
            for number, other in enumerate(use.table.accounts)
            if account.cohort is not None
            and other.cohort == account.cohort
            and number != shortage.account
            and (over := use.used_of(number, resource) - other.nominal.get(resource, 0)) > 0
            and resource in other.nominal
        }
        return QuotaStop(
            quota=account.name,
            holder=account.holder,
            resource=resource,
            needed=shortage.needed,
            left=use.left(use.table.bound(shortage.account, resource)),
            used=use.used_of(shortage.account, resource),
            nominal=account.nominal[resource],
            users=dict(users.most_common(MOST_USERS)),
            borrowed_by=borrowed,
        )

    @cached_property
    def _holders(self) -> dict[tuple[int, str], Counter[str]]:
        """What each user holds of each account."""
        return holders(self._use, self._live)


def holders(use: QuotaUse, live: Iterable[Placement]) -> dict[tuple[int, str], Counter[str]]:
    """Returns what each user holds, by the number of the account and resource."""
    found: dict[tuple[int, str], Counter[str]] = {}
    for placement in live:
        for bound in use.table.bounds(placement):
            found.setdefault(bound.of, Counter())[placement.user] += bound.amount
    return found


def _sentence(stop: QuotaStop) -> str:
    def bare(amount: int) -> str:
        return bare_amount(stop.resource, amount)

    held = ", ".join(f"{user} {bare(amount)}" for user, amount in stop.users.items())
    text = (
        f"{_of(stop.quota, stop.holder)} has {bare(stop.used)} of"
        f" {format_quota(stop.resource, stop.nominal)} in use{f' ({held})' if held else ''}, and"
        f" the gang needs {bare(stop.needed)}"
    )
    others = ", ".join(f"quota {name} {bare(more)}" for name, more in stop.borrowed_by.items())
    return f"{text}; borrowed from cohort: {others}" if others else text


def _of(quota: str, holder: str) -> str:
    return "the cluster" if quota == CLUSTER else f"quota {quota} of {holder}"


def _path(quota: str, resource: str) -> str:
    """Returns the key of the configuration that bounds the resource."""
    if quota == CLUSTER:
        return f"limits.{resource.removeprefix(NAMED)}"
    return f"quotas.{quota}.{resource}"


def _remedy(stop: QuotaStop, *, reclaims: bool) -> str:
    if reclaims:
        return "wait: what others have borrowed is taken back from them; see iris quota list"
    who = "any user" if stop.quota == CLUSTER else stop.holder
    return (
        f"wait until gangs of {who} end, request less, or raise"
        f" {_path(stop.quota, stop.resource)}; see iris quota list"
    )
