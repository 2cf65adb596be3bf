"""Which hosts an observer gives up over time, on services that know more or less of their
workers.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.taskqueue.v1 import PollerInfo
from temporalio.api.worker.v1 import WorkerHeartbeat, WorkerInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueResponse, ListWorkersResponse
from temporalio.client import ActivityFailureError
from temporalio.service import RPCError, RPCStatusCode

from iris.activities.control import observe
from iris.activities.control.observe import FleetObserver
from iris.autoscaling.liveness import (
    OBSERVE_INTERVAL,
    PING_TIMEOUT,
    POLL_LIMIT,
    REPORT_INTERVAL,
    Silent,
    lost_hosts,
    next_observation,
)
from iris.messages.autoscaler import ObserveFleet
from iris.messages.scheduler import HostView, Snapshot
from iris.model import names
from iris.model.slice.status import SliceState, SliceStatus
from tests.builders import a_host

#: How long the service holds a poll that finds no task.
POLL = 60.0
NEVER = float("inf")


@dataclass
class FakeHost:
    """An agent that is away from one time to another, in seconds since the start."""

    name: str
    slice: str
    #: Within `POLL`: when its first poll began.
    phase: float
    gone: float = NEVER
    back: float = NEVER

    def is_there(self, now: float) -> bool:
        return not self.gone <= now < self.back

    def last(self, now: float, every: float) -> float:
        """Returns when it last did what it does at this interval."""
        tick = self.phase % every - every
        at = tick + (now - tick) // every * every
        if self.gone <= at < self.back:
            # The SDK polls again with growing pauses; a report comes at its next time.
            again = self.back + (self.phase % 12 if every == POLL else NEVER)
            return again if now >= again else tick + (self.gone - tick) // every * every
        return at


@dataclass
class FakeService:
    """A Temporal service with agents, on a clock of its own. It stands in for the SDK's client."""

    hosts: Sequence[FakeHost]
    #: Whether workers' reports exist, and from when to when none arrives.
    reports: bool = True
    starved: tuple[float, float] = (NEVER, NEVER)
    #: Whether it lists no workers instead of refusing to list them.
    lists: bool = True
    pings: bool = True
    now: float = 0.0
    namespace: str = "default"
    lost: set[str] = field(default_factory=set)
    #: The hosts that the scheduler's ledger lacks, and the states of slices that are not READY.
    lacks: set[str] = field(default_factory=set)
    states: dict[str, SliceState] = field(default_factory=dict)
    queried: list[str] = field(default_factory=list)
    pinged: int = 0

    @property
    def workflow_service(self) -> "FakeService":
        return self

    @property
    def is_starved(self) -> bool:
        return self.starved[0] <= self.now < self.starved[1]

    async def list_workers(self, request: Any) -> ListWorkersResponse:
        if not self.reports and not self.lists:
            raise RPCError("method ListWorkers not supported", RPCStatusCode.UNIMPLEMENTED, b"")
        queues = {"control": (names.control_queue("c"), "control", FakeHost("control", "", 0.0))}
        queues |= {
            host.name: (names.host_queue("c", host.name), f"{host.name}@first", host)
            for host in self.hosts
        }
        now = min(self.now, self.starved[0]) if self.is_starved else self.now
        reports = [
            WorkerInfo(
                worker_heartbeat=WorkerHeartbeat(
                    worker_instance_key=key,
                    worker_identity=identity,
                    task_queue=queue,
                    heartbeat_time=_timestamp(host.last(now, REPORT_INTERVAL.total_seconds())),
                )
            )
            for key, (queue, identity, host) in queues.items()
        ]
        return ListWorkersResponse(workers_info=reports if self.reports else [])

    async def describe_task_queue(self, request: Any) -> DescribeTaskQueueResponse:
        host = next(
            host
            for host in self.hosts
            if names.host_queue("c", host.name) == request.task_queue.name
        )
        poll = PollerInfo(
            identity=f"{host.name}@first", last_access_time=_timestamp(host.last(self.now, POLL))
        )
        return DescribeTaskQueueResponse(pollers=[poll])

    async def start_activity_method(self, *_: Any, task_queue: str, **__: Any) -> Any:
        if not self.pings:
            raise RPCError("standalone activities are disabled", RPCStatusCode.UNIMPLEMENTED, b"")
        self.pinged += 1
        host = next(host for host in self.hosts if names.host_queue("c", host.name) == task_queue)

        async def result() -> bool:
            if self.is_starved or not host.is_there(self.now):
                raise ActivityFailureError(cause=TimeoutError())
            return True

        return SimpleNamespace(result=result)

    def get_workflow_handle(self, workflow_id: str) -> Any:
        async def query(*_: Any, **__: Any) -> Snapshot | SliceStatus:
            if (slice_id := workflow_id.removeprefix(names.slice_workflow("c", ""))) != workflow_id:
                self.queried.append(slice_id)
                hosts = tuple(
                    a_host(each.name, slice_id=slice_id)
                    for each in self.hosts
                    if each.slice == slice_id
                )
                return SliceStatus(
                    id=slice_id, state=self.states.get(slice_id, SliceState.READY), hosts=hosts
                )
            left = [
                host
                for host in self.hosts
                if host.slice not in self.lost and host.name not in self.lacks
            ]
            views = [
                HostView(host=a_host(each.name, slice_id=each.slice), free={}, running=())
                for each in left
            ]
            return Snapshot(hosts=tuple(views), total_hosts=len(views), waiting=0, running=0)

        return SimpleNamespace(query=query)

    async def list_workflows(self, query: str, **_: Any) -> AsyncIterator[Any]:
        """Lists the slices that were READY a moment ago."""
        for slice_id in {host.slice for host in self.hosts}:
            yield SimpleNamespace(id=names.slice_workflow("c", slice_id))

    async def observe(self, until: timedelta) -> dict[str, float]:
        """Observes until then, as the autoscaler does. Returns the lost slices, each with the time
        of its loss.
        """
        observer, losses = FleetObserver(self), {}  # type: ignore[arg-type]
        suspects: list[Silent] = []
        while self.now < until.total_seconds():
            report = await observer.observe_fleet(ObserveFleet(cluster="c"))
            suspects, lost = lost_hosts(suspects, report.silent)
            self.lost |= {host.slice_id for host in lost}
            losses.update({host.slice_id: self.now for host in lost if host.slice_id not in losses})
            self.now += next_observation(suspects, OBSERVE_INTERVAL).total_seconds()
        return losses


def _timestamp(at: float) -> Timestamp:
    stamp = Timestamp()
    stamp.FromMilliseconds(round((at + 1_000) * 1000))
    return stamp


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """All clocks are that of the service; a test sets `service`."""
    holder = SimpleNamespace(service=None)
    fake = SimpleNamespace(
        monotonic=lambda: holder.service.now, time=lambda: holder.service.now + 1_000
    )
    monkeypatch.setattr(observe, "time", fake)
    return holder


def observed(
    clock: SimpleNamespace, hosts: Sequence[FakeHost], minutes: float, **service: Any
) -> dict[str, float]:
    """Returns the slices that are lost within so many minutes."""
    clock.service = FakeService(hosts, **service)
    return asyncio.run(clock.service.observe(timedelta(minutes=minutes)))


def fleet(size: int, gone: int = 0, at: float = 200.0, back: float = NEVER) -> list[FakeHost]:
    """Hosts that are slices by themselves; the first so many are gone at that time."""
    away = dict.fromkeys(range(gone), at)
    return [
        FakeHost(
            f"h{n}",
            f"s{n}",
            phase=(n * 37) % POLL + 0.5,
            gone=away.get(n, NEVER),
            back=back if n in away else NEVER,
        )
        for n in range(size)
    ]


WITHOUT_REPORTS = [
    pytest.param(
        {"reports": False, "lists": lists, "pings": pings}, id=f"lists={lists}, pings={pings}"
    )
    for lists in (True, False)
    for pings in (True, False)
]


@pytest.mark.parametrize("service", WITHOUT_REPORTS)
@pytest.mark.parametrize("size", [1, 2, 12])
def test_where_reports_do_not_exist_a_host_that_polls_is_never_lost(
    clock: SimpleNamespace, service: dict[str, bool], size: int
) -> None:
    """Worker heartbeats are off by default before server 1.32; every created slice was deleted
    after half a minute.
    """
    assert observed(clock, fleet(size), 20, **service) == {}
    assert clock.service.pinged == 0


@pytest.mark.parametrize("service", WITHOUT_REPORTS)
@pytest.mark.parametrize("size", [1, 12])
def test_where_reports_do_not_exist_a_dead_host_is_lost_by_its_polls(
    clock: SimpleNamespace, service: dict[str, bool], size: int
) -> None:
    """Polls show a dead host later than reports would, but no operator has to act."""
    lost = observed(clock, fleet(size, gone=1), 20, **service)

    assert list(lost) == ["s0"]
    assert lost["s0"] <= 200 + POLL_LIMIT.total_seconds() + 2 * POLL


@pytest.mark.parametrize("service", [{}, *(each.values[0] for each in WITHOUT_REPORTS)])
def test_no_host_is_given_up_while_all_are_cut_off_and_none_when_they_are_back(
    clock: SimpleNamespace, service: dict[str, bool]
) -> None:
    """A fleet that falls silent at once is the network's or the service's doing; new machines would
    be silent as well.
    """
    assert observed(clock, fleet(12, gone=12, at=200, back=900), 30, **service) == {}


def test_no_host_is_given_up_while_the_service_delays_reports_and_pings(
    clock: SimpleNamespace,
) -> None:
    """Reports have a low priority in a loaded frontend. The control plane's own come no more than
    those of the hosts.
    """
    assert observed(clock, fleet(12), 30, starved=(300.0, 900.0)) == {}
    assert observed(clock, fleet(1), 30, starved=(300.0, 900.0)) == {}


def test_most_of_a_fleet_is_lost_when_the_rest_answers(clock: SimpleNamespace) -> None:
    """A zone without power, for example: the service reaches the other hosts, so it is not the
    cause.
    """
    lost = observed(clock, fleet(10, gone=7), 10)

    assert sorted(lost) == [f"s{n}" for n in range(7)]
    assert max(lost.values()) <= 200 + 60


@pytest.mark.parametrize(("size", "gone"), [(1, 1), (2, 2), (4, 2)])
def test_a_few_dead_hosts_are_lost_within_a_minute_without_witnesses(
    clock: SimpleNamespace, size: int, gone: int
) -> None:
    """As before: their jobs try again after a minute and must not be sent there."""
    lost = observed(clock, fleet(size, gone=gone), 10)

    assert len(lost) == gone
    assert max(lost.values()) <= 200 + 58 - PING_TIMEOUT.total_seconds()


def test_the_hosts_of_one_slice_count_once(clock: SimpleNamespace) -> None:
    """A slice of sixteen hosts that is lost is one event, in a fleet of three slices too."""
    hosts = [FakeHost(f"w{n}", "pod", phase=n + 0.5, gone=200) for n in range(16)] + fleet(2)

    assert list(observed(clock, hosts, 10)) == ["pod"]


def missing(clock: SimpleNamespace, hosts: Sequence[FakeHost], **service: Any) -> list[str]:
    """Returns the hosts of READY slices that the ledger does not have, as one look finds them."""
    clock.service = FakeService(hosts, now=100.0, **service)
    report = asyncio.run(
        FleetObserver(clock.service).observe_fleet(ObserveFleet(cluster="c", ledger=True))
    )
    assert report.missing is not None
    return [each.host_id for each in report.missing]


@pytest.mark.parametrize("service", [{}, *(each.values[0] for each in WITHOUT_REPORTS)])
def test_hosts_of_a_ready_slice_that_the_ledger_lacks_are_reported_on_every_service(
    clock: SimpleNamespace, service: dict[str, Any]
) -> None:
    """Such a slice was in the list of slices as READY, its host in no list. Only slices with a
    doubt are asked.
    """
    slices = {"states": {"s2": SliceState.DRAINING}, "lacks": {"h1", "h2"}}

    assert missing(clock, fleet(4), **slices, **service) == ["h1"]
    assert sorted(clock.service.queried) == ["s1", "s2"]


def test_a_missing_host_of_a_slice_is_found_by_its_agent_s_reports(clock: SimpleNamespace) -> None:
    """The ledger has the other hosts of the slice."""
    hosts = [FakeHost(f"pod-w-{n}", "pod", phase=n + 0.5) for n in range(4)]

    assert missing(clock, hosts, lacks={"pod-w-2"}) == ["pod-w-2"]
    assert missing(clock, hosts) == []
