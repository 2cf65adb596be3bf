"""Finds the scale groups and zones that could serve a request. Temporary limits, such as a used-up
quota, do not count here.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from iris.model.host.constraints import SCALE_GROUP, TPU_NAME, TPU_WORKER_ID, Constraint, written
from iris.model.host.hosts import Host
from iris.model.job.requests import Request, Shape
from iris.model.slice.scale_groups import ScaleGroup
from iris.scheduling.placement.host_index import REMEMBERED_SHAPES, HostIndex

#: The limit on shapes for which the catalog caches the first scale group that could serve them.
#: Each costs a few hundred bytes.
REMEMBERED_FIRST = 20_000


class CandidateGroup(NamedTuple):
    """A scale group that could serve a request."""

    group: ScaleGroup
    #: The group's zones in which its hosts meet all required constraints of the request. Zones that
    #: meet more preferred constraints come first, then the order of `ScaleGroup.zones` counts.
    zones: tuple[str, ...]
    #: The zones, grouped by the value of the attribute that the hosts of one part of a gang share.
    #: A single task, or a gang over whole slices, has one entry with all zones.
    places: tuple[tuple[str, ...], ...]
    #: The number of whole slices that the gang takes in one entry of `places`; 0 for a single task,
    #: which may share a host with others.
    slices: int


class Share(NamedTuple):
    """One of several scale groups whose slices together could serve a part of a gang."""

    group: ScaleGroup
    #: The group's zones with suitable hosts, in the order of `ScaleGroup.zones`. All these hosts
    #: have one value of the gang's `group_by` attribute, as all hosts of one part of the gang must.
    zones: tuple[str, ...]
    #: The number of suitable hosts of each slice.
    hosts: int


class Catalog:
    """The scale groups, in the order in which they are tried for a request."""

    def __init__(self, groups: Iterable[ScaleGroup] = ()) -> None:
        self.groups = sorted(groups, key=lambda group: (group.priority, group.name))
        self._by_number = [group for group in self.groups for _ in group.zones]
        #: The groups that could serve a shape. Cached, because every batch of requests needs them,
        #: until the configuration changes.
        self._candidates: dict[Shape, list[CandidateGroup]] = {}
        #: For each shape: the name of the scale group that is tried first; None if no group could
        #: serve the shape. Cached, because every evaluation of the autoscaler needs it for every
        #: waiting shape.
        self._first: dict[Shape, str | None] = {}
        self._hosts: dict[tuple[str, str, int], Host] = {}
        self._zones: dict[tuple[str, tuple[str, ...], str | None], tuple[tuple[str, ...], int]] = {}

    def candidates(self, request: Request) -> list[CandidateGroup]:
        """Returns the groups that could serve the request, in the order in which they are tried.

        The order is by priority. For a task without devices, groups without devices come before all
        others.
        """
        found = self._candidates.get(request.shape)
        if found is None:
            if len(self._candidates) >= REMEMBERED_SHAPES:
                self._candidates.clear()
                self._zones.clear()
            found = self._candidates[request.shape] = self._find(request)
        return found

    def first_group(self, request: Request) -> str | None:
        """Returns the name of the group that is tried first; None when no group could serve the
        request.
        """
        if request.shape not in self._first:
            if len(self._first) >= REMEMBERED_FIRST:
                self._first.clear()
            self._first[request.shape] = next(
                (candidate.group.name for candidate in self.candidates(request)), None
            )
        return self._first[request.shape]

    def mixed(self, request: Request, index: HostIndex | None = None) -> list[tuple[Share, ...]]:
        """Returns the shares of groups that could together serve the parts of a gang which no group
        could serve alone.

        The result has an entry for each value of the attribute that the hosts of a part share; it
        is empty if the groups together are too small. They may still be too small for several
        parts, because each slice of a group can be used only once.

        Args:
            index: hosts that exist. Hosts of no scale group count in addition to new slices.
        """
        if request.group_by in (None, TPU_NAME):
            return []
        of_all = self.all_hosts
        joined: dict[str, list[int]] = {}
        if index is not None:
            known = {group.name for group in self.groups}
            numbers = index.matching(request, index.large_enough(request))
            joined = index.grouped(
                request, (n for n in numbers if index.facts(n).get(SCALE_GROUP) not in known)
            )
        by_value = of_all.grouped(request, of_all.matching(request, of_all.large_enough(request)))
        shares = {value: self._shares(members) for value, members in by_value.items()}
        there = {
            value: len(joined.get(value, ()))
            + sum(share.hosts * share.group.max_slices for share in shares.get(value, ()))
            for value in {**shares, **joined}
        }
        places = [value for value, hosts in there.items() if hosts >= request.group_size]
        each = {
            share.group.name: share.hosts * share.group.max_slices
            for value in places
            for share in shares.get(value, ())
        }
        total = sum(each.values()) + sum(len(joined.get(value, ())) for value in places)
        if len(places) < request.groups or total < request.tasks:
            return []
        return [shares.get(value, ()) for value in places]

    def fits_slices_of_others(self, request: Request) -> bool:
        """Returns whether the gang fits slices that are created for other jobs or for `min_slices`,
        although none is created for this gang.

        A slice is created only for a gang that needs all its hosts, and all slices of a gang are
        created in one group.
        """
        if request.group_by != TPU_NAME:
            return False
        suitable = {
            self.group_of(number).name: self.group_of(number)
            for number in self.host_index.large_enough(request)
        }
        large = (
            each
            for each in suitable.values()
            if each.hosts >= request.group_size and self.zones(each, request)
        )
        return sum(group.max_slices for group in large) >= request.groups

    def creators(self, request: Request, index: HostIndex) -> list[str]:
        """Returns the names of the groups whose new slices could serve the request, alone or
        together with the hosts of the index.
        """
        alone = [each.group.name for each in self.candidates(request)]
        return alone or list(
            dict.fromkeys(each.group.name for place in self.mixed(request, index) for each in place)
        )

    def _shares(self, numbers: Iterable[int]) -> tuple[Share, ...]:
        """Returns the share of each group that has one of these hosts of `all_hosts`."""
        zones: dict[str, Counter[str]] = {}
        for number in numbers:
            group, zone = self._slots[number]
            zones.setdefault(group.name, Counter())[zone] += 1
        return tuple(
            Share(
                group,
                tuple(zone for zone in group.zones if zone in zones[group.name]),
                max(zones[group.name].values()),
            )
            for group in self.groups
            if group.name in zones and group.max_slices
        )

    @cached_property
    def host_index(self) -> HostIndex:
        """The first host of a new slice of each group in each of its zones. These hosts have no
        ids, because they do not exist.
        """
        return HostIndex(self.host(group, zone) for group in self.groups for zone in group.zones)

    @cached_property
    def all_hosts(self) -> HostIndex:
        """All hosts of a new slice of each group in each of its zones, for constraints on the
        worker id.
        """
        places = ((group, zone) for group in self.groups for zone in group.zones)
        return HostIndex(
            self.host(group, zone, worker)
            for group, zone in places
            for worker in range(group.hosts)
        )

    @cached_property
    def _slots(self) -> list[tuple[ScaleGroup, str]]:
        """The group and zone of each host of `all_hosts`."""
        return [
            (group, zone)
            for group in self.groups
            for zone in group.zones
            for _ in range(group.hosts)
        ]

    def group_of(self, number: int) -> ScaleGroup:
        """Returns the group of the host with this number in `host_index`."""
        return self._by_number[number]

    def _find(self, request: Request) -> list[CandidateGroup]:
        large = sorted(self.host_index.large_enough(request))
        groups = {group.name: group for group in (self.group_of(number) for number in large)}
        found = [
            each
            for group in groups.values()
            if (each := self._candidate(group, request)) is not None
        ]
        plain = request.resources.device is None
        if plain or any(constraint.preferred for constraint in request.constraints):
            found.sort(
                key=lambda each: (
                    plain and each.group.resources.device is not None,
                    each.group.priority,
                    self._meeting(each.group, request)[1],
                )
            )
        return found

    def zones(self, group: ScaleGroup, request: Request) -> tuple[str, ...]:
        """Returns the group's zones in which its hosts meet all required constraints. Zones that
        meet most preferences come first.
        """
        return self._meeting(group, request)[0]

    def host(self, group: ScaleGroup, zone: str, worker: int = 0) -> Host:
        """Returns a host of a slice that does not exist yet."""
        key = (group.name, zone, worker)
        if key not in self._hosts:
            self._hosts[key] = Host(
                id="",
                slice_id="",
                incarnation="",
                resources=group.offers,
                attributes=group.host_attributes("", zone, worker),
                accept_cpu_jobs=group.accept_cpu_jobs,
            )
        return self._hosts[key]

    def _candidate(self, group: ScaleGroup, request: Request) -> CandidateGroup | None:
        zones = self.zones(group, request)
        if not zones or not group.max_slices:
            return None
        if request.group_by is None:
            return CandidateGroup(group, zones, (zones,), 0)
        if request.group_by == TPU_NAME:
            if group.hosts != request.group_size or group.max_slices < request.groups:
                return None
            return CandidateGroup(group, zones, (zones,), request.groups)
        slices = -(-request.group_size // group.hosts)
        places: dict[str, tuple[str, ...]] = {}
        for zone in zones:
            value = written(self.host(group, zone).facts[request.group_by])
            places[value] = (*places.get(value, ()), zone)
        if len(places) < request.groups or group.max_slices < slices * request.groups:
            return None
        return CandidateGroup(group, zones, tuple(places.values()), slices)

    def _meeting(self, group: ScaleGroup, request: Request) -> tuple[tuple[str, ...], int]:
        """Returns the zones, and how many preferred constraints the best zone fails."""
        key = (group.name, request.shape.constraints, request.group_by)
        if key not in self._zones:
            required = request.required
            preferred = [constraint for constraint in request.constraints if constraint.preferred]
            zones = [
                zone
                for zone in group.zones
                if self._meets(group, zone, required, request.group_by is not None)
            ]
            dislikes = {
                zone: sum(not each.holds(self.host(group, zone).facts) for each in preferred)
                for zone in zones
            }
            zones.sort(key=dislikes.__getitem__)
            self._zones[key] = (tuple(zones), dislikes[zones[0]] if zones else 0)
        return self._zones[key]

    def _meets(
        self, group: ScaleGroup, zone: str, required: Sequence[Constraint], all_hosts: bool
    ) -> bool:
        if not required:
            return True
        workers = range(group.hosts if on_worker_id(required) else 1)
        meet = (
            all(each.holds(self.host(group, zone, worker).facts) for each in required)
            for worker in workers
        )
        return all(meet) if all_hosts else any(meet)


def on_worker_id(required: Iterable[Constraint]) -> list[Constraint]:
    """Returns the constraints that hosts of one slice meet differently."""
    return [constraint for constraint in required if constraint.key == TPU_WORKER_ID]


#: The catalog of a cluster whose hosts all join by themselves.
NO_SCALE_GROUPS = Catalog()
