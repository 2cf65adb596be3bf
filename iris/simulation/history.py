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


#: The name of the simulated cluster. No real cluster is involved.
CLUSTER = "simulation"


class Placed(NamedTuple):
    """One attempt of a gang on hosts."""

    at: datetime
    group: str
    slices: tuple[str, ...]


class Reason(NamedTuple):
    """A reason for which a gang waited, from the time `at` until its next reason or its first
    hosts.
    """

    at: datetime
    code: RefusalCode
    message: str


@dataclass(slots=True)
class GangHistory:
    """The events of one gang in a simulation."""

    trace: GangTrace
    #: The time at which the gang first asked for hosts.
    asked_at: datetime
    #: How many times the same gang was submitted before this submission.
    resubmitted: int = 0
    attempts: list[Placed] = field(default_factory=list)
    #: How many times the gang was evicted for a gang of a higher band, or because it held amounts
    #: that its quota had borrowed.
    evictions: int = 0
    #: How many times the gang lost a host because the host's machine was lost.
    losses: int = 0
    #: The state in which the gang ended: SUCCEEDED, FAILED, KILLED or UNSCHEDULABLE; or
    #: WORKER_FAILED or PREEMPTED if its retries were used up. None if the gang had not ended when
    #: the simulation ended.
    state: TaskState | None = None
    ended_at: datetime | None = None
    #: The reasons for which the gang waited for its first hosts, in the order of time. They are
    #: recorded only for gangs that wait long (`EXPLAIN_EVERY`).
    reasons: list[Reason] = field(default_factory=list)

    def waited(self, until: datetime) -> float:
        """Returns the seconds until its first hosts, or until its end or `until` if it got none."""
        first = self.attempts[0].at if self.attempts else self.ended_at or until
        return (first - self.asked_at).total_seconds()


class Refused(NamedTuple):
    """A slice that could not be created, or that was lost."""

    at: datetime
    slice_id: str
    group: str
    zone: str
    fault: SliceFault


class Sample(NamedTuple):
    """The state of the cluster at one time."""

    at: datetime
    #: The number of waiting gangs in each band, in the order of the bands.
    waiting: tuple[int, ...]
    #: The number of gangs that hold hosts.
    running: int
    #: The number of ready hosts of each scale group, in the order of the configuration.
    ready: tuple[int, ...]
    #: For each scale group, the sum of the shares of its hosts that gangs hold: 1.5 if gangs hold
    #: one host and half of another one.
    held: tuple[float, ...]


@dataclass(slots=True)
class History:
    """The result of one simulation."""

    begins: datetime
    #: The end of the recorded time. Gangs that arrived before this time may run on after it.
    ends: datetime
    #: The time at which the simulation ended.
    stopped: datetime
    #: The names of the scale groups, in the order of the configuration.
    groups: tuple[str, ...]
    gangs: list[GangHistory]
    #: The records of use, as the real scheduler and slices make them. `open` is true in the records
    #: of slices that still exist at the end.
    uses: list[AttemptUse | SliceUse]
    faults: list[Refused]
    samples: list[Sample]
    #: The number of passes of the scheduler in the simulation.
    passes: int = 0
    #: The number of evaluations of the autoscaler in the simulation.
    evaluations: int = 0
