"""Explains the state of a job without the scheduler's help."""

from pydantic import Field

from iris.client.jobs.rows import JobRow
from iris.model import names
from iris.model.frozen import Frozen
from iris.model.job.arrays import find_task
from iris.model.job.attempts import AttemptRecord
from iris.model.job.cancelling import Cancelling
from iris.model.job.spec import JobStatus
from iris.model.states import LIVE, JobState
from iris.scheduling.placement.refusals import Refusal, RefusalCode


class Explanation(Frozen):
    """The reason for a job's state, and the outcome of its attempts."""

    id: str
    state: JobState
    #: The cancellation of the job, or of its task, until it ends.
    cancelling: Cancelling | None = None
    #: The reason for the state; for a waiting job the message of its refusal.
    message: str
    #: Why the job waits, by the scheduler; None if it does not wait.
    refusal: Refusal | None = None
    #: The outcome of every attempt so far, by task. A gang's attempts are all listed under its
    #: first task.
    attempts: dict[int, tuple[AttemptRecord, ...]] = Field(default_factory=dict)
    #: Why the attempts of a job that has ended are not known: no control plane answers. Empty: they
    #: are.
    attempts_unknown: str = ""
    #: The jobs that belong to it.
    children: tuple[JobRow, ...] = ()

    @property
    def parent(self) -> str | None:
        """The id of the job that it belongs to; None: it belongs to none."""
        return names.parent_id(self.id)

    @property
    def code(self) -> RefusalCode | JobState:
        """The code of the refusal; the job's state if it does not wait."""
        return self.refusal.code if self.refusal else self.state


def cancelling_of(status: JobStatus, index: int | None) -> Cancelling | None:
    """Returns the cancellation of the job, or of its task with that index; None: it is not being
    cancelled.
    """
    task = find_task(status.tasks, index) if index is not None else None
    return (
        task.cancelling if task is not None and task.cancelling is not None else status.cancelling
    )


def reason_of(status: JobStatus, index: int | None = None) -> str:
    """Describes why a job, or its task with that index, is in its state, without the scheduler's
    help.
    """
    if (cancelling := cancelling_of(status, index)) is not None or status.reason:
        return str(cancelling or status.reason)
    if status.state is JobState.SUCCEEDED:
        return "every task ended with exit code 0"
    live = [task for task in status.tasks if task.host and task.state in LIVE]
    if live:
        attempts = {task.attempt for task in live}
        which = f"attempt {max(attempts)} " if len(attempts) == 1 and max(attempts) > 1 else ""
        does = "is prepared" if status.state is JobState.BUILDING else "runs"
        return f"{which}{does} on {', '.join(sorted({str(task.host) for task in live}))}"
    return "has just been submitted"
