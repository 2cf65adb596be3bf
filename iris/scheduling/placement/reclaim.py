"""Chooses the gangs to evict so that others get what their quotas entitle them to.

1. Only a gang that is within the nominal amounts of its quotas, once the victims are gone, takes
   anything back. A gang that borrows evicts nobody.
2. From other quotas of its cohort, it takes what they have borrowed, whatever the bands. No gang
   within the nominal amounts of its own quota is evicted for another quota.
3. From its own quota, it takes what gangs of lower bands hold, as on hosts (`preemption.py`).
4. A victim is evicted whole, and not before it has run for `Rules.min_run_time`.
5. Victims are chosen only if the gang then fits, on hosts and in its quotas.
"""

from collections.abc import Iterable, Set
from datetime import datetime
from itertools import chain

from iris.model.job.requests import Claim, Placement, Request, Shape
from iris.model.job.spec import Band
from iris.model.rules import Rules
from iris.scheduling.placement.capacity import Capacity
from iris.scheduling.placement.preemption import Eviction, Evictions, lower_bands
from iris.scheduling.placement.queue import Queue
from iris.scheduling.placement.victims import Victim, by_host_of, cost_of, victims_for
from iris.scheduling.quotas.amounts import amounts_of
from iris.scheduling.quotas.borrowed import Borrowed, borrowed_gangs
from iris.scheduling.quotas.use import QuotaUse, Shortage, Verdict

#: The most gangs for which one pass searches victims on hosts. The next pass continues with the
#: others.
MOST_SEARCHES = 6
#: The most work of one pass, in looks (`Effort`). The next pass continues.
MAX_LOOKS = 500_000
#: What the requests of a line have in common.
Line = tuple[Shape, str, Band, Claim]


def line_of(request: Request) -> Line:
    """Returns what the requests of one line have in common."""
    return (request.shape, request.user, request.band, request.claim)


def reclaims(
    live: Iterable[Placement],
    waiting: Queue,
    evicting: Set[str],
    now: datetime,
    rules: Rules,
    capacity: Capacity,
    use: QuotaUse,
    passed_over: Set[Line],
) -> tuple[Evictions, set[Line]]:
    """Returns the gangs to evict, and the lines for which no victims were found.

    Args:
        evicting: the keys of the placements that are being evicted already.
        capacity: what the placements leave free.
        use: what they hold of the quotas.
        passed_over: the lines for which the earlier, incomplete searches found no victims.
    """
    live = list(live)
    search = _Search(live, evicting, now, rules, capacity, use)
    if not search.is_possible(waiting):
        return Evictions([], None, set(), complete=True), set()
    capacity.effort.checked_quotas(waiting.lines)
    fruitless: set[Line] = set()
    for first, count in chain.from_iterable(map(waiting.heads, Band)):
        if line_of(first) in passed_over:
            continue
        # The requests of a line differ only in what does not matter here.
        if not all(search.serves(first) for _ in range(count)):
            fruitless.add(line_of(first))
        if search.is_spent:
            return Evictions(search.victims, search.again_at, set(), complete=False), fruitless
    return Evictions(search.victims, search.again_at, set(), complete=True), fruitless


class _Search:
    """Chooses victims for one request after another, and counts them as gone."""

    def __init__(
        self,
        live: list[Placement],
        evicting: Set[str],
        now: datetime,
        rules: Rules,
        capacity: Capacity,
        use: QuotaUse,
    ) -> None:
        self.victims: list[Eviction] = []
        self.again_at: datetime | None = None
        self._capacity = capacity.without(each for each in live if each.key in evicting)
        self._use = use.without(live, evicting)
        self._staying = {each.key: each for each in live if each.key not in evicting}
        self._borrowed = {
            each.placement.key: each for each in borrowed_gangs(self._use, self._staying.values())
        }
        self._protected_since = now - rules.min_run_time
        self._rules = rules
        self._searches = 0
        self._last_look = capacity.effort.looks + MAX_LOOKS
        #: The requests for which no victims were found, by all that decides about them.
        self._hopeless: set[tuple[Shape, Band, tuple[int, ...], Claim]] = set()
        #: The placements of each account by band; None until a request needs it.
        self._gangs: dict[int, dict[Band, list[Placement]]] | None = None

    @property
    def is_spent(self) -> bool:
        return self._searches >= MOST_SEARCHES or self._capacity.effort.looks > self._last_look

    def is_possible(self, waiting: Queue) -> bool:
        """Returns whether there can be victims."""
        if self._borrowed:
            return True
        ranks = [placement.band.rank for placement in self._staying.values()]
        lowest = max(ranks, default=0)
        evicts = (band for band in Band if band is not Band.BATCH and band.rank < lowest)
        return self._rules.preemption and any(waiting.any_in(band) for band in evicts)

    def serves(self, request: Request) -> bool:
        """Returns whether the request fits once the victims are gone. It may choose some."""
        verdict = self._use.verdict(request)
        if verdict is Verdict.BORROWS or not self._use.table.knows(request):
            return False
        hosts = self._capacity.find(request)
        if verdict is not Verdict.FITS or hosts is None:
            chosen = self._choose(request, hosts)
            for victim in chosen:
                self._evict(victim, request)
            hosts = self._capacity.find(request) if chosen else None
        if hosts is None:
            return False
        self._capacity.give(hosts, request)
        self._use.add(request)
        return True

    def _choose(self, request: Request, hosts: list[int] | None) -> list[Victim]:
        """Returns the victims after which the request fits; empty if there are none."""
        key = (request.shape, request.band, self._use.table.covering(request), request.claim)
        if key in self._hopeless:
            return []
        possible = self._reclaimable(request) or self._lower_in_quotas(request)
        if not possible or not self._capacity.index.feasible(request):
            self._hopeless.add(key)
            return []
        self._capacity.effort.searched(possible)
        ripe = [each for each in possible.values() if self._is_ripe(each)]
        found = self._victims(request, hosts, ripe) if ripe else []
        if not found:
            self._hopeless.add(key)
            self._wait_for(possible.values())
        return found

    def _victims(
        self, request: Request, hosts: list[int] | None, ripe: list[Placement]
    ) -> list[Victim]:
        if hosts is not None:
            return self._with_quotas(request, [], ripe)
        self._searches += 1
        by_host = by_host_of(self._capacity.index, ripe)
        chosen = victims_for(self._capacity, request, by_host)
        return self._with_quotas(request, chosen, ripe) if chosen else []

    def _with_quotas(
        self, request: Request, chosen: list[Victim], ripe: list[Placement]
    ) -> list[Victim]:
        """Adds victims until the request is within its quotas. Returns none if it cannot be."""
        later, gone = self._use.copy(), {each.placement.key for each in chosen}
        for victim in chosen:
            later.remove(victim.placement)
        rest = sorted(
            (Victim.of(each) for each in ripe if each.key not in gone),
            key=lambda each: cost_of([each]),
        )
        added: list[Victim] = []
        while later.verdict(request) is not Verdict.FITS:
            shortage = later.shortages(request)[0]
            helpful = (each for each in rest if self._helps(each.placement, shortage, request))
            if (found := next(helpful, None)) is None:
                return []
            later.remove(found.placement)
            rest.remove(found)
            added.append(found)
        for each in sorted(added, key=lambda each: cost_of([each]), reverse=True):
            later.add(each.placement)  # a larger one that was chosen later may suffice
            if later.verdict(request) is Verdict.FITS:
                added.remove(each)
            else:
                later.remove(each.placement)
        return [*chosen, *added]

    def _helps(self, placement: Placement, shortage: Shortage, request: Request) -> bool:
        """Returns whether the eviction of the gang makes the shortage smaller."""
        account = self._use.table.accounts[shortage.account]
        if not amounts_of(placement).get(shortage.resource):
            return False
        if shortage.account in self._use.table.covering(placement):
            return placement.band in lower_bands(request.band)
        if shortage.verdict is not Verdict.RECLAIMS:
            return False
        lent = self._borrowed.get(placement.key)
        return (
            lent is not None
            and lent.cohort == account.cohort
            and shortage.resource in lent.resources
        )

    def _cohorts(self, request: Request) -> frozenset[str]:
        accounts = (self._use.table.accounts[each] for each in self._use.table.covering(request))
        return frozenset(each.cohort for each in accounts if each.cohort is not None)

    def _reclaimable(self, request: Request) -> dict[str, Placement]:
        """Returns the gangs of other quotas that hold what the request's quotas have lent."""
        if self._use.verdict(request) is Verdict.STOPPED or not self._borrowed:
            return {}
        cohorts = self._cohorts(request)
        needs = {bound.of[1] for bound in self._use.table.bounds(request)}
        return {
            each.placement.key: each.placement
            for each in self._borrowed.values()
            if each.cohort in cohorts and not needs.isdisjoint(each.resources)
        }

    def _lower_in_quotas(self, request: Request) -> dict[str, Placement]:
        """Returns the gangs of lower bands that hold what the request lacks in its own quotas."""
        if not self._rules.preemption or request.band is Band.BATCH:
            return {}
        if self._use.verdict(request) is not Verdict.STOPPED:
            return {}
        gangs = self._gangs_of_accounts()
        return {
            placement.key: placement
            for shortage in self._use.shortages(request)
            for band in lower_bands(request.band)
            for placement in gangs.get(shortage.account, {}).get(band, ())
            if placement.key in self._staying
        }

    def _gangs_of_accounts(self) -> dict[int, dict[Band, list[Placement]]]:
        if self._gangs is None:
            self._gangs = {}
            for placement in self._staying.values():
                for number in self._use.table.covering(placement):
                    of_band = self._gangs.setdefault(number, {})
                    of_band.setdefault(placement.band, []).append(placement)
        return self._gangs

    def _is_ripe(self, placement: Placement) -> bool:
        return placement.placed_at is None or placement.placed_at <= self._protected_since

    def _wait_for(self, placements: Iterable[Placement]) -> None:
        """Searches again when the next of these gangs has run long enough."""
        young = [
            each.placed_at
            for each in placements
            if each.placed_at is not None and not self._is_ripe(each)
        ]
        if young:
            next_at = min(young) + self._rules.min_run_time
            self.again_at = min(self.again_at or next_at, next_at)

    def _evict(self, victim: Victim, request: Request) -> None:
        placement = victim.placement
        borrowed = self._borrowed.pop(placement.key, None)
        self._capacity.release(placement)
        self._use.remove(placement)
        del self._staying[placement.key]
        self.victims.append(
            Eviction(key=placement.key, owner=placement.owner, reason=_reason(request, borrowed))
        )


def _reason(request: Request, borrowed: Borrowed | None) -> str:
    if borrowed is None:
        return f"evicted: {request.task} of band {request.band} needs what it holds of their quota"
    return (
        f"evicted: {request.task} needs what quota {borrowed.quota} has borrowed from cohort"
        f" {borrowed.cohort}"
    )
