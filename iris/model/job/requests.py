"""The request of a gang for hosts, its placement on hosts, and its weight.

A gang is a set of tasks that are placed, started and retried together. A task that runs by itself
is a gang of one. A larger gang needs a host for each of its tasks at the same time. If
`tasks_per_host` of them share a host, they count as one task here, with the resources of all of
them. With `group_by` the hosts must share an attribute, for example `tpu-name`: the hosts of one
slice. With several `groups`, the tasks are split into equal groups, and the hosts of each group
share the attribute: a job over two slices.
"""

import re
from collections.abc import Container, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import NamedTuple

from iris.model import names
from iris.model.frozen import Frozen
from iris.model.host.constraints import Constraint, Operator, avoiding
from iris.model.host.resources import Resources
from iris.model.job.spec import Band, JobSpec
from iris.model.rules import Contact
from iris.model.units import GIB

#: Times that are stored as numbers are counted from this time.
EPOCH = datetime(2020, 1, 1, tzinfo=UTC)
#: The unit of times that are stored as numbers.
MICROSECOND = timedelta(microseconds=1)


class Shape(NamedTuple):
    """The part of a request that decides on which hosts it fits. Gangs of one shape are
    interchangeable for the scheduler. A shape is fast to hash and to compare.
    """

    #: The kind of accelerator: "gpu", "tpu" or None.
    device: str | None
    variants: str
    #: The amounts that the gang needs on each host, in the order of `Resources.vector`: devices,
    #: millicores, bytes of memory, bytes of disk.
    amounts: tuple[int, int, int, int]
    #: The constraints as texts. The text of a preferred constraint begins with a question mark.
    constraints: tuple[str, ...]
    tasks: int
    group_by: str | None
    groups: int
    tasks_per_host: int = 1


class Claim(NamedTuple):
    """The tags and named limits of a gang, which quotas count in addition to the gang's user and
    resources.
    """

    #: The tags, as `KEY=VALUE`. The scheduler keeps only the tags that have a quota.
    tags: tuple[str, ...] = ()
    #: The named limits that the gang uses while it has hosts, each with the amount that the gang
    #: occupies.
    limits: tuple[tuple[str, int], ...] = ()

    def with_tags(self, keys: Container[str]) -> "Claim":
        """Returns the claim with only the tags that have these keys."""
        return Claim(tuple(tag for tag in self.tags if tag.partition("=")[0] in keys), self.limits)


#: The claim of a gang without tags and limits.
NO_CLAIM = Claim()


class Request(Frozen):
    """A gang's request for hosts."""

    #: A key that is never used again: it contains the attempt and the run of the workflow. A
    #: repeated request with the same key changes nothing.
    key: str
    #: The id of the workflow that receives the placement.
    owner: str
    #: The id that stands for the gang in messages to users: the id of the task, or of the job if
    #: the gang has several tasks.
    task: str
    user: str = ""
    #: The resources that the gang needs on each host.
    resources: Resources
    constraints: tuple[Constraint, ...] = ()
    #: The number of hosts that the gang needs. Each host runs `tasks_per_host` tasks.
    tasks: int = 1
    tasks_per_host: int = 1
    #: The host attribute, such as `tpu-name`, whose value all hosts of one group of the gang must
    #: share. It is None only for a gang of one task.
    group_by: str | None = None
    #: The number of groups into which the tasks are split evenly.
    groups: int = 1
    band: Band = Band.INTERACTIVE
    claim: Claim = NO_CLAIM
    submitted_at: datetime

    @cached_property
    def shape(self) -> Shape:
        device = self.resources.device
        return Shape(
            device=device.kind.value if device else None,
            variants=device.variant if device else "",
            amounts=self.resources.vector,
            constraints=tuple(each.marked for each in self.constraints),
            tasks=self.tasks,
            group_by=self.group_by,
            groups=self.groups,
            tasks_per_host=self.tasks_per_host,
        )

    @property
    def weight(self) -> int:
        return weight(self.resources, self.tasks)

    @property
    def sharing(self) -> str:
        """A text for messages that says how many tasks share the resources; empty for one task."""
        return f" for {self.tasks_per_host} tasks on one host" if self.tasks_per_host > 1 else ""

    @property
    def group_size(self) -> int:
        """The number of hosts of each group."""
        return self.tasks // self.groups

    @property
    def required(self) -> list[Constraint]:
        """The constraints that every host must meet: the required ones, and the existence of the
        group's attribute.
        """
        required = [constraint for constraint in self.constraints if not constraint.preferred]
        if self.group_by is not None:
            required.append(Constraint(key=self.group_by, op=Operator.EXISTS))
        return required


def request_for(
    spec: JobSpec,
    *,
    index: int,
    attempt: int,
    run_id: str,
    owner: str,
    submitted_at: datetime,
    band: Band | None = None,
    avoid: Sequence[str] = (),
) -> Request:
    """Builds the request of a job's gang. If the job is not coscheduled, builds the request of one
    task.

    Args:
        index: the task's index, if the job is not coscheduled.
        run_id: the first run of the workflow that sends the request.
        band: the band, if the user has changed it since the submission.
        avoid: the hosts to avoid if other hosts are possible. A host that is named twice is avoided
            more.
    """
    together = spec.coscheduling
    each = together.tasks_per_host if together else 1
    if together is None:
        task, name = names.task_id(spec.id, index), names.attempt_id(spec.id, index, attempt)
    else:
        task, name = spec.id, names.gang_attempt_id(spec.id, attempt)
    return Request(
        key=names.attempt_key(name, run_id),
        owner=owner,
        task=task,
        user=spec.user,
        resources=spec.resources.times(each),
        constraints=(*spec.constraints, *map(avoiding, avoid)),
        tasks=spec.replicas // each if together else 1,
        tasks_per_host=each,
        group_by=together.group_by if together else None,
        groups=together.groups if together else 1,
        band=band or spec.band,
        claim=Claim(
            tuple(sorted(f"{key}={value}" for key, value in spec.tags.items())),
            tuple(sorted(spec.limits.items())),
        ),
        submitted_at=submitted_at,
    )


class Seat(NamedTuple):
    """A host, in one of its incarnations, that runs one or several tasks of a gang."""

    host_id: str
    slice_id: str
    incarnation: str
    #: The number of the group, within the gang, to which the host belongs.
    group: int = 0


class Placement(Frozen):
    """A gang with its hosts. The gang occupies a host until the gang or the host releases it. The
    placement also ends when the incarnations of all its hosts have ended.
    """

    key: str
    owner: str
    task: str
    user: str = ""
    #: The resources that the gang occupies on each of its hosts, for all its tasks there together.
    resources: Resources
    band: Band = Band.INTERACTIVE
    claim: Claim = NO_CLAIM
    #: The hosts of the gang. Task i runs on `seats[i // tasks_per_host]`.
    seats: tuple[Seat, ...]
    tasks_per_host: int = 1
    #: The `address:port` at which the tasks of a gang connect to each other. The address is that of
    #: task 0's host. No other gang on this host uses the port.
    coordinator: str = ""
    placed_at: datetime | None = None
    contact: Contact = Contact()

    @cached_property
    def weight(self) -> int:
        return weight(self.resources, len(self.seats))

    @property
    def seat_of_each_task(self) -> tuple[Seat, ...]:
        """The seat of each task, in the order of the tasks."""
        return tuple(seat for seat in self.seats for _ in range(self.tasks_per_host))


class Names(NamedTuple):
    """A short form of the fields `task` and `owner` of a request or placement, for compact storage.
    It contains only the parts that cannot be computed from the field `key`.
    """

    task: str
    owner: str
    #: Which id the owner's id ends with: "task" for the id in the field `task` of the request or
    #: placement, "job" for the id of its job, or "" for neither. The field `owner` here does not
    #: contain this ending.
    end: str

    @classmethod
    def of(cls, gang: Request | Placement) -> "Names":
        own = "" if gang.key.partition("@")[0] == gang.task else gang.task
        job = gang.task.rpartition(":")[0]
        if gang.owner.endswith(gang.task):
            return cls(own, gang.owner.removesuffix(gang.task), "task")
        if job and gang.owner.endswith(job):
            return cls(own, gang.owner.removesuffix(job), "job")
        return cls(own, gang.owner, "")

    def follow(self, key: str) -> tuple[str, str]:
        """Restores the task and the owner from this short form and the key."""
        task = self.task or key.partition("@")[0]
        return task, self.owner + {"task": task, "job": task.rpartition(":")[0], "": ""}[self.end]


def job_of_key(key: str) -> str:
    """Returns the id of the job to which the request or placement with this key belongs."""
    task = key.partition("@")[0]
    return task.rpartition(":")[0] or task


#: Matches a key whose run id begins with the time at which the run was created: milliseconds since
#: 1970 as twelve hexadecimal digits. `shorten_key` can shorten such a key.
_TIMED_KEY = re.compile("(.*)/([0-9a-f]{8})-([0-9a-f]{4})", re.DOTALL)
_EPOCH_MS = int(EPOCH.timestamp() * 1000)


def shorten_key(key: str, at: int) -> tuple[str, int | None]:
    """Returns a key without its run, and the run's creation time in milliseconds after `at`, for
    compact storage. If the run id contains no time, returns the whole key and None.

    Args:
        at: a time near the creation of the run, in microseconds since `EPOCH`.
    """
    timed = _TIMED_KEY.fullmatch(key)
    return (
        (timed[1], int(timed[2] + timed[3], 16) - _EPOCH_MS - at // 1000) if timed else (key, None)
    )


def whole_key(short: str, run: int | None, at: int) -> str:
    """Restores the key that `shorten_key` shortened."""
    if run is None:
        return short
    time = f"{run + _EPOCH_MS + at // 1000:012x}"
    return f"{short}/{time[:8]}-{time[8:]}"


#: The weight of one device when the resources that users hold are compared. One accelerator
#: outweighs the cores and the memory of any machine.
DEVICE_WEIGHT = 1000
#: The weight of one core when the resources that users hold are compared.
CORE_WEIGHT = 5
#: The weight of one GiB of memory when the resources that users hold are compared.
GIB_WEIGHT = 1


def weight(resources: Resources, tasks: int = 1) -> int:
    """Returns the weight of this many tasks with these resources. It is at least 1 for each task,
    so that no task is free.
    """
    devices, millicores, memory, _ = resources.vector
    return tasks * max(
        1, DEVICE_WEIGHT * devices + CORE_WEIGHT * millicores // 1000 + GIB_WEIGHT * memory // GIB
    )
