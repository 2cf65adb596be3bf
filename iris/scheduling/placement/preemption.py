"""Chooses the gangs to evict for gangs of higher bands.

1. Only a gang of a strictly higher band evicts, and a batch gang never does. Gangs of one band
   never evict each other.
2. No gang is evicted for a gang that fits now, or that will fit once the gangs that are being
   evicted have stopped.
3. A victim is evicted whole, once, and not before it has run for `Rules.min_run_time`.
4. Gangs of the lowest band are chosen first, then gangs of the least weight, then gangs that
   started last, so that the least work is lost.
5. Victims are chosen only if the gang of the higher band fits on the hosts that they free.
"""

from collections.abc import Container, Iterable
from datetime import datetime
from typing import NamedTuple

from iris.model.frozen import Frozen
from iris.model.job.requests import Placement, Request, Shape
from iris.model.job.spec import Band
from iris.model.rules import Rules
from iris.scheduling.placement.capacity import Capacity
from iris.scheduling.placement.counted import Counted
from iris.scheduling.placement.host_index import HostIndex
from iris.scheduling.placement.occupancy import seats_of
from iris.scheduling.placement.queue import Queue
from iris.scheduling.placement.recent_use import Lately
from iris.scheduling.placement.service_order import Turns
from iris.scheduling.placement.turns import give_turns
from iris.scheduling.placement.usage import Usage
from iris.scheduling.placement.victims import Possible, Victim, possible_victims, victims_for
from iris.scheduling.quotas.gate import QuotaGate
from iris.scheduling.quotas.use import QuotaUse

#: The maximum number of gangs for which one pass searches victims. A gang without possible victims
#: on its candidate hosts does not count. The cost of each search grows with the number of possible
#: victims. The next pass continues with the other gangs.
MOST_SEARCHES = 6
#: The most work of one search for gangs to evict, without its preparation. A look is the work to
#: examine one host (`Effort`). This much work takes half a second. The next pass continues with the
#: other requests.
MAX_LOOKS = 1_500_000

#: The bands whose gangs each band may evict.
_LOWER = {band: frozenset(each for each in Band if each.rank > band.rank) for band in Band}
#: The bands whose gangs may evict others.
_EVICTING_BANDS = tuple(band for band in Band if band is not Band.BATCH)


def lower_bands(band: Band) -> frozenset[Band]:
    """Returns the bands whose gangs a gang of this band may evict, unless it is a batch gang."""
    return _LOWER[band]


class Eviction(Frozen):
    """A placed gang that has to leave its hosts: it is to be evicted, or its hosts are gone."""

    key: str
    owner: str
    #: Why the gang has to stop its programs; empty if it does not have to.
    reason: str = ""
    #: The hosts of the gang, as (host, incarnation), whose machines no longer exist. Their programs
    #: are dead.
    gone: tuple[tuple[str, str], ...] = ()
    #: Why the slices of the hosts in `gone` ended.
    why_gone: str = ""

    def after(self, earlier: "Eviction | None") -> "Eviction":
        """Returns the one notice that replaces both this notice and an earlier one of the same gang
        that was not sent yet.
        """
        if earlier is None:
            return self
        return self.model_copy(
            update={
                "reason": self.reason or earlier.reason,
                "gone": tuple(dict.fromkeys((*earlier.gone, *self.gone))),
                "why_gone": self.why_gone or earlier.why_gone,
            }
        )


class Evictions(NamedTuple):
    """The result of a search for victims."""

    victims: list[Eviction]
    #: The earliest time at which a further gang may be evicted for a waiting request, because the
    #: gang has then run for `Rules.min_run_time`; None if no request waits for such a time.
    again_at: datetime | None
    #: The shapes for which no victims were found.
    fruitless: set[Shape]
    #: Whether all waiting requests were examined.
    complete: bool

    def with_others(self, other: "Evictions") -> "Evictions":
        """Returns the results of both searches."""
        times = [each for each in (self.again_at, other.again_at) if each is not None]
        return Evictions(
            [*self.victims, *other.victims],
            min(times, default=None),
            self.fruitless | other.fruitless,
            complete=self.complete and other.complete,
        )


def evictions(
    index: HostIndex,
    live: Iterable[Placement],
    waiting: Queue,
    evicting: Iterable[str],
    now: datetime,
    rules: Rules,
    capacity: Capacity | None = None,
    passed_over: Container[Shape] = (),
    lately: Lately | None = None,
    quotas: QuotaUse | None = None,
) -> Evictions:
    """Returns the gangs to evict for the requests that a pass has left waiting.

    Args:
        evicting: the keys of the placements that are being evicted already and have not stopped
            yet.
        capacity: the capacity that the live placements leave, if the caller has it already.
        passed_over: the shapes for which the earlier, incomplete searches found no victims.
        lately: the recent use of each user; None if there is none.
        quotas: what `live` holds of the quotas; None if there are none. Nobody is evicted for a
            gang that quotas stop, or that would borrow.
    """
    if not rules.preemption or not any(waiting.any_in(band) for band in _EVICTING_BANDS):
        return Evictions([], None, set(), complete=True)
    live, going = list(live), set(evicting)
    staying = [placement for placement in live if placement.key not in going]
    lowest = max((placement.band.rank for placement in staying), default=0)
    if not any(waiting.any_in(band) for band in Band if band.rank < lowest):
        return Evictions([], None, set(), complete=True)
    # Placements that are being evicted count as gone.
    capacity = (capacity or Capacity.of(index, live)).without(
        placement for placement in live if placement.key in going
    )
    effort = capacity.effort
    effort.began(index, live, waiting.lines)
    search = _Search(capacity, staying, now, rules)
    counted = Counted(search, index, effort, MAX_LOOKS)
    team_of, gate = {}, None
    if quotas is not None:
        team_of = quotas.table.team_of
        effort.checked_quotas(waiting.lines)
        gate = QuotaGate(quotas.without(live, going), may_borrow=False)
    usage = Usage.for_turns(live, waiting, now - rules.owed_after, lately, team_of)
    ended = give_turns(counted, waiting, capacity, usage, _EVICTING_BANDS, passed_over, gate)
    return Evictions(
        search.victims, search.again_at, search.fruitless, complete=ended and search.complete
    )


class _Search:
    """Chooses gangs to evict for the requests that do not fit.

    Args:
        capacity: the capacity without the placements that are being evicted. The victims are
            released in it.
        staying: the placements that are not being evicted.
    """

    def __init__(
        self, capacity: Capacity, staying: list[Placement], now: datetime, rules: Rules
    ) -> None:
        self.victims: list[Eviction] = []
        self.again_at: datetime | None = None
        self.fruitless: set[Shape] = set()
        #: False once a request was skipped because of `MOST_SEARCHES`.
        self.complete = True
        self._capacity = capacity
        self._staying = {placement.key: placement for placement in staying}
        self._min_run_time = rules.min_run_time
        self._now = now
        self._searches = 0
        #: For each band, the placements of lower bands.
        self._lower: dict[Band, list[Placement]] = {}
        #: For each band, the gangs that its requests may evict now.
        self._possible: dict[Band, Possible] = {}

    def at_limit(self) -> bool:
        return False

    def choose(self, request: Request, turns: Turns) -> list[int] | None:
        hosts = self._capacity.find(request)
        if hosts is None and self._may_evict(request):
            if self._searches == MOST_SEARCHES:
                self.complete = False
                return None
            if self._evict_for(request):
                hosts = self._capacity.find(request)
        if hosts is None:
            self.fruitless.add(request.shape)
        return hosts

    def _may_evict(self, request: Request) -> bool:
        """Returns whether a gang of a lower band holds hosts, and the request fits on empty
        hosts.
        """
        if request.band not in self._lower:
            self._lower[request.band] = [
                placement
                for placement in self._staying.values()
                if placement.band in _LOWER[request.band]
            ]
        return bool(self._lower[request.band]) and self._capacity.index.feasible(request)

    def _evict_for(self, request: Request) -> bool:
        """Chooses the victims for the request and releases them; returns whether there are any."""
        possible = self._victims_of(request.band)
        chosen: list[Victim] = []
        if not self._capacity.index.candidates(request).members.isdisjoint(possible.by_host):
            self._searches += 1
            self._capacity.effort.searched(possible.by_host)
            chosen = victims_for(self._capacity, request, possible.by_host)
        if not chosen and possible.next_at is not None:
            self.again_at = min(self.again_at or possible.next_at, possible.next_at)
        for victim in chosen:
            placement = victim.placement
            self._capacity.release(placement)
            for number in seats_of(self._capacity.index, placement):
                possible.by_host[number].remove(victim)
            del self._staying[placement.key]
            self.victims.append(
                Eviction(key=placement.key, owner=placement.owner, reason=_reason(request))
            )
        return bool(chosen)

    def _victims_of(self, band: Band) -> Possible:
        """Returns the gangs that gangs of this band may evict."""
        if band not in self._possible:
            self._possible[band] = self._same_as_earlier(band) or possible_victims(
                self._capacity.index, self._lower[band], self._now, self._min_run_time
            )
            self._capacity.effort.searched(self._possible[band].victims)
        return self._possible[band]

    def _same_as_earlier(self, band: Band) -> Possible | None:
        """Returns what a higher band may evict, without what it has evicted, if this band may evict
        the same.
        """
        for higher, possible in self._possible.items():
            staying = sum(each.key in self._staying for each in self._lower[higher])
            if staying == len(self._lower[band]):
                return possible
        return None


def _reason(request: Request) -> str:
    return f"evicted: {request.task} of band {request.band} needs its place"
