"""The records of use: one for each placement of a gang that has ended, and one for each slice that
is gone. They are stored as JSON lines, and each may be stored more than once, with the same id.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from iris.model.frozen import Frozen
from iris.model.job.spec import Band


class UseEnd(StrEnum):
    """How a placement ended. The values say what the held time was good for."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # the program's own fault
    CANCELLED = "cancelled"  # ended on purpose: cancelled, or a sibling failed
    PREEMPTED = "preempted"  # the machine, the provider or a job of a higher band ended it
    SET_UP_FAILED = "set-up failed"  # the environment could not be set up
    NEVER_STARTED = "never started"  # no program was started, and nobody asked for that
    UNKNOWN = "unknown"  # the gang's workflow was terminated, or is gone


class AttemptUse(Frozen):
    """The use of hosts by one placement of a gang."""

    kind: Literal["attempt"] = "attempt"
    #: The placement's key. It contains the attempt and the run of the job, so it is unique.
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
    tags: dict[str, str] = Field(default_factory=dict)
    placed_at: datetime
    #: When the first program started; None if no program started or the time is not known.
    started_at: datetime | None = None
    ended_at: datetime
    end: UseEnd


class SliceUse(Frozen):
    """The life of one slice."""

    kind: Literal["slice"] = "slice"
    #: The slice's id, which is never used again.
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
    gone_at: datetime
    #: Why the slice ended.
    reason: str = ""


#: Any record of use.
Use = Annotated[AttemptUse | SliceUse, Field(discriminator="kind")]
#: Reads and writes one record as JSON.
USE = TypeAdapter[AttemptUse | SliceUse](Use)
