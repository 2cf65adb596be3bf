"""How many slices, and of which groups, the waiting gangs want.

Gangs of a band are packed largest first, by shape: what the slices on their way will offer is used before new ones are asked
for, groups come in the order of their priority numbers, and what a group may not have goes to the next one that can serve it.

1. A gang over whole slices gets slices of exactly its number of hosts, all in one group.
2. A gang of one shares a host with others, as far as everything that they want is there. Hosts that are alike, and have the same
   left, are counted, not looked at one by one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from iris.catalog import Able, Catalog
from iris.constraints import TPU_NAME
from iris.gangs import Request, Shape
from iris.scale_groups import ScaleGroup
from iris.scale_plan import Demand
from iris.slices import SliceFacts

_Amounts = tuple[int, int, int, int]
#: As good as any number: tasks that want nothing on one host.
_ENDLESS = 10**9


@dataclass(slots=True, eq=False)
class Berth:
    """A slice that gangs may count on: one that is there, on its way, or to be asked for."""

    group: ScaleGroup
    zone: str
    #: None: it has yet to be asked for.
    facts: SliceFacts | None = None
    #: One of those that are to go there, and how many.
    first: Request | None = None
    gangs: int = 0
    #: Whether it is asked for now.
    asked: bool = False

    #: Whether the scheduler has it, with nothing to do.
    idle: bool = False

    def take(self, request: Request, gangs: int) -> None:
        self.first = self.first or request
        self.gangs += gangs


#: Slices by zone.
Pool = dict[str, list[Berth]]


@dataclass(slots=True, eq=False)
class Supply:
    """What a group has to offer to those that wait."""

    group: ScaleGroup
    #: Slices with nothing to do: the scheduler had no use for them, but a gang that lacks others beside them has.
    idle: Pool = field(default_factory=dict)
    #: Slices on their way of which nobody wants anything yet, the first to come first.
    coming: Pool = field(default_factory=dict)
    #: How many new ones may be asked for, at once or when what holds them up has passed, and where.
    room: int = 0
    zones: frozenset[str] = frozenset()
    #: Those that are wanted.
    wanted: list[Berth] = field(default_factory=list)

    def count(self, zones: Iterable[str]) -> int:
        """How many are on their way there for nobody."""
        return sum(len(self.coming.get(zone, ())) for zone in zones)

    def ask(self, zone: str, slices: int) -> list[Berth]:
        """New slices."""
        asked = [Berth(self.group, zone) for _ in range(slices)]
        self.wanted += asked
        self.room -= slices
        return asked


@dataclass(slots=True)
class Fate:
    """What becomes of the gangs of one shape."""

    demand: Demand
    able: list[Able]
    #: The slices that gangs are to go to, and how many of them.
    served: list[tuple[tuple[Berth, ...], int]] = field(default_factory=list)
    #: Those for which no group has room.
    left: int = 0

    def since(self) -> datetime | None:
        """When the first of the slices that they wait for was asked for."""
        facts = [each.facts for berths, _ in self.served for each in berths if each.facts is not None and not each.idle]
        return min((each.requested_at for each in facts), default=None)


def pack(catalog: Catalog, supplies: dict[str, Supply], demands: Sequence[Demand]) -> list[Fate]:
    """The fates of those that wait, in their order; what they want of each group is left in its supply."""
    fates = [Fate(demand, catalog.able(demand.example), left=demand.count) for demand in demands]
    hosts = _OpenHosts()
    for fate in sorted(fates, key=lambda each: (each.demand.example.band.rank, -each.demand.example.weight)):
        if fate.able and fate.able[0].slices:
            _pack_gangs(fate, supplies)
        elif fate.able:
            _pack_singles(fate, supplies, hosts)
    return fates


def _pack_gangs(fate: Fate, supplies: dict[str, Supply]) -> None:
    """Gangs over whole slices: first those that are all on their way, then those that need new ones."""
    request = fate.demand.example
    for new in (False, True):
        for able in fate.able:
            supply = supplies[able.group.name]
            while fate.left and (gangs := _whole_slices(supply, able, request, fate.left, new)):
                for berths in gangs:
                    for berth in berths:
                        berth.take(request, 1)
                    fate.served.append((berths, 1))
                fate.left -= len(gangs)


def _whole_slices(supply: Supply, able: Able, request: Request, most: int, new: bool) -> list[tuple[Berth, ...]]:
    """Slices of the group for at most so many gangs, for each all that it wants; nothing when not even one is served."""
    parts = 1 if request.group_by == TPU_NAME else request.groups
    each = parts * able.slices
    there = supply.count(able.zones) + (supply.room if new else 0)
    if not there:
        return []
    one_by_one = len(able.places) > 1 or (each > 1 and any(supply.idle.get(zone) for zone in able.zones))
    most = 1 if one_by_one else min(most, there // able.slices)
    wanted = most * able.slices
    chosen: list[tuple[int, list[Berth], str]] = []
    # With all of its slices idle the scheduler would have placed it, so something keeps it from those.
    idle = each - 1
    for zones in able.places:
        have = _first(supply.idle, zones, min(able.slices, idle))
        idle -= len(have)
        have += _first(supply.coming, zones, wanted - len(have))
        lacking = wanted - len(have)
        zone = next((zone for zone in zones if zone in supply.zones), "")
        if not lacking or (new and zone):
            chosen.append((lacking, have, zone))
    chosen = sorted(chosen, key=lambda entry: entry[0])[:parts]
    if not wanted or len(chosen) < parts or sum(lacking for lacking, _, _ in chosen) > supply.room:
        return []
    found = []
    for lacking, have, zone in chosen:
        for berth in have:
            (supply.idle if berth.idle else supply.coming)[berth.zone].remove(berth)
        found += have + supply.ask(zone, lacking)
    return [tuple(found[start : start + each]) for start in range(0, len(found), each)]


def _first(pool: Pool, zones: Iterable[str], most: int) -> list[Berth]:
    found: list[Berth] = []
    for zone in zones:
        found += pool.get(zone, [])[: most - len(found)]
    return found


class _OpenHosts:
    """The hosts of slices on which gangs of one have been put, by what is left on them."""

    def __init__(self) -> None:
        self._hosts: dict[tuple[str, str], dict[_Amounts, list[Berth]]] = {}

    def fill(self, fate: Fate, able: Able, shape: Shape) -> None:
        """Put as many of those that wait as fit on what is left of the group's slices."""
        for zone in able.zones:
            by_room = self._hosts.get((able.group.name, zone), {})
            for room in list(by_room):
                if not fate.left:
                    return
                if each := _fitting(room, shape.amounts):
                    berths = by_room.pop(room)
                    used = min(len(berths), -(-fate.left // each))
                    if berths[used:]:
                        by_room[room] = berths[used:]
                    self._put(by_room, berths[:used], room, each, fate)

    def open(self, fate: Fate, berths: list[Berth], shape: Shape) -> None:
        """Put as many of those that wait as fit on slices that are empty."""
        for berth in berths:
            room = berth.group.resources.vector
            each = _fitting(room, shape.amounts)
            by_room = self._hosts.setdefault((berth.group.name, berth.zone), {})
            used = min(berth.group.hosts, -(-fate.left // each))
            self._put(by_room, [berth] * used, room, each, fate)
            if used < berth.group.hosts:
                by_room.setdefault(room, []).extend([berth] * (berth.group.hosts - used))

    @staticmethod
    def _put(by_room: dict[_Amounts, list[Berth]], berths: list[Berth], room: _Amounts, each: int, fate: Fate) -> None:
        """So many on each of these hosts, which have this room; on the last one what is left of them."""
        request = fate.demand.example
        full, rest = divmod(min(fate.left, each * len(berths)), each)
        for some, count in ((berths[:full], each), (berths[full:], rest)):
            if some:
                by_room.setdefault(_less(room, request.shape.amounts, count), []).extend(some)
                fate.served += [((berth,), count) for berth in some]
                fate.left -= count * len(some)
            for berth in some:
                berth.take(request, count)


def _pack_singles(fate: Fate, supplies: dict[str, Supply], hosts: _OpenHosts) -> None:
    """Gangs of one: on what is left of slices that are wanted anyway, on others that are on their way, on new ones."""
    shape = fate.demand.example.shape
    for able in fate.able:
        supply = supplies[able.group.name]
        hosts.fill(fate, able, shape)
        if supply.count(able.zones):
            empty = _first(supply.coming, able.zones, _slices_for(fate, able, shape))
            for berth in empty:
                supply.coming[berth.zone].remove(berth)
            hosts.open(fate, empty, shape)
        if not fate.left:
            return
    for able in fate.able:
        supply = supplies[able.group.name]
        zone = next((zone for zone in able.zones if zone in supply.zones), None) if supply.room else None
        if zone is not None and fate.left:
            hosts.open(fate, supply.ask(zone, min(supply.room, _slices_for(fate, able, shape))), shape)


def _slices_for(fate: Fate, able: Able, shape: Shape) -> int:
    """How many empty slices of the group would take all that are left."""
    return -(-fate.left // (_fitting(able.group.resources.vector, shape.amounts) * able.group.hosts))


def _fitting(room: _Amounts, wanted: _Amounts) -> int:
    """How many tasks fit on a host with this room."""
    most = _ENDLESS
    for there, each in zip(room, wanted, strict=True):
        if each and there < each * most:
            most = there // each
    return max(0, most)


def _less(room: _Amounts, wanted: _Amounts, times: int) -> _Amounts:
    return (
        room[0] - times * wanted[0],
        room[1] - times * wanted[1],
        room[2] - times * wanted[2],
        room[3] - times * wanted[3],
    )
