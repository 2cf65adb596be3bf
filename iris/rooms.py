"""What is free on every host during one pass: derived from what is placed, deducted as the pass gives, and kept back for those
that have waited too long.

Where a gang goes:

1. One task with devices goes to the host it fills best, so that whole hosts stay free for large ones. One without is spread: the
   least used host first, and hosts with devices last.
2. A gang of several goes to the group that has the fewest hosts with room, if they are enough: large groups stay whole.
3. Before both: hosts that meet more of the preferred constraints.
"""

import heapq
from collections.abc import Iterable, Sequence

from iris.fleet import Candidates, Fleet, covers
from iris.gangs import Placement, Request, Shape

_Rank = tuple[int, int, float, int]
_Amounts = tuple[int, int, int, int]


class Rooms:
    """The free amounts of each host, by its number in the fleet."""

    def __init__(self, fleet: Fleet, live: Iterable[Placement]) -> None:
        self.fleet = fleet
        self.free: list[list[int]] = [list(host.resources.vector) for host in fleet.hosts]
        for placement in live:
            for number in seats_of(fleet, placement):
                self._take(number, placement.resources.vector)
        #: For whom a host is kept: only gangs of that shape may still go there.
        self.kept: dict[int, Shape] = {}
        #: The shapes of single tasks, each with its candidates and those with room among them, the best first.
        self._singles: dict[Shape, tuple[Candidates, list[tuple[_Rank, int]]]] = {}
        #: The shapes of gangs, each with its groups that have enough hosts with room, the best first, …
        self._groups: dict[Shape, list[tuple[int, int, str]]] = {}
        #: … and how far it has followed what changed: the hosts that were given or kept, one after the other.
        self._followed: dict[Shape, int] = {}
        self._changed: list[int] = []

    def without(self, gone: Iterable[Placement]) -> "Rooms":
        """The same as it will be when these placements are gone; nothing is kept there for anybody."""
        rooms = Rooms(self.fleet, ())
        rooms.free = [list(free) for free in self.free]
        for placement in gone:
            rooms.give_back(placement)
        return rooms

    def find(self, request: Request) -> list[int] | None:
        """Hosts for the gang, one for each task in the order of the tasks; None when there is no room."""
        if request.group_by is not None:
            return self._find_groups(request)
        number = self._find_one(request)
        return None if number is None else [number]

    def give(self, numbers: Iterable[int], request: Request) -> None:
        """Deduct what each task of the gang takes."""
        shape = request.shape
        for number in numbers:
            self._take(number, shape.amounts)
            self._rank_anew(number)
            self._changed.append(number)

    def give_back(self, placement: Placement) -> None:
        """As if the placement were gone: for looking ahead."""
        devices, cpu, memory, disk = placement.resources.vector
        for number in seats_of(self.fleet, placement):
            self._take(number, (-devices, -cpu, -memory, -disk))
        self._singles.clear()
        self._groups.clear()

    def keep(self, request: Request) -> list[int]:
        """Keep the hosts that are closest to having room for the gang for its shape alone. None, when there are not enough, or
        when some are kept for that shape already.

        Which these are is worked out anew in every pass. Nothing new is placed on them meanwhile, so the distance only shrinks.
        """
        shape, free = request.shape, self.free
        if shape in self.kept.values():
            return []
        candidates = self.fleet.candidates(request)
        chosen: list[int] = []
        if request.group_by is None:
            distances = [(shortfall(free[n], shape.amounts), n) for n in candidates.hosts if n not in self.kept]
            chosen = [min(distances)[1]] if distances else []
        else:
            each = request.group_size
            groups = []
            for name, members in candidates.groups.items():
                distances = [(shortfall(free[n], shape.amounts), n) for n in members if n not in self.kept]
                if len(distances) >= each:
                    closest = sorted(distances)[:each] if len(distances) > each else distances
                    groups.append((sum(distance for distance, _ in closest), name, [number for _, number in closest]))
            if len(groups) >= request.groups:
                chosen = [number for _, _, numbers in sorted(groups)[: request.groups] for number in numbers]
        self.keep_these(chosen, shape)
        return chosen

    def keep_these(self, numbers: list[int], shape: Shape) -> None:
        """Keep the hosts for the shape alone, unless some are kept for it already; and none that is kept for another."""
        if shape not in self.kept.values():
            self.kept = dict.fromkeys(numbers, shape) | self.kept
            self._changed += numbers

    def takes(self, number: int, shape: Shape) -> bool:
        """Whether one task of the shape fits on the host now."""
        return covers(self.free[number], shape.amounts) and self.kept.get(number, shape) == shape

    def fitting(self, numbers: Iterable[int], shape: Shape) -> list[int]:
        """Those of the hosts on which one task of the shape fits now."""
        devices, cpu, memory, disk = shape.amounts
        found = []
        for number in numbers:  # `covers`, written out: a pass asks this a hundred thousand times, mostly in vain
            free = self.free[number]
            if (
                (free[0] >= devices or not devices)
                and (free[1] >= cpu or not cpu)
                and (free[2] >= memory or not memory)
                and (free[3] >= disk or not disk)
            ):
                found.append(number)
        return [number for number in found if self.kept.get(number, shape) == shape] if self.kept else found

    # One host.

    def _find_one(self, request: Request) -> int | None:
        shape = request.shape
        if shape not in self._singles:
            candidates = self.fleet.candidates(request)
            heap = [(self._rank(n, shape, candidates), n) for n in self.fitting(candidates.hosts, shape)]
            heapq.heapify(heap)
            self._singles[shape] = (candidates, heap)
        candidates, heap = self._singles[shape]
        # Other shapes may have taken from a host since it was ranked. For tasks without devices that made it worse, so it is
        # ranked anew when it comes up; for the others it was ranked anew then.
        while heap:
            rank, number = heap[0]
            now = self._rank(number, shape, candidates) if self.takes(number, shape) else None
            if now == rank:
                return number
            heapq.heappop(heap)
            if now is not None and shape.device is None:
                heapq.heappush(heap, (now, number))
        return None

    def _rank(self, number: int, shape: Shape, candidates: Candidates) -> _Rank:
        """Smaller is better."""
        free = self.free[number]
        disliked = candidates.dislikes.get(number, 0)
        if shape.device is not None:
            return (disliked, free[0], free[1], number)
        offers = self.fleet.hosts[number].resources
        return (disliked, int(offers.device is not None), -free[1] / max(1, offers.cpu_millis), -free[2])

    def _rank_anew(self, number: int) -> None:
        """Being taken from makes a host a better fit for shapes that want devices: they are told at once."""
        if self.fleet.hosts[number].resources.device is None:
            return
        for shape, (candidates, heap) in self._singles.items():
            if shape.device is not None and number in candidates.members and self.takes(number, shape):
                heapq.heappush(heap, (self._rank(number, shape, candidates), number))

    # Groups of hosts.

    def _find_groups(self, request: Request) -> list[int] | None:
        shape = request.shape
        each = request.group_size
        candidates = self.fleet.candidates(request)
        heap = self._groups.get(shape)
        if heap is None:
            heap = [entry for name in candidates.groups if (entry := self._group_rank(name, shape, candidates, each))]
            heapq.heapify(heap)
            self._groups[shape] = heap
        else:
            # Losing hosts makes a group a better fit, as long as it has enough: those that lost some are ranked anew.
            lost = {n for n in self._changed[self._followed[shape] :] if n in candidates.members}
            for name in sorted({self.fleet.group_of(n, request) for n in lost} & candidates.groups.keys()):
                if entry := self._group_rank(name, shape, candidates, each):
                    heapq.heappush(heap, entry)
        self._followed[shape] = len(self._changed)
        chosen: dict[str, tuple[int, int, str]] = {}
        while heap and len(chosen) < request.groups:
            entry = heapq.heappop(heap)
            if entry == self._group_rank(entry[2], shape, candidates, each):  # or else the group has been ranked anew
                chosen[entry[2]] = entry
        for entry in chosen.values():
            heapq.heappush(heap, entry)
        if len(chosen) < request.groups:
            return None
        return [n for name in chosen for n in self.fitting(candidates.groups[name], shape)[:each]]

    def _group_rank(self, name: str, shape: Shape, candidates: Candidates, each: int) -> tuple[int, int, str] | None:
        fitting = self.fitting(candidates.groups[name], shape)
        if len(fitting) < each:
            return None
        disliked = sum(candidates.dislikes.get(n, 0) for n in fitting[:each])
        return (disliked, len(fitting), name)

    def _take(self, number: int, amounts: _Amounts) -> None:
        free = self.free[number]
        free[0] -= amounts[0]
        free[1] -= amounts[1]
        free[2] -= amounts[2]
        free[3] -= amounts[3]


def seats_of(fleet: Fleet, placement: Placement) -> list[int]:
    """The hosts on which the placement holds something: those of its seats whose incarnation is still there."""
    numbers = []
    for seat in placement.seats:
        number = fleet.number.get(seat.host_id)
        if number is not None and fleet.hosts[number].incarnation == seat.incarnation:
            numbers.append(number)
    return numbers


def shortfall(there: Sequence[int], wanted: _Amounts) -> float:
    """How far a host is from having room for the task: the sum of the missing shares, 0 when it has."""
    missing = 0.0
    for place in (0, 1, 2, 3):
        has, amount = there[place], wanted[place]
        if has < amount and amount:
            missing += (amount - has) / amount if has > 0 else 1.0
    return missing
