"""Tracks the free resources of every host during one scheduling pass, and chooses hosts for gangs.

Free resources are derived from the placements. Each gang that the pass places is deducted. Hosts
can be reserved for gangs that have waited too long.

The choice of hosts:

1. Hosts that meet more of the preferred constraints come first.
2. A single task with devices goes to the host with the tightest fit, so that whole hosts stay free
   for large tasks. Tasks without devices are spread: the least used host first, and hosts with
   devices last.
3. A gang of several tasks goes to the host group with the fewest hosts that have capacity, if they
   are enough, so that large groups stay whole.
"""

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence

from iris.model.job.requests import Placement, Request, Shape
from iris.scheduling.placement.effort import Effort
from iris.scheduling.placement.host_index import Candidates, HostIndex, covers
from iris.scheduling.placement.occupancy import Occupancy, seats_of

_Rank = tuple[int, int, float, int]
_Amounts = tuple[int, int, int, int]
#: Lists of amounts that do not fit, by the fields of a shape other than its amounts. Only the
#: smallest amounts are listed, because larger ones do not fit either.
_Smallest = dict[tuple[object, ...], list[_Amounts]]
#: The maximum length of a list in `_Smallest`: the smallest amounts (of devices, CPU, memory, disk)
#: that do not fit. Every request is compared with the whole list, and users could make it thousands
#: of entries long. Amounts that are dropped from a full list are compared with the hosts again.
MOST_SMALLEST = 50


class Capacity:
    """The free resources of each host, by the host's number in the `HostIndex`.

    Args:
        free: the amounts that are free on each host. The object keeps and changes them.
        effort: counts the work; None if the count is not needed.
    """

    def __init__(
        self, index: HostIndex, free: list[list[int]], effort: Effort | None = None
    ) -> None:
        self.index = index
        self.effort = effort or Effort()
        self.effort.looks += len(index.hosts)
        self.free = free
        #: The reserved hosts, each with a shape. Only gangs of this shape may be placed on the
        #: host.
        self.reserved: dict[int, Shape] = {}
        self._reserved_for: set[Shape] = set()
        #: For each shape of a single task: the hosts that meet its constraints, and a heap of those
        #: among them with enough capacity, the best host first.
        self._singles: dict[Shape, tuple[Candidates, list[tuple[_Rank, int]]]] = {}
        #: For each shape of a gang: a heap of the groups of hosts (with one value of the gang's
        #: `group_by` attribute) in which enough hosts have capacity, the best group first.
        self._groups: dict[Shape, list[tuple[int, int, str]]] = {}
        #: For each shape in `_groups`: the length of `_changed` when the shape's heap of host
        #: groups was last updated. The next `find` ranks the groups of later entries again.
        self._followed: dict[Shape, int] = {}
        #: The numbers of the hosts that were given to a request or reserved, in the order in which
        #: that happened.
        self._changed: list[int] = []
        #: For shapes that differ only in their amounts: the smallest amounts that did not fit.
        #: Until resources are released, larger amounts do not fit either.
        self._unfit: _Smallest = {}
        #: For shapes that differ only in their amounts: the smallest amounts for which too few
        #: hosts were left to reserve. For larger amounts, no hosts are reserved either, until the
        #: end of the pass.
        self._unreservable: _Smallest = {}

    @classmethod
    def of(
        cls, index: HostIndex, live: Iterable[Placement], effort: Effort | None = None
    ) -> "Capacity":
        """Returns the capacity that these placements leave."""
        return cls(index, Occupancy(index, live).free, effort)

    def without(self, gone: Iterable[Placement]) -> "Capacity":
        """Returns the capacity as it will be when these placements are gone, without reserved
        hosts.
        """
        later = Capacity(self.index, [list(free) for free in self.free], self.effort)
        for placement in gone:
            later.release(placement)
        return later

    def find(self, request: Request) -> list[int] | None:
        """Returns hosts for the gang, one for each task in the order of the tasks; None when the
        capacity does not suffice.
        """
        shape = request.shape
        # Hosts that are reserved for the shape itself were not available to the others.
        if _has_smaller(self._unfit, shape) and shape not in self._reserved_for:
            return None
        if request.group_by is not None:
            found = self._find_groups(request)
        else:
            number = self._find_one(request)
            found = None if number is None else [number]
        if found is None:
            _add(self._unfit, shape)
        return found

    def give(self, numbers: Iterable[int], request: Request) -> None:
        """Deducts the amounts of each task of the gang."""
        shape = request.shape
        for number in numbers:
            self._take(number, shape.amounts)
            self._rank_anew(number)
            self._changed.append(number)
            self.effort.looks += len(self._singles)

    def release(self, placement: Placement) -> None:
        """Adds the placement's amounts to the free amounts. The caller looks ahead: the placement
        itself still exists.
        """
        devices, cpu, memory, disk = placement.resources.vector
        for number in seats_of(self.index, placement):
            self._take(number, (-devices, -cpu, -memory, -disk))
        self._singles.clear()
        self._groups.clear()
        self._unfit.clear()

    def reserve(self, request: Request) -> list[int]:
        """Reserves for the gang's shape the hosts that lack the least to take the gang.

        Reserves nothing when there are not enough hosts, or when some are reserved for that shape
        already. Every pass chooses the hosts again. No other task is placed on them in the
        meantime, so their shortfall only shrinks.

        Returns:
            The reserved hosts.
        """
        shape = request.shape
        if shape in self._reserved_for or _has_smaller(self._unreservable, shape):
            return []
        candidates = self.index.candidates(request)
        chosen: list[int] = []
        if request.group_by is None:
            distances = self._distances(candidates.hosts, shape)
            chosen = [min(distances)[1]] if distances else []
        else:
            each = request.group_size
            self.effort.looks += len(candidates.groups)
            groups = []
            for name, members in candidates.groups.items():
                if len(members) == each and not self.reserved.keys().isdisjoint(members):
                    continue
                distances = self._distances(members, shape)
                if len(distances) >= each:
                    closest = sorted(distances)[:each] if len(distances) > each else distances
                    groups.append(
                        (
                            sum(distance for distance, _ in closest),
                            name,
                            [number for _, number in closest],
                        )
                    )
            if len(groups) >= request.groups:
                chosen = [
                    number
                    for _, _, numbers in sorted(groups)[: request.groups]
                    for number in numbers
                ]
        if not chosen:
            _add(self._unreservable, shape)  # a reservation lasts until the end of the pass
        self.reserve_hosts(chosen, shape)
        return chosen

    def reserve_hosts(self, numbers: list[int], shape: Shape) -> None:
        """Reserves the hosts for the shape, unless the shape has reserved hosts already. Hosts that
        are reserved for another shape are left out.
        """
        if shape not in self._reserved_for:
            self.keep_reserved({number: shape for number in numbers if number not in self.reserved})
            self._changed += numbers

    def keep_reserved(self, reserved: Mapping[int, Shape]) -> None:
        """Reserves these hosts, which are not reserved yet, for the given shapes."""
        self.reserved.update(reserved)
        self._reserved_for.update(reserved.values())

    def takes(self, number: int, shape: Shape) -> bool:
        """Returns true if one task of the shape fits on the host now."""
        return (
            covers(self.free[number], shape.amounts) and self.reserved.get(number, shape) == shape
        )

    def fitting(self, numbers: Collection[int], shape: Shape) -> list[int]:
        """Returns the hosts among these on which one task of the shape fits now."""
        devices, cpu, memory, disk = shape.amounts
        self.effort.looks += len(numbers)
        found = []
        # `covers`, inlined: a pass makes a hundred thousand of these checks, and most fail.
        for number in numbers:
            free = self.free[number]
            if (
                (free[0] >= devices or not devices)
                and (free[1] >= cpu or not cpu)
                and (free[2] >= memory or not memory)
                and (free[3] >= disk or not disk)
            ):
                found.append(number)
        return (
            [number for number in found if self.reserved.get(number, shape) == shape]
            if self.reserved
            else found
        )

    def _distances(self, numbers: Collection[int], shape: Shape) -> list[tuple[float, int]]:
        """Returns the shortfall of each host that is not reserved, with its number."""
        self.effort.looks += len(numbers)
        wanted = [(place, amount) for place, amount in enumerate(shape.amounts) if amount]
        distances = []
        for number in numbers:  # `shortfall`, inlined for speed
            if number not in self.reserved:
                free, missing = self.free[number], 0.0
                for place, amount in wanted:
                    has = free[place]
                    if has < amount:
                        missing += (amount - has) / amount if has > 0 else 1.0
                distances.append((missing, number))
        return distances

    # One host.

    def _find_one(self, request: Request) -> int | None:
        shape = request.shape
        if shape not in self._singles:
            candidates = self.index.candidates(request)
            heap = [
                (self._rank(n, shape, candidates), n) for n in self.fitting(candidates.hosts, shape)
            ]
            heapq.heapify(heap)
            self._singles[shape] = (candidates, heap)
        candidates, heap = self._singles[shape]
        # Tasks of other shapes may have been placed on a host since it was ranked. For tasks
        # without devices that makes the host worse, so it is ranked again here. For tasks with
        # devices `_rank_anew` ranked it again at that time.
        while heap:
            rank, number = heap[0]
            now = self._rank(number, shape, candidates) if self.takes(number, shape) else None
            if now == rank:
                return number
            self.effort.looks += 1
            heapq.heappop(heap)
            if now is not None and shape.device is None:
                heapq.heappush(heap, (now, number))
        return None

    def _rank(self, number: int, shape: Shape, candidates: Candidates) -> _Rank:
        """Returns the host's rank for the shape; a smaller rank is better."""
        free = self.free[number]
        disliked = candidates.dislikes.get(number, 0)
        if shape.device is not None:
            return (disliked, free[0], free[1], number)
        offers = self.index.hosts[number].resources
        return (
            disliked,
            int(offers.device is not None),
            -free[1] / max(1, offers.cpu_millis),
            -free[2],
        )

    def _rank_anew(self, number: int) -> None:
        """Ranks a host with devices again after a placement: with less free it is a better fit for
        shapes with devices.
        """
        if self.index.hosts[number].resources.device is None:
            return
        for shape, (candidates, heap) in self._singles.items():
            if (
                shape.device is not None
                and number in candidates.members
                and self.takes(number, shape)
            ):
                heapq.heappush(heap, (self._rank(number, shape, candidates), number))

    # Groups of hosts.

    def _find_groups(self, request: Request) -> list[int] | None:
        shape = request.shape
        each = request.group_size
        candidates = self.index.candidates(request)
        heap = self._groups.get(shape)
        if heap is None:
            heap = [
                entry
                for name in candidates.groups
                if (entry := self._group_rank(name, shape, candidates, each))
            ]
            heapq.heapify(heap)
            self._groups[shape] = heap
        else:
            # A group with fewer free hosts is a better fit, as long as it has enough. So groups
            # that lost hosts are ranked again.
            self.effort.looks += len(self._changed) - self._followed[shape]
            lost = {n for n in self._changed[self._followed[shape] :] if n in candidates.members}
            for name in sorted(
                {self.index.group_of(n, request) for n in lost} & candidates.groups.keys()
            ):
                if entry := self._group_rank(name, shape, candidates, each):
                    heapq.heappush(heap, entry)
        self._followed[shape] = len(self._changed)
        chosen: dict[str, tuple[int, int, str]] = {}
        while heap and len(chosen) < request.groups:
            entry = heapq.heappop(heap)
            # An entry with another rank is out of date.
            if entry == self._group_rank(entry[2], shape, candidates, each):
                chosen[entry[2]] = entry
        for entry in chosen.values():
            heapq.heappush(heap, entry)
        if len(chosen) < request.groups:
            return None
        return [n for name in chosen for n in self._best_of(name, shape, candidates, each)[1]]

    def _group_rank(
        self, name: str, shape: Shape, candidates: Candidates, each: int
    ) -> tuple[int, int, str] | None:
        fitting, best = self._best_of(name, shape, candidates, each)
        if len(best) < each:
            return None
        return (sum(candidates.dislikes.get(n, 0) for n in best), fitting, name)

    def _best_of(
        self, name: str, shape: Shape, candidates: Candidates, each: int
    ) -> tuple[int, list[int]]:
        """Returns how many of the group's hosts have capacity, and which of them a gang would get:
        the hosts that meet most preferred constraints, in the order of the group.
        """
        fitting = self.fitting(candidates.groups[name], shape)
        if not candidates.dislikes or len(fitting) <= each:
            return len(fitting), fitting[:each]
        best = set(sorted(fitting, key=lambda number: candidates.dislikes.get(number, 0))[:each])
        return len(fitting), [number for number in fitting if number in best]

    def _take(self, number: int, amounts: _Amounts) -> None:
        free = self.free[number]
        free[0] -= amounts[0]
        free[1] -= amounts[1]
        free[2] -= amounts[2]
        free[3] -= amounts[3]


def shortfall(there: Sequence[int], wanted: _Amounts) -> float:
    """Returns how much a host lacks for the task: the sum of the missing fractions, 0 when the task
    fits.
    """
    missing = 0.0
    for place in (0, 1, 2, 3):
        has, amount = there[place], wanted[place]
        if has < amount and amount:
            missing += (amount - has) / amount if has > 0 else 1.0
    return missing


def _has_smaller(smallest: _Smallest, shape: Shape) -> bool:
    """Returns true if there is an entry for a shape that differs only in its amounts and needs no
    more of any resource.
    """
    return any(_at_most(each, shape.amounts) for each in smallest.get((*shape[:2], *shape[3:]), ()))


def _add(smallest: _Smallest, shape: Shape) -> None:
    """Adds the amounts of the shape, and removes larger ones."""
    found = smallest.setdefault((*shape[:2], *shape[3:]), [])
    found[:] = [shape.amounts, *(each for each in found if not _at_most(shape.amounts, each))][
        :MOST_SMALLEST
    ]


def _at_most(these: _Amounts, those: _Amounts) -> bool:
    return (
        these[0] <= those[0]
        and these[1] <= those[1]
        and these[2] <= those[2]
        and these[3] <= those[3]
    )
