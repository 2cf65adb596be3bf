"""Which scale groups could serve whom, and where, whatever stands in their way now."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from iris.constraints import TPU_NAME, TPU_WORKER_ID, Attribute, Constraint
from iris.fleet import covers
from iris.gangs import Request
from iris.hosts import Host
from iris.scale_groups import ScaleGroup


class Able(NamedTuple):
    """A group that could serve a request."""

    group: ScaleGroup
    #: Where, the preferred first.
    zones: tuple[str, ...]
    #: What each part of the gang has to share: the zones by its values, in the same order. One for a gang of one or over slices.
    places: tuple[tuple[str, ...], ...]
    #: Whole slices for each part; 0: its task shares a host with others.
    slices: int


class Catalog:
    """The groups, those to be asked first first."""

    def __init__(self, groups: Iterable[ScaleGroup]) -> None:
        self.groups = sorted(groups, key=lambda group: (group.priority, group.name))
        self._hosts: dict[tuple[str, str, int], Host] = {}
        self._of_kind: dict[tuple[str | None, str], list[ScaleGroup]] = {}
        self._zones: dict[tuple[str, tuple[str, ...], str | None], tuple[tuple[str, ...], int]] = {}

    def able(self, request: Request) -> list[Able]:
        """The groups that could serve it, those to be asked first first: by priority, and for a task without devices those
        without devices before all others."""
        found = [each for group in self.large_enough(request) if (each := self._able(group, request)) is not None]
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

    def of_kind(self, request: Request) -> list[ScaleGroup]:
        """Those with hosts of the right kind."""
        kind = (request.shape.device, request.shape.variants)
        if kind not in self._of_kind:
            self._of_kind[kind] = [g for g in self.groups if self.host(g, g.zones[0]).may_run(request.resources)]
        return self._of_kind[kind]

    def large_enough(self, request: Request) -> list[ScaleGroup]:
        """Those of them whose empty hosts have all that one task wants."""
        return [group for group in self.of_kind(request) if covers(group.resources.vector, request.shape.amounts)]

    def zones(self, group: ScaleGroup, request: Request) -> tuple[str, ...]:
        """Those of the group's zones in which its hosts meet all that is required, those that are liked best first."""
        return self._meeting(group, request)[0]

    def host(self, group: ScaleGroup, zone: str, worker: int = 0) -> Host:
        """A host of a slice that does not exist yet."""
        key = (group.name, zone, worker)
        if key not in self._hosts:
            self._hosts[key] = Host(
                id="",
                slice_id="",
                incarnation="",
                resources=group.resources,
                attributes=group.host_attributes("", zone, worker),
                accept_cpu_jobs=group.accept_cpu_jobs,
            )
        return self._hosts[key]

    def _able(self, group: ScaleGroup, request: Request) -> Able | None:
        zones = self.zones(group, request)
        if not zones or not group.max_slices:
            return None
        if request.group_by is None:
            return Able(group, zones, (zones,), 0)
        if request.group_by == TPU_NAME:
            if group.hosts != request.group_size or group.max_slices < request.groups:
                return None
            return Able(group, zones, (zones,), request.groups)
        slices = -(-request.group_size // group.hosts)
        places: dict[Attribute, tuple[str, ...]] = {}
        for zone in zones:
            value = self.host(group, zone).facts[request.group_by]
            places[value] = (*places.get(value, ()), zone)
        if len(places) < request.groups or group.max_slices < slices * request.groups:
            return None
        return Able(group, zones, tuple(places.values()), slices)

    def _meeting(self, group: ScaleGroup, request: Request) -> tuple[tuple[str, ...], int]:
        """The zones, and how many preferred constraints the best of them fails."""
        key = (group.name, request.shape.constraints, request.group_by)
        if key not in self._zones:
            required = request.required
            preferred = [constraint for constraint in request.constraints if constraint.preferred]
            zones = [zone for zone in group.zones if self._meets(group, zone, required, request.group_by is not None)]
            dislikes = {zone: sum(not each.holds(self.host(group, zone).facts) for each in preferred) for zone in zones}
            zones.sort(key=dislikes.__getitem__)
            self._zones[key] = (tuple(zones), dislikes[zones[0]] if zones else 0)
        return self._zones[key]

    def _meets(self, group: ScaleGroup, zone: str, required: Sequence[Constraint], all_hosts: bool) -> bool:
        if not required:
            return True
        one_of_them = any(constraint.key == TPU_WORKER_ID for constraint in required)
        workers = range(group.hosts if one_of_them else 1)
        meet = (all(each.holds(self.host(group, zone, worker).facts) for each in required) for worker in workers)
        return all(meet) if all_hosts else any(meet)
