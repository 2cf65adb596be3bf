"""What happened in a simulation."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from iris.model.slice.provisioning import SliceFault
from iris.model.states import TaskState
from iris.scheduling.placement.refusals import RefusalCode
from iris.simulation.trace import GangTrace
from iris.usage.records import AttemptUse, SliceUse


def job_name(number: int) -> str:
    """Returns the name of the job that stands for the gang with this number."""
    return f"gang-{number}"


def job_of(gang: GangTrace, number: int) -> str:
    """Returns the job's id in the records of use.

    Args:
        number: the place of the gang in `History.gangs`, from 1 on.
    """
    return f"{gang.user}/{job_name(number)}"


#: The name of the simulated cluster, which stands nowhere.
CLUSTER = "simulation"


class Placed(NamedTuple):
    """One attempt of a gang on hosts."""

    at: datetime
    group: str
    slices: tuple[str, ...]


class Reason(NamedTuple):
    """Why a gang waited, from this time on."""

    at: datetime
    code: RefusalCode
    message: str


@dataclass(slots=True)
class GangHistory:
    """What happened to one gang."""

    trace: GangTrace
    #: When it first asked for hosts.
    asked_at: datetime
    #: How often people had submitted it before.
    resubmitted: int = 0
    attempts: list[Placed] = field(default_factory=list)
    #: How often a gang of a higher band took its hosts.
    evictions: int = 0
    #: How often it lost its machines.
    losses: int = 0
    #: SUCCEEDED, FAILED, KILLED or UNSCHEDULABLE, or WORKER_FAILED or PREEMPTED if its retries were
    #: used up; None if it had not ended when the simulation did.
    state: TaskState | None = None
    ended_at: datetime | None = None
    #: Why it waited for its first hosts, with the time of each change; only for long waits.
    reasons: list[Reason] = field(default_factory=list)

    def waited(self, until: datetime) -> float:
        """Returns the seconds until its first hosts, or until its end or `until` if it got none."""
        first = self.attempts[0].at if self.attempts else self.ended_at or until
        return (first - self.asked_at).total_seconds()


class Refused(NamedTuple):
    """A slice that could not be created, or was lost."""

    at: datetime
    slice_id: str
    group: str
    zone: str
    fault: SliceFault


class Sample(NamedTuple):
    """The cluster at one time."""

    at: datetime
    #: The number of waiting gangs in each band, in the order of the bands.
    waiting: tuple[int, ...]
    #: The gangs that hold hosts.
    running: int
    #: The ready hosts of each scale group, in the order of the configuration.
    ready: tuple[int, ...]
    #: The parts of them that gangs hold, summed over the hosts.
    held: tuple[float, ...]


@dataclass(slots=True)
class History:
    """The result of one simulation."""

    begins: datetime
    #: The end of the recorded time. Gangs that arrived before it may run on after it.
    ends: datetime
    #: When the last gang had ended, or the simulation gave up.
    stopped: datetime
    #: The names of the scale groups, in the order of the configuration.
    groups: tuple[str, ...]
    gangs: list[GangHistory]
    #: The records of use, as the real ledger and slices make them. Slices that still exist at the
    #: end are open.
    uses: list[AttemptUse | SliceUse]
    faults: list[Refused]
    samples: list[Sample]
    #: The number of passes of the scheduler and of evaluations of the autoscaler.
    passes: int = 0
    evaluations: int = 0
