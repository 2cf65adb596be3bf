"""Gangs: tasks that are placed, started and bounced together. Defines their requests, placements
and weights.

A task that runs by itself is a gang of one. A larger gang needs a host for each of its tasks, all
or none; or for each `tasks_per_host` of them, which count as one task here, with the resources of
all of them. With `group_by` those hosts must share an attribute (`tpu-name`: one slice). With
several `groups`, the tasks are split into equal parts whose hosts each share it (a job over two
slices).
"""

import re
from collections.abc import Sequence
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

#: The origin and the unit of times that are stored as numbers.
EPOCH = datetime(2020, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class Shape(NamedTuple):
    """The part of a gang that matters to the scheduler: gangs of one shape are interchangeable.
    Fast to hash and compare.
    """

    #: "gpu", "tpu" or None.
    device: str | None
    variants: str
    #: The amounts for each task, in the order of `Resources.amounts`: devices, millicores, bytes of
    #: memory, bytes of disk.
    amounts: tuple[int, int, int, int]
    #: In text form; a preferred one has a question mark before it.
    constraints: tuple[str, ...]
    tasks: int
    group_by: str | None
    groups: int
    tasks_per_host: int = 1


class Request(Frozen):
    """A gang's request for hosts."""

    #: Never used again: the attempt and the run that it belongs to. Sending the same request again
    #: changes nothing.
    key: str
    #: The workflow that receives the placement.
    owner: str
    #: The task's id, or for a gang of several the job's id, for display.
    task: str
    user: str = ""
    #: What it needs on each host.
    resources: Resources
    constraints: tuple[Constraint, ...] = ()
    #: The number of hosts: one for each task, or for each `tasks_per_host` of them.
    tasks: int = 1
    tasks_per_host: int = 1
    #: The attribute that the hosts of one group share; None only for a gang of one.
    group_by: str | None = None
    #: The number of groups into which the tasks are split evenly.
    groups: int = 1
    band: Band = Band.INTERACTIVE
    submitted_at: datetime

    @cached_property
    def shape(self) -> Shape:
        device = self.resources.device
        return Shape(
            device=device.kind.value if device else None,
            variants=device.variant if device else "",
            amounts=self.resources.vector,
            constraints=tuple(
                f"{'?' if each.preferred else ''}{each}" for each in self.constraints
            ),
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
        """How many tasks share the resources, for messages; empty: one task has them."""
        return f" for {self.tasks_per_host} tasks on one host" if self.tasks_per_host > 1 else ""

    @property
    def group_size(self) -> int:
        """The number of hosts of each group."""
        return self.tasks // self.groups

    @property
    def required(self) -> list[Constraint]:
        """The constraints that a host must meet: the gang's required ones, and the group attribute
        if the gang has groups.
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
    """Builds the request of a job's gang, or of the task of this index if the job is not
    coscheduled.

    Args:
        run_id: the first run of the workflow that sends the request.
        band: the band, if the user has changed it since submission.
        avoid: hosts that come after all others; one that is named twice comes last.
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
        submitted_at=submitted_at,
    )


class Seat(NamedTuple):
    """The place of a task, or of several that share a host: a host in one of its incarnations."""

    host_id: str
    slice_id: str
    incarnation: str
    #: The gang's group that the host belongs to.
    group: int = 0


class Placement(Frozen):
    """A gang with its hosts. It holds them until it is released or the incarnation of one of its
    hosts ends.
    """

    key: str
    owner: str
    task: str
    user: str = ""
    #: What it has on each seat.
    resources: Resources
    band: Band = Band.INTERACTIVE
    #: Task i runs on seat i // tasks_per_host.
    seats: tuple[Seat, ...]
    tasks_per_host: int = 1
    #: `address:port` where the tasks of a gang of several meet: on the host of task 0, a port that
    #: no other gang there has.
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
    """A short form of the task and owner of a request or placement. Only the parts that do not
    follow from its key are stored.
    """

    task: str
    owner: str
    #: The part of the key that ends the owner's id: "task", "job", or nothing.
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
        """Returns (task, owner)."""
        task = self.task or key.partition("@")[0]
        return task, self.owner + {"task": task, "job": task.rpartition(":")[0], "": ""}[self.end]


#: A key whose run id begins with the time, in milliseconds, at which the run was created.
_TIMED_KEY = re.compile("(.*)/([0-9a-f]{8})-([0-9a-f]{4})", re.DOTALL)
_EPOCH_MS = int(EPOCH.timestamp() * 1000)


def shorten_key(key: str, at: int) -> tuple[str, int | None]:
    """Returns a key without its run, and the run's creation time in milliseconds after `at`, for
    compact storage.

    `at` is in microseconds since `EPOCH`. If the run id holds no time, the function returns the
    whole key, with None.
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


#: The weight of one unit of each, for comparing users. An accelerator outweighs the cores and
#: memory of any machine.
DEVICE_WEIGHT = 1000
CORE_WEIGHT = 5
GIB_WEIGHT = 1


def weight(resources: Resources, tasks: int = 1) -> int:
    """Returns the weight of this many tasks with these resources; at least 1 per task, so that no
    task is free.
    """
    devices, millicores, memory, _ = resources.vector
    return tasks * max(
        1, DEVICE_WEIGHT * devices + CORE_WEIGHT * millicores // 1000 + GIB_WEIGHT * memory // GIB
    )
