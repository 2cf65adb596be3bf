"""A small cloud and cluster on virtual time, for the autoscaler's decision alone: the real `plan`,
`learn` and scheduling pass, and slices that boot, fail, are taken back and find no stock as a test
says.

It runs from event to event; between them nothing happens, as in the workflow that it stands for.
What must never happen is checked after every decision.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from iris.autoscaling.failure_memory import learn
from iris.autoscaling.plan import plan
from iris.model.host.hosts import Host
from iris.model.host.resources import Resources
from iris.model.job.requests import Placement, Request
from iris.model.slice.provisioning import SliceFault
from iris.model.slice.scale_groups import Pace, ScaleGroup, SliceType
from iris.model.slice.scaling import Create, Demand, Drain, Memory, ScalePlan, Wanted
from iris.model.slice.status import SliceFacts, SliceState, move_slice
from iris.scheduling.placement.host_index import HostIndex
from iris.scheduling.placement.place import place
from iris.scheduling.placement.queue import Queue
from tests.builders import NOON, TPU_HOST, at, some
from tests.strategies import PATIENT

S = SliceState
A, B, C = "europe-west4-a", "europe-west4-b", "us-east1-c"


def a_group(name: str = "tpu", **changes: Any) -> ScaleGroup:
    """Slices of four hosts with four chips each, at most four of them."""
    settings = {
        "type": SliceType.TPU_VM,
        "zones": (A,),
        "hosts": 4,
        "resources": TPU_HOST,
        "accelerator_variant": "v5litepod-16",
        "max_slices": 4,
    }
    return ScaleGroup(name=name, **settings | changes)


def a_cpu_group(name: str = "cpu", **changes: Any) -> ScaleGroup:
    """Machines of eight cores, at most four of them."""
    settings = {
        "type": SliceType.GCE_VM,
        "hosts": 1,
        "resources": some(cpu=8, memory=32, disk=100),
        "machine_type": "n2-standard-8",
    }
    return a_group(name, **settings | {"accelerator_variant": ""} | changes)


def a_slice_of(
    group: ScaleGroup, name: str = "s1", state: SliceState = S.READY, **changes: Any
) -> SliceFacts:
    """A slice that was asked for an hour ago, and is ready for half an hour if it is."""
    ready = at(-1800) if state in (S.READY, S.DRAINING) else None
    settings = {
        "zone": group.zones[0],
        "requested_at": at(-3600),
        "changed_at": at(-1800),
        "ready_at": ready,
    }
    return SliceFacts(**{"id": name, "group": group.name, "state": state} | settings | changes)


def slices_of(group: ScaleGroup, *states: SliceState, **changes: Any) -> list[SliceFacts]:
    """Slices s1, s2 and so on in these states."""
    return [a_slice_of(group, f"s{i}", state, **changes) for i, state in enumerate(states, start=1)]


def decide(
    groups: ScaleGroup | Iterable[ScaleGroup],
    slices: Iterable[SliceFacts] = (),
    *demands: Request | tuple[int, Request],
    idle: dict[str, datetime] | None = None,
    broken: dict[str, str] | None = None,
    paused: tuple[str, ...] = (),
    memory: Memory | None = None,
    now: datetime = NOON,
    as_of: datetime | None = None,
) -> ScalePlan:
    """The plan for these groups, slices and those that wait, each alone or with how many there
    are.
    """
    waiting = tuple(
        (
            Demand(count=each[0], example=each[1])
            if isinstance(each, tuple)
            else Demand(count=1, example=each)
        )
        for each in demands
    )
    wanted = Wanted(
        demands=waiting, idle=idle or {}, broken=broken or {}, paused=paused, as_of=as_of or now
    )
    return plan(
        [groups] if isinstance(groups, ScaleGroup) else list(groups),
        list(slices),
        wanted,
        memory or Memory(),
        now,
    )


def asked(made: ScalePlan) -> Counter[tuple[str, str]]:
    """How many slices it asks for, by group and zone."""
    return Counter((create.group, create.zone) for create in made.creates)


def asked_groups(made: ScalePlan) -> dict[str, int]:
    """How many slices it asks for, by group."""
    return dict(Counter(create.group for create in made.creates))


def given_back(made: ScalePlan) -> list[str]:
    """The slices that it gives back, in its order."""
    return [drain.slice_id for drain in made.drains]


@dataclass
class Cloud:
    """How the platform behaves, as a test says."""

    #: Why there will be no slice, asked when the platform answers; None: there will.
    refuses: Callable[[ScaleGroup, str, datetime], SliceFault | None] = lambda group, zone, now: (
        None
    )
    #: Whether a slice that is being made fails in the end.
    breaks: Callable[[ScaleGroup], SliceFault | None] = lambda group: None
    #: What each host of a slice that boots offers.
    finds: Callable[[ScaleGroup], Resources] = lambda group: group.offers
    #: After how long a slice that is ready is taken back; None: never.
    takes_back: Callable[[ScaleGroup], timedelta | None] = lambda group: None
    answer: timedelta = timedelta(seconds=2)
    boot: timedelta = timedelta(seconds=90)
    delete: timedelta = timedelta(seconds=5)


@dataclass
class World:
    """The cluster; `run` goes on until nothing happens any more, or until the time given."""

    groups: list[ScaleGroup]
    cloud: Cloud = field(default_factory=Cloud)
    now: datetime = NOON
    memory: Memory = field(default_factory=Memory)
    slices: dict[str, SliceFacts] = field(default_factory=dict)
    waiting: dict[str, Request] = field(default_factory=dict)
    live: dict[str, Placement] = field(default_factory=dict)
    #: When each gang began that has had hosts, and in which zones.
    began: dict[str, tuple[datetime, set[str]]] = field(default_factory=dict)
    created: int = 0
    deleted: int = 0
    decisions: int = 0
    last: ScalePlan = field(default_factory=ScalePlan)

    def __post_init__(self) -> None:
        self._events: list[tuple[datetime, int, Callable[[], None]]] = []
        self._numbers = count(1)
        self._hosts: dict[str, tuple[Host, ...]] = {}
        self._idle: dict[str, datetime] = {}
        self._runs: dict[str, tuple[Request, timedelta]] = {}
        #: Groups that gave something back because it was idle when nobody waited, and have heard of
        #: nothing new since.
        self._calm: set[str] = set()

    def submit(
        self,
        request: Request,
        runs: timedelta = timedelta(minutes=20),
        after: timedelta = timedelta(0),
    ) -> None:
        """The gang comes so much later, and then runs for so long."""
        self._runs[request.key] = (request, runs)
        self._at(after, lambda: self._arrives(request))

    def run(self, until: datetime | None = None) -> None:
        """From event to event."""
        while True:
            self._schedule()
            self._decide()
            times = [self._events[0][0]] if self._events else []
            times += [self.last.next_at] if self.last.next_at else []
            if not times or (until is not None and min(times) > until):
                self.now = until or self.now
                return
            self.now = min(times)
            while self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()

    def states(self) -> Counter[SliceState]:
        return Counter(each.state for each in self.slices.values())

    def _decide(self) -> None:
        demands = [
            Demand(count=number, example=example)
            for example, number in _by_shape(self.waiting.values())
        ]
        idle = {id: since for id, since in self._idle.items() if self.slices[id].state is S.READY}
        wanted = Wanted(demands=tuple(demands), idle=idle, as_of=self.now)
        before = self.memory
        made = self.last = plan(
            self.groups, list(self.slices.values()), wanted, self.memory, self.now
        )
        self.memory = made.memory
        self.decisions += 1
        assert made.next_at is None or made.next_at > self.now
        for drain in made.drains:
            self._drain(drain)
        for create in made.creates:
            remembered = before.groups.get(create.group)
            assert (
                remembered is None
                or remembered.quota_until is None
                or remembered.quota_until <= self.now
            )
            assert (
                remembered is None
                or remembered.backoff_until is None
                or remembered.backoff_until <= self.now
            )
            assert create.group not in self._calm, (
                f"{create} just after an idle one was given back, and nothing new is wanted"
            )
            self._create(create)
        for (
            group
        ) in self.groups:  # a reload may have left more than it allows, but nothing adds to them
            if any(create.group == group.name for create in made.creates):
                assert (
                    sum(each.group == group.name for each in self.slices.values())
                    <= group.max_slices
                )
        if made.creates or made.drains:  # as in the workflow: what it did is news to it
            self._at(timedelta(milliseconds=100), lambda: None)

    def _create(self, create: Create) -> None:
        self.created += 1
        id = f"{create.group}-{self.created}"
        self.slices[id] = SliceFacts(
            id=id,
            group=create.group,
            zone=create.zone,
            state=S.REQUESTED,
            requested_at=self.now,
            changed_at=self.now,
        )
        self._at(self.cloud.answer, lambda: self._answered(id))

    def _drain(self, drain: Drain) -> None:
        facts = self.slices[drain.slice_id]
        if drain.idle_since is not None:
            if facts.id in self._idle and self._idle[facts.id] <= drain.idle_since:
                if not self.waiting:
                    self._calm.add(facts.group)
                self._becomes(facts.id, S.DRAINING)
                self._give_back(facts.id)
        elif drain.deadline is not None or facts.state is not S.READY:
            self._bounce(facts.id)
            self._give_back(facts.id)
        else:
            self._becomes(facts.id, S.DRAINING)
            if facts.id in self._idle:
                self._give_back(facts.id)

    def _answered(self, id: str) -> None:
        facts = self.slices[id]
        if facts.state is not S.REQUESTED:
            return
        group = self._group(facts)
        if (fault := self.cloud.refuses(group, facts.zone, self.now)) is not None:
            self._fails(id, fault)
            return
        self._becomes(id, S.PROVISIONING)
        self._at(self.cloud.boot, lambda: self._booted(id))

    def _booted(self, id: str) -> None:
        facts = self.slices[id]
        if facts.state is not S.PROVISIONING:
            return
        group = self._group(facts)
        if (fault := self.cloud.breaks(group)) is not None:
            self._fails(id, fault)
            return
        self._becomes(id, S.BOOTSTRAPPING)
        offers = self.cloud.finds(group)
        hosts = group.slice_hosts(id, facts.zone, "first")
        self._hosts[id] = tuple(host.model_copy(update={"resources": offers}) for host in hosts)
        self._idle[id] = self.now
        self._becomes(id, S.READY, ready_at=self.now, offers=offers)
        if (life := self.cloud.takes_back(group)) is not None:
            self._at(life, lambda: self._fails(id, SliceFault.PREEMPTED))

    def _fails(self, id: str, fault: SliceFault) -> None:
        if id in self.slices and self.slices[id].state not in (S.DELETING, S.FAILED):
            self._calm.discard(self.slices[id].group)
            self._bounce(id)
            self._becomes(id, S.FAILED, fault=fault)
            self._give_back(id)

    def _give_back(self, id: str) -> None:
        self._hosts.pop(id, None)
        self._idle.pop(id, None)
        self._becomes(id, S.DELETING)
        self._at(self.cloud.delete, lambda: self._gone(id))

    def _gone(self, id: str) -> None:
        self.deleted += 1
        del self.slices[id]

    def _becomes(self, id: str, state: SliceState, **changes: Any) -> None:
        before = self.slices[id]
        move_slice(before.state, state)
        after = self.slices[id] = before.model_copy(
            update={"state": state, "changed_at": self.now} | changes
        )
        self.memory = learn(self.memory, self._known(after), after, before, self.now)

    def _schedule(self) -> None:
        hosts = [
            host
            for id, some in self._hosts.items()
            if self.slices[id].state is S.READY
            for host in some
        ]
        queue = Queue(self.waiting.values())
        for placed in place(HostIndex(hosts), self.live.values(), queue, self.now, PATIENT).placed:
            request = self.waiting.pop(placed.key)
            self.live[placed.key] = placed
            ids = {seat.slice_id for seat in placed.seats}
            for id in ids:
                self._idle.pop(id, None)
            self.began[request.task] = (self.now, {self.slices[id].zone for id in ids})
            _, runs = self._runs[placed.key]
            self._at(runs, lambda placed=placed: self._ends(placed))

    def _ends(self, placed: Placement) -> None:
        if self.live.get(placed.key) is placed:
            del self.live[placed.key]
            self._runs.pop(placed.key)
            self._rest(placed)

    def _rest(self, placed: Placement) -> None:
        """Slices with nothing left to do."""
        busy = {seat.slice_id for each in self.live.values() for seat in each.seats}
        for id in sorted({seat.slice_id for seat in placed.seats} - busy):
            if id in self._hosts:
                self._idle[id] = self.now
                if self.slices[id].state is S.DRAINING:
                    self._give_back(id)

    def _bounce(self, id: str) -> None:
        """Who ran there wants other hosts."""
        self._hosts.pop(id, None)
        for placed in list(self.live.values()):
            if any(seat.slice_id == id for seat in placed.seats):
                del self.live[placed.key]
                request, runs = self._runs.pop(placed.key)
                again = request.model_copy(update={"key": f"{request.key}+"})
                self._runs[again.key] = (again, runs)
                self._arrives(again)
                self._rest(placed)

    def _arrives(self, request: Request) -> None:
        self.waiting[request.key] = request
        self._calm.clear()

    def _known(self, facts: SliceFacts) -> ScaleGroup | None:
        return next((group for group in self.groups if group.name == facts.group), None)

    def _group(self, facts: SliceFacts) -> ScaleGroup:
        group = self._known(facts)
        assert group is not None
        return group

    def _at(self, after: timedelta, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + after, next(self._numbers), what))


def _by_shape(waiting: Iterable[Request]) -> list[tuple[Request, int]]:
    found: dict[Any, list[Request]] = {}
    for request in waiting:
        found.setdefault(request.shape, []).append(request)
    return [(alike[0], len(alike)) for alike in found.values()]


#: Quick, so that a day has many of everything.
BRISK = Pace(scale_up_delay=timedelta(seconds=20), scale_down_delay=timedelta(minutes=2))
