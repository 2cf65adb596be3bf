"""Packs the waiting gangs into slices, to compute how many slices of each group they need.

Within a band, gangs are packed by shape, the largest shape first. Capacity of coming slices is used
before new slices are requested. Groups are tried in the order of their priority numbers. Gangs that
do not fit in a group go to the next group that can serve them.

1. A gang over whole slices gets slices of exactly its number of hosts, all in one group.
2. A gang whose hosts share another attribute gets slices of several groups if no group is large
   enough.
3. A gang of one task shares a host with others, if the host has enough of every resource. Hosts
   that are alike and have the same free resources are counted, not examined one by one.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from iris.model.host.constraints import TPU_NAME
from iris.model.job.requests import Request, Shape
from iris.model.slice.scale_groups import ScaleGroup
from iris.model.slice.scaling import Demand
from iris.model.slice.status import SliceFacts
from iris.scheduling.placement.catalog import CandidateGroup, Catalog, Share

_Amounts = tuple[int, int, int, int]
#: A number that stands for infinity, such as the number of tasks without resource requests that fit
#: on one host.
_ENDLESS = 10**9


@dataclass(slots=True, eq=False)
class PlannedSlice:
    """A slice for waiting gangs: it exists, is coming, or is to be requested."""

    group: ScaleGroup
    zone: str
    #: The state of the slice; None if it has not been requested yet.
    facts: SliceFacts | None = None
    #: The first gang that is packed on the slice; None if no gang is.
    first: Request | None = None
    #: The number of gangs that are packed on the slice.
    gangs: int = 0
    #: True if the current decision of the autoscaler requests the slice.
    requested: bool = False
    #: True if the scheduler has the slice's hosts, and no task runs on them.
    idle: bool = False

    def take(self, request: Request, gangs: int) -> None:
        self.first = self.first or request
        self.gangs += gangs


#: Slices by zone.
Pool = dict[str, list[PlannedSlice]]


@dataclass(slots=True, eq=False)
class Supply:
    """A group's capacity for waiting gangs."""

    group: ScaleGroup
    #: The idle slices. No waiting gang fits on idle slices only, because the scheduler would have
    #: placed it. But a gang can use them together with other slices.
    idle: Pool = field(default_factory=dict)
    #: The slices that were requested but are not ready, and that no gang has taken yet. The slice
    #: that is expected to be ready first comes first.
    coming: Pool = field(default_factory=dict)
    #: How many new slices the group may request, now or when its present delay (such as a cooldown)
    #: is over.
    free: int = 0
    #: The zones in which new slices may be requested.
    zones: frozenset[str] = frozenset()
    #: The new slices that gangs need.
    wanted: list[PlannedSlice] = field(default_factory=list)

    def count(self, zones: Iterable[str]) -> int:
        """Returns the number of coming slices in these zones that no gang has taken."""
        return sum(len(self.coming.get(zone, ())) for zone in zones)

    def request(self, zone: str, slices: int) -> list[PlannedSlice]:
        """Adds new slices to `wanted`, and returns them."""
        requested = [PlannedSlice(self.group, zone) for _ in range(slices)]
        self.wanted += requested
        self.free -= slices
        return requested


@dataclass(slots=True)
class DemandResult:
    """The result of packing the waiting gangs of one shape on slices."""

    demand: Demand
    #: The groups that could each serve a gang without slices of other groups.
    candidates: list[CandidateGroup]
    #: Sets of slices, each with the number of gangs that are packed on it.
    served: list[tuple[tuple[PlannedSlice, ...], int]] = field(default_factory=list)
    #: The number of gangs for which no group has capacity.
    left: int = 0
    #: For gangs that no group can serve alone: the groups that could serve them together. All hosts
    #: of a part of such a gang must have the same value of an attribute. There is one tuple of
    #: groups for each possible value.
    mixed: list[tuple[Share, ...]] = field(default_factory=list)

    @property
    def options(self) -> list[CandidateGroup | Share]:
        """The groups that could serve the gangs, alone or together."""
        shares = {share.group.name: share for place in self.mixed for share in place}
        return [*self.candidates, *shares.values()]

    def since(self) -> datetime | None:
        """Returns when the oldest of the coming slices that the gangs wait for was requested."""
        facts = [
            each.facts
            for slices, _ in self.served
            for each in slices
            if each.facts is not None and not each.idle
        ]
        return min((each.requested_at for each in facts), default=None)


def pack(
    catalog: Catalog, supplies: dict[str, Supply], demands: Sequence[Demand]
) -> list[DemandResult]:
    """Packs all demands, and returns the results in the order of the demands. Adds the new slices
    that each group needs to its supply.
    """
    results = [
        DemandResult(demand, catalog.candidates(demand.example), left=demand.count)
        for demand in demands
    ]
    hosts = _OpenHosts()
    for result in sorted(
        results, key=lambda each: (each.demand.example.band.rank, -each.demand.example.weight)
    ):
        if result.candidates and result.candidates[0].slices:
            _pack_gangs(result, supplies)
        elif result.candidates:
            _pack_singles(result, supplies, hosts)
        elif mixed := catalog.mixed(result.demand.example):
            result.mixed = mixed
            _pack_mixed(result, supplies)
    return results


def _pack_gangs(result: DemandResult, supplies: dict[str, Supply]) -> None:
    """Packs gangs over whole slices: first on coming slices only, then also on new slices."""
    request = result.demand.example
    for new in (False, True):
        for candidate in result.candidates:
            supply = supplies[candidate.group.name]
            while result.left and (
                gangs := _whole_slices(supply, candidate, request, result.left, new)
            ):
                for slices in gangs:
                    for slice in slices:
                        slice.take(request, 1)
                    result.served.append((slices, 1))
                result.left -= len(gangs)


def _whole_slices(
    supply: Supply, candidate: CandidateGroup, request: Request, most: int, new: bool
) -> list[tuple[PlannedSlice, ...]]:
    """Returns slices of the group for at most `most` gangs, a complete set for each gang; empty if
    not even one gang fits.

    Args:
        new: whether the sets may contain new slices.
    """
    parts = 1 if request.group_by == TPU_NAME else request.groups
    each = parts * candidate.slices
    there = supply.count(candidate.zones) + (supply.free if new else 0)
    if not there:
        return []
    one_by_one = len(candidate.places) > 1 or (
        each > 1 and any(supply.idle.get(zone) for zone in candidate.zones)
    )
    most = 1 if one_by_one else min(most, there // candidate.slices)
    wanted = most * candidate.slices
    chosen: list[tuple[int, list[PlannedSlice], str]] = []
    # The scheduler would have placed the gang if it needed only idle slices. So at least one of its
    # slices is not idle.
    idle = each - 1
    for zones in candidate.places:
        have = _first(supply.idle, zones, min(candidate.slices, idle))
        idle -= len(have)
        have += _first(supply.coming, zones, wanted - len(have))
        lacking = wanted - len(have)
        zone = next((zone for zone in zones if zone in supply.zones), "")
        if not lacking or (new and zone):
            chosen.append((lacking, have, zone))
    chosen = sorted(chosen, key=lambda entry: entry[0])[:parts]
    if not wanted or len(chosen) < parts or sum(lacking for lacking, _, _ in chosen) > supply.free:
        return []
    found = []
    for lacking, have, zone in chosen:
        for slice in have:
            (supply.idle if slice.idle else supply.coming)[slice.zone].remove(slice)
        found += have + supply.request(zone, lacking)
    return [tuple(found[start : start + each]) for start in range(0, len(found), each)]


def _pack_mixed(result: DemandResult, supplies: dict[str, Supply]) -> None:
    """Packs gangs whose parts get slices of several groups, one gang after another."""
    request = result.demand.example
    while result.left and (slices := _mixed_slices(result.mixed, supplies, request)):
        for slice in slices:
            slice.take(request, 1)
        result.served.append((slices, 1))
        result.left -= 1


def _mixed_slices(
    places: Sequence[tuple[Share, ...]], supplies: dict[str, Supply], request: Request
) -> tuple[PlannedSlice, ...]:
    """Returns the complete set of slices for one gang that needs the fewest new slices; empty if
    the gang does not fit.
    """
    spent: Counter[str] = Counter()
    remaining = list(places)
    chosen: list[_Part] = []
    while remaining and len(chosen) < request.groups:
        options = [_part(place, supplies, spent, request.group_size) for place in remaining]
        fewest = min(
            range(len(options)),
            key=lambda n: sum(options[n].new.values()) if options[n].enough else _ENDLESS,
        )
        if not options[fewest].enough:
            return ()
        chosen.append(options[fewest])
        spent.update({name: count for (name, _), count in options[fewest].new.items()})
        del remaining[fewest]
    # The scheduler would have placed a gang that fits on idle slices only.
    if len(chosen) < request.groups or (
        not spent and all(slice.idle for part in chosen for slice in part.slices)
    ):
        return ()
    found = []
    for part in chosen:
        for slice in part.slices:
            supply = supplies[slice.group.name]
            (supply.idle if slice.idle else supply.coming)[slice.zone].remove(slice)
        found += part.slices
        for (name, zone), count in part.new.items():
            found += supplies[name].request(zone, count)
    return tuple(found)


class _Part(NamedTuple):
    """The slices for one part of a gang. The hosts of a part must have the same value of the
    attribute `Request.group_by`. A gang has `Request.groups` parts of equal size.
    """

    #: The existing slices that the part gets: idle ones, and requested ones that are not ready yet.
    slices: list[PlannedSlice]
    #: The number of new slices to request for this part of the gang, by group and zone.
    new: dict[tuple[str, str], int]
    #: Whether `slices` and the new slices in `new` together have enough hosts for the part.
    enough: bool


def _part(
    place: Iterable[Share], supplies: dict[str, Supply], spent: Counter[str], hosts: int
) -> _Part:
    """Returns the slices that would serve a part of a gang in this place.

    Args:
        spent: the number of new slices of each group that other parts of the gang get.
        hosts: the number of hosts that the part needs.
    """
    slices: list[PlannedSlice] = []
    new: dict[tuple[str, str], int] = {}
    for share in place:
        for pool in (supplies[share.group.name].idle, supplies[share.group.name].coming):
            some = _first(pool, share.zones, -(-max(0, hosts) // share.hosts))
            slices += some
            hosts -= len(some) * share.hosts
    for share in place:
        supply = supplies[share.group.name]
        zone = next((zone for zone in share.zones if zone in supply.zones), None)
        count = (
            min(-(-max(0, hosts) // share.hosts), max(0, supply.free - spent[share.group.name]))
            if zone
            else 0
        )
        if zone and count:
            new[share.group.name, zone] = count
            hosts -= count * share.hosts
    return _Part(slices, new, hosts <= 0)


def _first(pool: Pool, zones: Iterable[str], most: int) -> list[PlannedSlice]:
    """Returns at most `most` slices of the pool in these zones, in the order of the zones."""
    found: list[PlannedSlice] = []
    for zone in zones:
        found += pool.get(zone, [])[: most - len(found)]
    return found


class _OpenHosts:
    """The hosts on which single tasks were packed, by group and zone, then by free resources."""

    def __init__(self) -> None:
        self._hosts: dict[tuple[str, str], dict[_Amounts, list[PlannedSlice]]] = {}

    def fill(self, result: DemandResult, candidate: CandidateGroup, shape: Shape) -> None:
        """Packs as many waiting gangs as fit on the free resources of the group's slices that have
        gangs already.
        """
        for zone in candidate.zones:
            by_free = self._hosts.get((candidate.group.name, zone), {})
            for free in list(by_free):
                if not result.left:
                    return
                if each := _fitting(free, shape.amounts):
                    slices = by_free.pop(free)
                    used = min(len(slices), -(-result.left // each))
                    if slices[used:]:
                        by_free[free] = slices[used:]
                    self._put(by_free, slices[:used], free, each, result)

    def open(self, result: DemandResult, slices: list[PlannedSlice], shape: Shape) -> None:
        """Packs as many waiting gangs as fit on empty slices."""
        for slice in slices:
            free = slice.group.offers.vector
            each = _fitting(free, shape.amounts)
            by_free = self._hosts.setdefault((slice.group.name, slice.zone), {})
            used = min(slice.group.hosts, -(-result.left // each))
            self._put(by_free, [slice] * used, free, each, result)
            if used < slice.group.hosts:
                by_free.setdefault(free, []).extend([slice] * (slice.group.hosts - used))

    @staticmethod
    def _put(
        by_free: dict[_Amounts, list[PlannedSlice]],
        slices: list[PlannedSlice],
        free: _Amounts,
        each: int,
        result: DemandResult,
    ) -> None:
        """Packs `each` gangs on each of these hosts, and the rest of the gangs on the last host.

        Args:
            slices: the slice of each host. All hosts have the resources `free`.
        """
        request = result.demand.example
        full, rest = divmod(min(result.left, each * len(slices)), each)
        for some, count in ((slices[:full], each), (slices[full:], rest)):
            if some:
                by_free.setdefault(_less(free, request.shape.amounts, count), []).extend(some)
                result.served += [((slice,), count) for slice in some]
                result.left -= count * len(some)
            for slice in some:
                slice.take(request, count)


def _pack_singles(result: DemandResult, supplies: dict[str, Supply], hosts: _OpenHosts) -> None:
    """Packs single tasks: first on slices that are needed for other gangs, then on other coming
    slices, then on new slices.
    """
    shape = result.demand.example.shape
    for candidate in result.candidates:
        supply = supplies[candidate.group.name]
        hosts.fill(result, candidate, shape)
        if supply.count(candidate.zones):
            empty = _first(supply.coming, candidate.zones, _slices_for(result, candidate, shape))
            for slice in empty:
                supply.coming[slice.zone].remove(slice)
            hosts.open(result, empty, shape)
        if not result.left:
            return
    for candidate in result.candidates:
        supply = supplies[candidate.group.name]
        zone = (
            next((zone for zone in candidate.zones if zone in supply.zones), None)
            if supply.free
            else None
        )
        if zone is not None and result.left:
            hosts.open(
                result,
                supply.request(zone, min(supply.free, _slices_for(result, candidate, shape))),
                shape,
            )


def _slices_for(result: DemandResult, candidate: CandidateGroup, shape: Shape) -> int:
    """Returns how many empty slices of the group all remaining gangs need."""
    return -(
        -result.left
        // (_fitting(candidate.group.offers.vector, shape.amounts) * candidate.group.hosts)
    )


def _fitting(free: _Amounts, wanted: _Amounts) -> int:
    """Returns how many tasks fit on a host with these free resources."""
    most = _ENDLESS
    for there, each in zip(free, wanted, strict=True):
        if each and there < each * most:
            most = there // each
    return max(0, most)


def _less(free: _Amounts, wanted: _Amounts, times: int) -> _Amounts:
    return (
        free[0] - times * wanted[0],
        free[1] - times * wanted[1],
        free[2] - times * wanted[2],
        free[3] - times * wanted[3],
    )
