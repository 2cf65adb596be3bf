"""Chooses the gangs to evict so that others get what their quotas entitle them to.

1. Only a gang that is within the nominal amounts of its quotas, once the victims are gone, takes
   anything back. A gang that borrows evicts nobody.
2. From other quotas of its cohort, it takes what they have borrowed, whatever the bands. No gang
   within the nominal amounts of its own quota is evicted for another quota.
3. From its own quota, it takes what gangs of lower bands hold, as on hosts (`preemption.py`).
4. A victim is evicted whole, and not before it has run for `Rules.min_run_time`.
5. Victims are chosen only if the gang then fits, on hosts and in its quotas.
"""

from collections import Counter
from collections.abc import Iterable, Set
from datetime import datetime
from itertools import chain
from typing import NamedTuple

from iris.model.job.requests import Placement, Request
from iris.model.job.spec import Band
from iris.model.rules import Rules
from iris.scheduling.placement.capacity import Capacity
from iris.scheduling.placement.lines import Line, line_of
from iris.scheduling.placement.occupancy import seats_of
from iris.scheduling.placement.preemption import Eviction, Evictions, lower_bands
from iris.scheduling.placement.queue import Queue
from iris.scheduling.placement.victims import (
    Possible,
    Victim,
    cost_of,
    possible_victims,
    victims_for,
)
from iris.scheduling.quotas.amounts import amounts_of
from iris.scheduling.quotas.table import Bounded
from iris.scheduling.quotas.use import (
    Borrowed,
    QuotaUse,
    Shortage,
    Verdict,
    borrowed_gangs,
    gangs_of_accounts,
)

#: The most work of one search for victims, without the preparation of the search. A look is the
#: work to examine one host (`Effort`). The next search continues with the other requests.
MAX_LOOKS = 100_000
#: The limit on gangs of one band, with the same used-up quotas, for which one search finds no
#: victims. After this many, the search skips the other gangs of the band with these quotas, so that
#: a user with many kinds of gangs does not take all the time of the search.
MOST_IN_VAIN = 2


class _Source(NamedTuple):
    """The facts about a request that decide which gangs may be evicted for it. Requests with equal
    facts have the same possible victims.
    """

    #: The band of the request, if its quotas are used up; None if the request is within its nominal
    #: amounts.
    band: Band | None
    #: What the possible victims hold. If `band` is None: amounts that are borrowed from these pools
    #: of lent amounts, as (cohort, resource). Otherwise: amounts of these used-up quota accounts,
    #: as (number of the account, empty text).
    of: frozenset[tuple[str | int, str]]


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
    """Returns the gangs to evict, and the lines for which a search that is not complete found no
    victims.

    Args:
        evicting: the keys of the placements that are being evicted already.
        capacity: what the placements leave free.
        use: what they hold of the quotas.
        passed_over: the lines for which the earlier, incomplete searches found no victims.
    """
    live = list(live)
    capacity.effort.checked_quotas(waiting.lines)
    search = _Search(live, evicting, now, rules, capacity, use)
    if not search.is_possible(waiting):
        return Evictions([], None, set(), complete=True), set()
    fruitless: list[Request] = []
    for first, count in chain.from_iterable(map(waiting.heads, Band)):
        if passed_over and line_of(first) in passed_over:
            continue
        # The requests of a line differ only in what does not matter here.
        if not all(search.serves(first) for _ in range(count)):
            fruitless.append(first)
        if search.is_spent:
            break
    complete = not search.is_spent
    in_vain = set() if complete else {line_of(each) for each in fruitless}
    return Evictions(search.victims, search.again_at, set(), complete=complete), in_vain


class _Search:
    """Chooses victims for one request after another. Gangs that it has chosen count as gone for the
    next requests.
    """

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
        self._gangs = gangs_of_accounts(use.table, self._staying.values())
        self._borrowed = {
            each.placement.key: each for each in borrowed_gangs(self._use, self._gangs)
        }
        self._now = now
        self._rules = rules
        self._last_look = capacity.effort.looks + MAX_LOOKS
        #: The possible victims, by the rule that allows their eviction for a request (`_source`).
        #: `Possible.victims` may still contain gangs that this search has evicted.
        self._possible: dict[_Source, Possible] = {}
        #: Cached results of `_counted_in`: the keys of the gangs that hold a resource of a quota
        #: account, by (number of the account, resource).
        self._counted: dict[Bounded, set[str]] = {}
        #: The keys of requests for which no victims were found. A key has all facts on which the
        #: search depends, such as the request's source and shape.
        self._hopeless: set[tuple[object, ...]] = set()
        #: The number of requests, by source, for which no victims were found.
        self._in_vain: Counter[_Source] = Counter()

    @property
    def is_spent(self) -> bool:
        return self._capacity.effort.looks > self._last_look

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
        source = self._source(request, verdict)
        if source is None:
            return False
        hosts = self._capacity.find(request)
        if verdict is not Verdict.FITS or hosts is None:
            chosen = self._choose(request, source, verdict, hosts)
            for victim in chosen:
                self._evict(victim, request)
            hosts = self._capacity.find(request) if chosen else None
        if hosts is None:
            return False
        self._capacity.give(hosts, request)
        self._use.add(request)
        return True

    def _choose(
        self, request: Request, source: _Source, verdict: Verdict, hosts: list[int] | None
    ) -> list[Victim]:
        """Returns the victims after which the request fits; empty if there are none."""
        key = (source, request.shape, request.claim.limits, verdict, hosts is None)
        if key in self._hopeless or not self._capacity.index.feasible(request):
            return []
        possible = self._possible_of(source)
        chosen: list[Victim] = []
        if hosts is None:
            self._capacity.effort.searched(possible.by_host)
            chosen = victims_for(self._capacity, request, possible.by_host)
        if hosts is not None or chosen:
            chosen = self._with_quotas(request, chosen, possible.victims)
        if not chosen:
            self._hopeless.add(key)
            self._in_vain[source] += 1
            if possible.next_at is not None:
                self.again_at = min(self.again_at or possible.next_at, possible.next_at)
        return chosen

    def _source(self, request: Request, verdict: Verdict) -> _Source | None:
        """Returns what decides which gangs may be evicted for the request; None if none may be.

        A request within its nominal amounts takes what has been borrowed of its resources from its
        cohorts. If its quotas are used up, it takes what lower bands hold in them.
        """
        table = self._use.table
        if verdict is Verdict.BORROWS:
            return None
        if verdict is not Verdict.STOPPED:
            if not self._borrowed:
                return None
            pools = {bound.pool for bound in table.bounds(request) if bound.pool is not None}
            return _Source(None, frozenset(pools)) if pools else None
        if not self._rules.preemption or request.band is Band.BATCH or not table.knows(request):
            return None
        accounts = frozenset((each.account, "") for each in self._use.shortages(request))
        source = _Source(request.band, accounts)
        return source if self._in_vain[source] < MOST_IN_VAIN else None

    def _possible_of(self, source: _Source) -> Possible:
        if source not in self._possible:
            found = self._lent(source) if source.band is None else self._lower(source, source.band)
            self._capacity.effort.searched(found)
            self._possible[source] = possible_victims(
                self._capacity.index, found, self._now, self._rules.min_run_time
            )
        return self._possible[source]

    def _lent(self, source: _Source) -> list[Placement]:
        """Returns the gangs that hold what is borrowed from these pools."""
        return [
            each.placement
            for each in self._borrowed.values()
            if any((each.cohort, resource) in source.of for resource in each.resources)
        ]

    def _lower(self, source: _Source, band: Band) -> list[Placement]:
        """Returns the gangs of lower bands that these accounts count."""
        lower = lower_bands(band)
        found = {
            placement.key: placement
            for number, _ in sorted(source.of)
            for placement in self._gangs.get(int(number), ())
            if placement.band in lower and placement.key in self._staying
        }
        return list(found.values())

    def _with_quotas(
        self, request: Request, chosen: list[Victim], ripe: list[Victim]
    ) -> list[Victim]:
        """Adds victims until the request is within its quotas. Returns none if it cannot be."""
        later, gone = self._use.copy(), {each.placement.key for each in chosen}
        for victim in chosen:
            later.remove(victim.placement)
        added: list[Victim] = []
        while later.verdict(request) is not Verdict.FITS:
            shortage = later.shortages(request)[0]
            helpful = (
                each
                for each in ripe
                if each.placement.key in self._staying
                and each.placement.key not in gone
                and self._helps(each.placement, shortage, request)
            )
            if (found := next(helpful, None)) is None:
                return []
            later.remove(found.placement)
            gone.add(found.placement.key)
            added.append(found)
        for each in sorted(added, key=lambda each: cost_of([each]), reverse=True):
            later.add(each.placement)  # a larger one that was chosen later may suffice
            if later.verdict(request) is Verdict.FITS:
                added = [other for other in added if other is not each]
            else:
                later.remove(each.placement)
        return [*chosen, *added]

    def _helps(self, placement: Placement, shortage: Shortage, request: Request) -> bool:
        """Returns whether the eviction of the gang makes the shortage smaller."""
        table = self._use.table
        if shortage.verdict is Verdict.RECLAIMS:
            lent = self._borrowed.get(placement.key)
            cohort = table.accounts[shortage.account].cohort
            return (
                lent is not None and lent.cohort == cohort and shortage.resource in lent.resources
            )
        counted = self._counted_in(shortage.account, shortage.resource)
        return placement.key in counted and placement.band in lower_bands(request.band)

    def _counted_in(self, account: int, resource: str) -> set[str]:
        """Returns the keys of the gangs that hold this resource of the account."""
        of = (account, resource)
        if of not in self._counted:
            self._counted[of] = {
                each.key for each in self._gangs.get(account, ()) if amounts_of(each).get(resource)
            }
        return self._counted[of]

    def _evict(self, victim: Victim, request: Request) -> None:
        placement = victim.placement
        borrowed = self._borrowed.pop(placement.key, None)
        self._capacity.release(placement)
        self._use.remove(placement)
        del self._staying[placement.key]
        numbers = seats_of(self._capacity.index, placement)
        for possible in self._possible.values():
            for number in numbers:
                held = possible.by_host.get(number, [])
                held[:] = [each for each in held if each.placement.key != placement.key]
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
