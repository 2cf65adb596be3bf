"""Gangs: tasks that are placed, started and bounced together. What they ask for, what they got, and how much that weighs.

A task that runs by itself is a gang of one. A gang of several wants a host for each of its tasks, all or none; with `group_by`
those hosts have to share an attribute (`tpu-name`: one slice), and with several `groups` they share it in equal parts (a job
over two slices).
"""

import re
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, model_validator

from iris import names
from iris.constraints import Constraint, Operator
from iris.jobs import Band, JobSpec
from iris.resources import Resources
from iris.units import GIB

#: From where times are counted where they are kept as numbers, and in what.
EPOCH = datetime(2020, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class Shape(NamedTuple):
    """What the scheduler sees of a gang: two gangs of one shape are interchangeable to it. Quick to hash and to compare."""

    #: "gpu", "tpu" or None.
    device: str | None
    variants: str
    #: For each task, in the order of `Resources.amounts`: devices, millicores, bytes of memory, bytes of disk.
    amounts: tuple[int, int, int, int]
    #: As people write them; a preferred one with a question mark before it.
    constraints: tuple[str, ...]
    tasks: int
    group_by: str | None
    groups: int


class Request(BaseModel):
    """A gang that wants hosts."""

    model_config = ConfigDict(frozen=True)

    #: Unique for ever: the attempt and the run it belongs to. Saying the same again changes nothing.
    key: str
    #: The workflow to be told.
    owner: str
    #: The task's id, or for a gang of several the job's, for people.
    task: str
    user: str = ""
    #: Of each task.
    resources: Resources
    constraints: tuple[Constraint, ...] = ()
    #: Each gets a host of its own.
    tasks: int = 1
    #: The attribute that the hosts of one group have in common; None only for a gang of one.
    group_by: str | None = None
    #: Into how many groups the tasks are split evenly.
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
            constraints=tuple(f"{'?' if each.preferred else ''}{each}" for each in self.constraints),
            tasks=self.tasks,
            group_by=self.group_by,
            groups=self.groups,
        )

    @property
    def weight(self) -> int:
        return weight(self.resources, self.tasks)

    @property
    def group_size(self) -> int:
        """How many hosts each group has to give."""
        return self.tasks // self.groups

    @property
    def required(self) -> list[Constraint]:
        """What a host must meet: what the gang demands, and that the host belongs to a group if groups are wanted."""
        required = [constraint for constraint in self.constraints if not constraint.preferred]
        if self.group_by is not None:
            required.append(Constraint(key=self.group_by, op=Operator.EXISTS))
        return required


def request_for(
    spec: JobSpec, *, index: int, attempt: int, run_id: str, owner: str, submitted_at: datetime, band: Band | None = None
) -> Request:
    """What a job's gang asks for, or what its task of this index does if each goes its own way.

    Args:
        run_id: the first run of the workflow that asks.
        band: if its user has changed it since.
    """
    together = spec.coscheduling
    if together is None:
        task, name = names.task_id(spec.id, index), names.attempt_id(spec.id, index, attempt)
    else:
        task, name = spec.id, names.gang_attempt_id(spec.id, attempt)
    return Request(
        key=names.attempt_key(name, run_id),
        owner=owner,
        task=task,
        user=spec.user,
        resources=spec.resources,
        constraints=spec.constraints,
        tasks=spec.replicas if together else 1,
        group_by=together.group_by if together else None,
        groups=together.groups if together else 1,
        band=band or spec.band,
        submitted_at=submitted_at,
    )


class Seat(NamedTuple):
    """A task's place: one host, in one of its lives."""

    host_id: str
    slice_id: str
    incarnation: str
    #: Which of the gang's groups the host belongs to.
    group: int = 0


class Placement(BaseModel):
    """A gang that has hosts. It holds them until it is given back or the incarnation of one of its hosts ends."""

    model_config = ConfigDict(frozen=True)

    key: str
    owner: str
    task: str
    user: str = ""
    #: Of each task.
    resources: Resources
    band: Band = Band.INTERACTIVE
    #: Task i sits on seat i.
    seats: tuple[Seat, ...]
    #: `address:port` where the tasks of a gang of several meet: on the host of task 0, a port no other gang was given there.
    coordinator: str = ""
    placed_at: datetime | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_one_host(cls, data: Any) -> Any:
        """Histories of version 0.1 have placements on one host, without seats."""
        if isinstance(data, dict) and "host_id" in data:
            seat = [data[name] for name in ("host_id", "slice_id", "incarnation")]
            return {**data, "seats": [seat]}
        return data

    @cached_property
    def weight(self) -> int:
        return weight(self.resources, len(self.seats))


class Names(NamedTuple):
    """How the task and the owner of a request or placement follow from its key, for whoever keeps many; what follows is empty."""

    task: str
    owner: str
    #: With what the owner's id ends: "task", "job", or nothing.
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
        """(task, owner)"""
        task = self.task or key.partition("@")[0]
        return task, self.owner + {"task": task, "job": task.rpartition(":")[0], "": ""}[self.end]


#: A key whose run's id begins with the time in milliseconds at which the run was made.
_TIMED_KEY = re.compile("(.*)/([0-9a-f]{8})-([0-9a-f]{4})", re.DOTALL)
_EPOCH_MS = int(EPOCH.timestamp() * 1000)


def shorten_key(key: str, at: int) -> tuple[str, int | None]:
    """A key without its run, and the run's time after these microseconds since `EPOCH`: for whoever keeps many, with their times.

    None: the key, which is whole then, says nothing of a time.
    """
    timed = _TIMED_KEY.fullmatch(key)
    return (timed[1], int(timed[2] + timed[3], 16) - _EPOCH_MS - at // 1000) if timed else (key, None)


def whole_key(short: str, run: int | None, at: int) -> str:
    """The key of which `shorten_key` has made these."""
    if run is None:
        return short
    time = f"{run + _EPOCH_MS + at // 1000:012x}"
    return f"{short}/{time[:8]}-{time[8:]}"


#: How much a unit of each weighs when users are compared: an accelerator outweighs any machine's cores and memory.
DEVICE_WEIGHT = 1000
CORE_WEIGHT = 5
GIB_WEIGHT = 1


def weight(resources: Resources, tasks: int = 1) -> int:
    """How much so many tasks of these resources take from the others; at least 1, so that nothing is free."""
    devices, millicores, memory, _ = resources.vector
    return tasks * max(1, DEVICE_WEIGHT * devices + CORE_WEIGHT * millicores // 1000 + GIB_WEIGHT * memory // GIB)
