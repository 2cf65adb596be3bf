"""The current state of a job (`JobStatus`) and of its tasks (`TaskStatus`), as clients see it."""

from datetime import datetime

from iris.model.frozen import Frozen
from iris.model.job.cancelling import Cancelling, state_text
from iris.model.states import JobState, TaskState
from iris.model.units import format_duration


class TaskStatus(Frozen):
    """The current state of one task."""

    index: int
    state: TaskState = TaskState.PENDING
    #: The number of the latest attempt that had a host or that the scheduler has forgotten; 0
    #: before the first.
    attempt: int = 0
    host: str | None = None
    exit_code: int | None = None
    reason: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    failures: int = 0
    preemptions: int = 0
    #: The attempts in a row that no host accepted, and those in a row that an infrastructure fault
    #: ended.
    undelivered: int = 0
    faults: int = 0
    #: The attempts since a program last ran whose set-up failed.
    setups: int = 0
    #: The scheduler's key of the current attempt while it waits or runs.
    key: str | None = None
    #: The code, remedy and time of the scheduler's reason while it waits, of one of several
    #: independent tasks; empty: the job does not know them.
    code: str = ""
    remedy: str = ""
    refused_at: datetime | None = None
    #: The cancellation of this task alone, until it ends.
    cancelling: Cancelling | None = None


class JobStatus(Frozen):
    """The current state of one job."""

    id: str
    state: JobState
    reason: str = ""
    user: str
    #: Whether its user holds it. The job shows HELD only while none of its tasks runs.
    held: bool = False
    submitted_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    #: The cancellation of the whole job, until it ends.
    cancelling: Cancelling | None = None
    tasks: tuple[TaskStatus, ...]


def why_no_output(status: JobStatus, task: int | None = None) -> str:
    """Returns the sentence for a job whose log is empty: whether it ran, and its state or how it
    ended.

    Args:
        task: only this task was asked for; None: all.
    """
    shown = next((each for each in status.tasks if each.index == task), status)
    name = status.id if task is None or shown is status else f"{status.id}:{task}"
    state = state_text(shown)
    ran = shown.started_at is not None
    if shown.started_at is not None and shown.finished_at is not None:
        state += f" after {format_duration(shown.finished_at - shown.started_at)}"
    if shown.reason:
        state += f": {shown.reason}"
    if status.state.ended or shown.finished_at is not None:
        return (
            f"{name} {'wrote no output' if ran else 'never ran, so it has no output'}; it ended"
            f" {state}"
        )
    return f"{name} {'has written no output yet' if ran else 'has not run yet'}; it is {state}"
