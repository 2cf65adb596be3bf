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
    """How a placement ended. The value tells whether the time for which the gang held its hosts was
    useful.
    """

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # the program's own fault
    CANCELLED = "cancelled"  # ended on purpose: cancelled, or a sibling failed
    PREEMPTED = "preempted"  # the machine, the provider or a job of a higher band ended it
    SET_UP_FAILED = "set-up failed"  # the environment could not be set up
    NEVER_STARTED = "never started"  # no program was started, and nobody asked for that
    UNKNOWN = "unknown"  # the gang's workflow was terminated, or is gone
    OPEN = "open"  # the placement has not ended; only in answers about the present, never stored


class Asked(Frozen):
    """The parts of a gang's request that cannot be derived from its placement."""

    #: The earliest time at which the gang could request hosts, plus the time for which a user or a
    #: budget kept the gang on hold, which does not count as waiting.
    at: datetime
    #: The time from which the scheduler counts how long the gang waits; None if it is the same as
    #: `at`.
    queued_at: datetime | None = None
    #: The job's constraints as texts, as in `iris.model.job.requests.Shape`.
    constraints: tuple[str, ...] = ()
    #: The attribute that the hosts of one group share; None for a task that is placed by itself.
    group_by: str | None = None
    #: The number of groups of hosts that the attempt ran on, such as slices. All hosts of a group
    #: have the same value of `group_by`.
    groups: int = 1
    #: The amount of each named limit of the cluster that the gang occupies while it has hosts.
    limits: dict[str, int] = Field(default_factory=dict)
    #: The scheduling timeout of the gang; None if it waits without a limit.
    scheduling_timeout: timedelta | None = None


class AttemptEnd(Frozen):
    """The part of a placement's record of use that only the gang's workflow knows. The workflow
    sends it when it releases the placement.
    """

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
    #: hosts before it learned of its placement, and got other hosts with the same key, the record
    #: of the lost placement has the key followed by a time.
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
    #: The sum of the shares of its hosts that the gang held. The share of a host is the largest
    #: share of any of its resources: 0.25 if the gang held at most a quarter of each resource.
    host_share: float
    #: The number of TPU chips that the gang held, summed over its hosts. The next fields are the
    #: sums for the other resources.
    tpu_chips: int = 0
    gpus: int = 0
    cpu_millis: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    #: The variant of the device that the gang requested; empty if it requested any variant, or no
    #: device.
    variant: str = ""
    #: The number of tasks that shared each host.
    tasks_per_host: int = 1
    #: The parts of the gang's request for hosts, such as its constraints, that its workflow
    #: reported at the end of the placement. None while `end` is OPEN, and if `end` is UNKNOWN.
    asked: Asked | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    placed_at: datetime
    #: When the first program started; None if no program started or the time is not known.
    started_at: datetime | None = None
    #: When the hosts were released or lost. While `end` is OPEN, the time at which the record was
    #: made.
    ended_at: datetime
    end: UseEnd


class SliceUse(Frozen):
    """The record of one slice, from its request until its machines were gone."""

    kind: Literal["slice"] = "slice"
    #: The slice's id, which is never used again. A slice whose machines joined by themselves can
    #: join several times. Then the id is followed by a slash and a text that is unique to the
    #: record.
    id: str
    group: str
    zone: str
    #: The provider's name for a machine: its machine type, or the slice's accelerator type.
    machine: str
    preemptible: bool = False
    hosts: int
    #: The number of TPU chips of the slice, summed over its hosts. The next fields are the sums for
    #: the other resources.
    tpu_chips: int = 0
    gpus: int = 0
    cpu_millis: int = 0
    requested_at: datetime
    #: When the slice first accepted work; None if it never did.
    ready_at: datetime | None = None
    #: When the slice's last machine was gone. While `open` is True, the time at which the record
    #: was made.
    gone_at: datetime
    #: Why the slice ended.
    reason: str = ""
    #: Why the slice could not be created or was lost; None if it was created and was not lost.
    fault: SliceFault | None = None
    #: True if the slice still exists. Records with True are never stored; they occur only in
    #: results about the current time.
    open: bool = False


class DroppedUses(Frozen):
    """Counts records of use that were lost because the store did not answer for too long. Sums over
    the time from `since` to `until` are too small.
    """

    kind: Literal["dropped"] = "dropped"
    id: str
    #: The number of lost records.
    count: int
    #: The time at which the first of the placements or slices with lost records ended.
    since: datetime
    #: The time at which the last of the placements or slices with lost records ended.
    until: datetime


#: A record of a gang's placement or of a slice.
Use = AttemptUse | SliceUse
#: Any of the records that a stored object contains, one on each line.
Record = AttemptUse | SliceUse | DroppedUses
#: Converts a record from and to JSON.
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
