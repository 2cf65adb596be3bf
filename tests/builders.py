"""Builders: a test names what matters to it, and these fill in the rest."""

from datetime import UTC, datetime, timedelta
from typing import Any

from iris.gangs import Placement, Request, Seat
from iris.hosts import Host
from iris.jobs import JobSpec, TaskOutcome, TaskStatus
from iris.liveness import Silent
from iris.resources import Device, Resources, parse_device
from iris.states import TaskState
from iris.units import GIB

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """So many seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def some(cpu: float = 1, memory: float = 0, disk: float = 0, device: str | Device = "cpu") -> Resources:
    """Resources in cores and GiB, the device as people write it."""
    return Resources(
        cpu_millis=round(cpu * 1000),
        memory_bytes=round(memory * GIB),
        disk_bytes=round(disk * GIB),
        device=parse_device(device) if isinstance(device, str) else device,
    )


def a_host(host_id: str = "h1", offers: Resources | None = None, **changes: Any) -> Host:
    """A host of four cores in a slice of its own."""
    settings = {"slice_id": f"slice-of-{host_id}", "incarnation": "first"} | changes
    return Host(id=host_id, resources=offers or some(cpu=4, memory=16, disk=100), **settings)


def a_request(key: str = "k1", wants: Resources | None = None, **changes: Any) -> Request:
    """A request for one core, submitted at noon."""
    settings = {"owner": f"job of {key}", "task": f"task of {key}", "submitted_at": NOON} | changes
    return Request(key=key, resources=wants or some(cpu=1), **settings)


def requests(*wants: Resources, **changes: Any) -> list[Request]:
    """Requests k1, k2 …, submitted a second apart."""
    return [a_request(f"k{i}", wants=each, submitted_at=at(i), **changes) for i, each in enumerate(wants, start=1)]


def a_placement(host: Host, holds: Resources | None = None, key: str = "held") -> Placement:
    """Somebody's placement on the host, in its present incarnation."""
    return Placement(
        key=key,
        owner="another job",
        task="another task",
        resources=holds or some(cpu=1),
        seats=(Seat(host.id, host.slice_id, host.incarnation),),
    )


def a_spec(**changes: Any) -> JobSpec:
    """A valid job."""
    return JobSpec(**{"user": "ada", "name": "train", "command": ("python", "train.py")} | changes)


def an_outcome(state: TaskState, **changes: Any) -> TaskOutcome:
    """How an attempt ended that had started."""
    return TaskOutcome(state=state, **{"started_at": NOON, "finished_at": at(60)} | changes)


def a_task(**changes: Any) -> TaskStatus:
    """A task before its first attempt."""
    return TaskStatus(**{"index": 0} | changes)


def a_silent(host_id: str = "h1", incarnation: str = "first", age: float | None = None) -> Silent:
    """A host that is expected to report."""
    return Silent(host_id=host_id, slice_id=f"slice-of-{host_id}", incarnation=incarnation, age=age)
