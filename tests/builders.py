"""Builders: a test names what matters to it, and these fill in the rest."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from iris.autoscaling.liveness import Silent
from iris.client.jobs.submitted import Submission
from iris.model.host.constraints import TPU_NAME, TPU_WORKER_ID, Constraint, parse_constraint
from iris.model.host.hosts import ClosedBy, Closure, Host
from iris.model.host.resources import Device, Resources, parse_device
from iris.model.job.attempts import TaskOutcome
from iris.model.job.requests import Placement, Request, Seat
from iris.model.job.spec import JobSpec
from iris.model.job.status import TaskStatus
from iris.model.states import TaskState
from iris.model.units import GIB
from iris.scheduling.placement.host_index import HostIndex

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """So many seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def some(
    cpu: float = 1, memory: float = 0, disk: float = 0, device: str | Device = "cpu"
) -> Resources:
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
    return [
        a_request(f"k{i}", wants=each, submitted_at=at(i), **changes)
        for i, each in enumerate(wants, start=1)
    ]


def a_placement(
    host: Host, holds: Resources | None = None, key: str = "held", **changes: Any
) -> Placement:
    """Somebody's placement on the host, in its present incarnation."""
    return a_gang_placement([host], holds, key, **changes)


def a_gang_placement(
    hosts: Iterable[Host], holds: Resources | None = None, key: str = "held", **changes: Any
) -> Placement:
    """A placed gang with one task on each of the hosts, for longer than any rule cares about."""
    settings = {"owner": "another job", "task": "another task", "placed_at": at(-100_000)} | changes
    seats = tuple(Seat(host.id, host.slice_id, host.incarnation) for host in hosts)
    return Placement(key=key, resources=holds or some(cpu=1), seats=seats, **settings)


#: What each host of a slice offers.
TPU_HOST = some(cpu=8, memory=32, disk=100, device="tpu:v5litepod-16:4")
#: All the chips of one.
CHIPS = some(cpu=1, device="tpu:v5litepod-16:4")


def a_slice(
    name: str, hosts: int = 4, offers: Resources | None = None, **changes: Any
) -> list[Host]:
    """The hosts of a TPU slice: `NAME-0`, `NAME-1` and so on, by their worker ids."""
    attributes = changes.pop("attributes", {})
    return [
        a_host(
            f"{name}-{worker}",
            offers or TPU_HOST,
            **{"slice_id": name, "attributes": {TPU_NAME: name, TPU_WORKER_ID: worker} | attributes}
            | changes,
        )
        for worker in range(hosts)
    ]


def a_gang(
    key: str = "gang", tasks: int = 4, wants: Resources | None = None, **changes: Any
) -> Request:
    """A request for so many hosts of one slice, with all the chips of each."""
    return a_request(key, wants or CHIPS, **{"tasks": tasks, "group_by": TPU_NAME} | changes)


def a_fleet(*hosts: Host, cordoned: Iterable[str] = (), **changes: Any) -> HostIndex:
    """These hosts, some of them closed by an operator."""
    return HostIndex(hosts, {host: Closure(by=ClosedBy.CORDON) for host in cordoned}, **changes)


def demands(*texts: str) -> tuple[Constraint, ...]:
    """Constraints as people write them, a preferred one with a question mark before it."""
    return tuple(
        parse_constraint(text.removeprefix("?"), preferred=text.startswith("?")) for text in texts
    )


def a_spec(**changes: Any) -> JobSpec:
    """A valid job."""
    return JobSpec(**{"user": "ada", "name": "train", "command": ("python", "train.py")} | changes)


def a_submission(spec: JobSpec | None = None, **changes: Any) -> Submission:
    """What a job was submitted with; it is still in the band of its submission, in a cluster
    without a Web UI.
    """
    spec = spec or a_spec()
    return Submission(**{"spec": spec, "priority": spec.band, "page": "", "run_id": "r1"} | changes)


def an_outcome(state: TaskState, **changes: Any) -> TaskOutcome:
    """How an attempt ended that had started."""
    return TaskOutcome(state=state, **{"started_at": NOON, "finished_at": at(60)} | changes)


def a_task(**changes: Any) -> TaskStatus:
    """A task before its first attempt."""
    return TaskStatus(**{"index": 0} | changes)


def a_silent(
    host_id: str = "h1",
    incarnation: str = "first",
    age: float | None = None,
    unanswered: bool = True,
) -> Silent:
    """A host that is expected to report."""
    return Silent(
        host_id=host_id,
        slice_id=f"slice-of-{host_id}",
        incarnation=incarnation,
        age=age,
        unanswered=unanswered,
    )
