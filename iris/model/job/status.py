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
    #: The number of the latest attempt. Only attempts that had a host, and attempts whose request
    #: the scheduler has forgotten, are counted. The number is 0 before the first attempt.
    attempt: int = 0
    host: str | None = None
    exit_code: int | None = None
    reason: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    failures: int = 0
    preemptions: int = 0
    #: The number of consecutive attempts that no host accepted.
    undelivered: int = 0
    #: The number of consecutive attempts that an infrastructure fault ended.
    faults: int = 0
    #: The number of attempts whose set-up failed since the last time that a program ran.
    setups: int = 0
    #: The scheduler's key for the current attempt, while the attempt waits or runs.
    key: str | None = None
    #: The scheduler's code for why the task waits. The scheduler tells a job with several
    #: independent tasks the code of only one of them; `code` is empty for its other tasks.
    code: str = ""
    #: The scheduler's advice to a user whose task waits; empty whenever `code` is empty.
    remedy: str = ""
    #: The time of the scheduler's answer that the task must wait; None whenever `code` is empty.
    refused_at: datetime | None = None
    #: The requested cancellation of this task alone. It is None if no user has cancelled this task
    #: alone, and again when the task has ended.
    cancelling: Cancelling | None = None


class JobStatus(Frozen):
    """The current state of one job."""

    id: str
    state: JobState
    reason: str = ""
    user: str
    #: Whether the user holds the job. The job's state is HELD only while none of its tasks runs.
    held: bool = False
    submitted_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    #: The requested cancellation of the whole job. It is None if the job is not cancelled, and
    #: again when the job has ended.
    cancelling: Cancelling | None = None
    tasks: tuple[TaskStatus, ...]


def why_no_output(status: JobStatus, task: int | None = None) -> str:
    """Returns a sentence that says why the log of a job is empty: whether the job ran, and its
    state.

    Args:
        task: the index of the task whose log is shown; None for the logs of all tasks.
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
