"""Indexes the cluster's hosts: which hosts are closed, and which could serve a request if they were
empty.

The candidates of a shape stay the same until the hosts change, so they are computed once for each
shape.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from iris.model.host.constraints import SCALE_GROUP, TPU_WORKER_ID, Attribute, Constraint, written
from iris.model.host.hosts import ClosedBy, Closure, Host, fault_of
from iris.model.job.requests import Request, Shape

#: The maximum number of shapes whose candidate hosts are cached; each shape costs some bytes per
#: host.
REMEMBERED_SHAPES = 500


class Candidates(NamedTuple):
    """The hosts that could serve a request if they were empty, by their numbers in the
    `HostIndex`.
    """

    hosts: list[int]
    members: frozenset[int]
    #: The suitable hosts of each group that has enough of them for the part of the gang that one
    #: group runs, in the order of worker ids; empty if the request does not ask for groups of
    #: hosts.
    groups: dict[str, list[int]]
    #: The number of preferred constraints that each host does not satisfy; empty if the request has
    #: none.
    dislikes: dict[int, int]


class HostIndex:
    """All hosts of the cluster. It is immutable: every change of the hosts makes a new one."""

    def __init__(
        self,
        hosts: Iterable[Host] = (),
        closed: Mapping[str, Closure] | None = None,
        paused_groups: Mapping[str, str] | None = None,
    ) -> None:
        self.hosts = tuple(hosts)
        self._closed = dict(closed or {})
        self._paused_groups = dict(paused_groups or {})
        self.number = {host.id: number for number, host in enumerate(self.hosts)}
        self._open = [self.closed(host) is None for host in self.hosts]
        self._alike: dict[object, list[int]] = {}
        for number, host in enumerate(self.hosts):
            self._alike.setdefault(
                (host.resources.kind, host.resources.vector, host.accept_cpu_jobs), []
            ).append(number)
        self._facts: dict[int, Mapping[str, Attribute]] = {}
        self._candidates: dict[Shape, Candidates] = {}
        #: The cached candidates, by the constraints and grouping of a shape and the sizes of hosts
        #: that are large enough for it. Two shapes with different amounts often share an entry,
        #: because a fleet has few sizes of hosts.
        self._distinct: dict[tuple[object, ...], Candidates] = {}

    def closed(self, host: Host) -> str | None:
        """Returns why the host takes no new tasks; None when it takes them."""
        if (closure := self._closed.get(host.id)) is not None:
            return str(closure)
        if (quarantine := fault_of(host)) is not None:
            return str(quarantine)
        group = host.attributes.get(SCALE_GROUP)
        if group is not None and (reason := self._paused_groups.get(str(group))) is not None:
            return f"scale group {group} is paused: {reason}".removesuffix(": ")
        return None

    @cached_property
    def slices_of_groups(self) -> list[str]:
        """The slices with hosts that belong to scale groups, in order."""
        return sorted({host.slice_id for host in self.hosts if SCALE_GROUP in host.attributes})

    @cached_property
    def faults(self) -> dict[str, Closure]:
        """The hosts with a fault, by id, each with its quarantine."""
        found = ((host.id, fault_of(host)) for host in self.hosts if host.fault)
        return {host_id: closure for host_id, closure in found if closure is not None}

    def is_leaving(self, host: Host) -> bool:
        """Returns whether the host is closed because its slice is being deleted."""
        closure = self._closed.get(host.id)
        return closure is not None and closure.by is ClosedBy.LEAVING

    def facts(self, number: int) -> Mapping[str, Attribute]:
        """Returns the attributes of the host that constraints are checked against."""
        if number not in self._facts:
            self._facts[number] = self.hosts[number].facts
        return self._facts[number]

    def candidates(self, request: Request) -> Candidates:
        """Returns the hosts that could serve the request if nothing else ran."""
        found = self._candidates.get(request.shape)
        if found is None:
            if len(self._candidates) >= REMEMBERED_SHAPES:
                self._candidates.clear()
                self._distinct.clear()
            found = self._candidates[request.shape] = self._find(request)
        return found

    def feasible(self, request: Request) -> bool:
        """Returns true if the request could be served if nothing else ran."""
        candidates = self.candidates(request)
        return (
            bool(candidates.hosts)
            if request.group_by is None
            else len(candidates.groups) >= request.groups
        )

    def of_kind(self, request: Request) -> list[int]:
        """Returns the hosts, open or closed, with the right kind of device."""
        return [
            n
            for alike in self._alike.values()
            if self.hosts[alike[0]].may_run(request.resources)
            for n in alike
        ]

    def large_enough(self, request: Request) -> list[int]:
        """Returns the hosts of the right kind, open or closed, that are large enough for one
        task.
        """
        return [n for alike in self._kinds_large_enough(request) for n in alike]

    def matching(self, request: Request, numbers: Iterable[int]) -> list[int]:
        """Returns the hosts among these that meet every required constraint and, if the request is
        grouped, belong to a group.
        """
        required = request.required
        if not required:
            return list(numbers)
        return [n for n in numbers if _meets(self.facts(n), required)]

    def group_of(self, number: int, request: Request) -> str:
        """Returns the name of the host's group. The host must have the attribute that the request
        groups by.
        """
        assert request.group_by is not None
        value = self.facts(number)[request.group_by]
        # A leading quote keeps strings apart from other values: `true` and `"true"` are two groups.
        return f'"{value}' if isinstance(value, str) else written(value)

    def grouped(self, request: Request, numbers: Iterable[int]) -> dict[str, list[int]]:
        """Returns the hosts by group, ordered by worker id."""
        groups: dict[str, list[int]] = {}
        for n in numbers:
            groups.setdefault(self.group_of(n, request), []).append(n)
        for members in groups.values():
            members.sort(key=self._by_worker)
        return groups

    def _kinds_large_enough(self, request: Request) -> list[list[int]]:
        return [
            alike
            for alike in self._alike.values()
            if self.hosts[alike[0]].may_run(request.resources)
            and covers(self.hosts[alike[0]].resources.vector, request.shape.amounts)
        ]

    def _find(self, request: Request) -> Candidates:
        kinds = self._kinds_large_enough(request)
        decisive = (
            request.shape.constraints,
            request.group_by,
            request.group_size,
            *(alike[0] for alike in kinds),
        )
        if decisive not in self._distinct:
            self._distinct[decisive] = self._select(request, (n for alike in kinds for n in alike))
        return self._distinct[decisive]

    def _select(self, request: Request, large: Iterable[int]) -> Candidates:
        hosts = sorted(n for n in self.matching(request, large) if self._open[n])
        groups: dict[str, list[int]] = {}
        if request.group_by is not None:
            each = request.group_size
            groups = {
                name: members
                for name, members in self.grouped(request, hosts).items()
                if len(members) >= each
            }
        preferred = [constraint for constraint in request.constraints if constraint.preferred]
        dislikes = (
            {n: sum(not each.holds(self.facts(n)) for each in preferred) for n in hosts}
            if preferred
            else {}
        )
        return Candidates(hosts, frozenset(hosts), groups, dislikes)

    def _by_worker(self, number: int) -> tuple[int, str]:
        worker: Attribute = self.hosts[number].attributes.get(TPU_WORKER_ID, 0)
        return (worker if isinstance(worker, int) else 0, self.hosts[number].id)


def _meets(facts: Mapping[str, Attribute], required: list[Constraint]) -> bool:
    return all(constraint.holds(facts) for constraint in required)


def covers(there: Sequence[int], wanted: tuple[int, int, int, int]) -> bool:
    """Returns true if there is enough of every resource."""
    # A free amount is negative if a host came back with less than its tasks use. A task that needs
    # none of that resource fits.
    return (
        (there[0] >= wanted[0] or not wanted[0])
        and (there[1] >= wanted[1] or not wanted[1])
        and (there[2] >= wanted[2] or not wanted[2])
        and (there[3] >= wanted[3] or not wanted[3])
    )
