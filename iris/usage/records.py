"""The records of use: one for each placement of a gang that has ended, and one for each slice that
is gone. They are stored as JSON lines (`iris.usage.lines`), and each may be stored more than once,
with the same id.

A use that has not ended yet is shown with the same values, but is not stored.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from iris.model.frozen import Frozen
from iris.model.job.spec import Band
from iris.model.slice.provisioning import SliceFault


class UseEnd(StrEnum):
    """How a placement ended. The values say what the held time was good for."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # the program's own fault
    CANCELLED = "cancelled"  # ended on purpose: cancelled, or a sibling failed
    PREEMPTED = "preempted"  # the machine, the provider or a job of a higher band ended it
    SET_UP_FAILED = "set-up failed"  # the environment could not be set up
    NEVER_STARTED = "never started"  # no program was started, and nobody asked for that
    UNKNOWN = "unknown"  # the gang's workflow was terminated, or is gone
    OPEN = "open"  # the placement has not ended; only in answers about the present, never stored


class Asked(Frozen):
    """What a gang asked for, as far as its placement does not show it."""

    #: When the gang could first ask for hosts, later by the time for which it was held.
    at: datetime
    #: The time from which the scheduler counts how long the gang waits; None if it is `at`.
    queued_at: datetime | None = None
    #: The job's constraints as texts, as in `iris.model.job.requests.Shape`.
    constraints: tuple[str, ...] = ()
    #: The attribute that the hosts of one group share; None for a task that is placed by itself.
    group_by: str | None = None
    #: The number of groups of hosts.
    groups: int = 1
    #: What the gang takes of the cluster's named limits.
    limits: dict[str, int] = Field(default_factory=dict)
    #: How long the gang waits at most; None if it waits without a limit.
    scheduling_timeout: timedelta | None = None


class AttemptEnd(Frozen):
    """What only the gang's workflow knows of the use by one of its placements."""

    end: UseEnd
    #: When the first program started; None if no program started.
    started_at: datetime | None = None
    #: The tags of the job.
    tags: dict[str, str] = Field(default_factory=dict)
    asked: Asked | None = None


class AttemptUse(Frozen):
    """The use of hosts by one placement of a gang."""

    kind: Literal["attempt"] = "attempt"
    #: The placement's key, which contains the attempt and the run of the job. If a gang lost its
    #: hosts before it knew of them, and got others with the same key, a time follows the key in the
    #: record of the first placement.
    id: str
    #: The job's id, without the task.
    job: str
    user: str
    band: Band
    #: The scale group of the hosts; empty for hosts that belong to no group.
    group: str = ""
    #: The slices of the hosts.
    slices: tuple[str, ...] = ()
    #: The number of hosts on which the gang held resources.
    hosts: int
    #: The hosts, counted by the part that the gang held of each: 0.25 if it held at most a quarter
    #: of each resource of one host.
    host_share: float
    #: The totals over all hosts that the gang held.
    tpu_chips: int = 0
    gpus: int = 0
    cpu_millis: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    #: The variant of the device that the gang asked for; empty if it asked for any, or for none.
    variant: str = ""
    #: The number of tasks that shared each host.
    tasks_per_host: int = 1
    #: None if the gang's workflow did not tell it: it was terminated, or has not ended.
    asked: Asked | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    placed_at: datetime
    #: When the first program started; None if no program started or the time is not known.
    started_at: datetime | None = None
    #: When the hosts were released or lost; the time of the question while `end` is OPEN.
    ended_at: datetime
    end: UseEnd


class SliceUse(Frozen):
    """The life of one slice."""

    kind: Literal["slice"] = "slice"
    #: The slice's id, which is never used again. If its machines joined by themselves, they may
    #: join again: then it is the id, a slash, and a text that no other of its records has.
    id: str
    group: str
    zone: str
    #: The provider's name for a machine: its machine type, or the slice's accelerator type.
    machine: str
    preemptible: bool = False
    hosts: int
    #: The totals over all hosts.
    tpu_chips: int = 0
    gpus: int = 0
    cpu_millis: int = 0
    requested_at: datetime
    #: When the slice first accepted work; None if it never did.
    ready_at: datetime | None = None
    #: When its last machine was gone; the time of the question while `open` is True.
    gone_at: datetime
    #: Why the slice ended.
    reason: str = ""
    #: Why the slice could not be created or was lost; None if it was neither.
    fault: SliceFault | None = None
    #: True if the slice still exists; only in answers about the present, never stored.
    open: bool = False


class DroppedUses(Frozen):
    """Records that were lost because the store did not answer for too long. The sums over this
    time are too small.
    """

    kind: Literal["dropped"] = "dropped"
    id: str
    #: The number of lost records.
    count: int
    #: The times at which the first and the last of these uses ended.
    since: datetime
    until: datetime


#: A record of one use.
Use = AttemptUse | SliceUse
#: Anything that a line of a stored object records.
Record = AttemptUse | SliceUse | DroppedUses
#: Reads one record from JSON.
RECORD = TypeAdapter[Record](Annotated[Record, Field(discriminator="kind")])


def times_of(record: Record) -> tuple[datetime, datetime]:
    """Returns when the use began and ended. The day of its end is where its record is stored."""
    match record:
        case AttemptUse():
            return record.placed_at, record.ended_at
        case SliceUse():
            return record.requested_at, record.gone_at
        case DroppedUses():
            return record.since, record.until
