"""Explains the state of a job to its user."""

from collections.abc import Iterator

from pydantic import Field

from iris.client import jobs
from iris.client.connect.rpc import Connection
from iris.client.jobs.rows import JobRow
from iris.model import names
from iris.model.frozen import Frozen
from iris.model.host.resources import format_amounts
from iris.model.job.arrays import find_task
from iris.model.job.attempts import AttemptRecord
from iris.model.job.cancelling import Cancelling
from iris.model.job.status import JobStatus
from iris.model.states import LIVE, JobState
from iris.scheduling.placement.refusals import Refusal, RefusalCode


class Explanation(Frozen):
    """Explains a job's state: its reason, and the outcome of the job's attempts."""

    id: str
    state: JobState
    #: The cancellation that is in progress, of the job or of one of its tasks. None if nothing is
    #: being cancelled.
    cancelling: Cancelling | None = None
    #: The reason for the state. If the job waits for the scheduler, it begins with the message of
    #: `refusal`.
    message: str
    #: The scheduler's reason why the job waits. None if the job does not wait.
    refusal: Refusal | None = None
    #: The outcome of every attempt so far, by the task's index. All attempts of a gang are listed
    #: under its first task.
    attempts: dict[int, tuple[AttemptRecord, ...]] = Field(default_factory=dict)
    #: The reason why the attempts of an ended job are not known: for instance, the control plane
    #: does not answer. Empty if they are known.
    attempts_unknown: str = ""
    #: The child jobs of the job.
    children: tuple[JobRow, ...] = ()

    @property
    def parent(self) -> str | None:
        """The id of the parent job. None if the job has no parent."""
        return names.parent_id(self.id)

    @property
    def code(self) -> RefusalCode | JobState:
        """The code of the refusal. The job's state if the job does not wait."""
        return self.refusal.code if self.refusal else self.state


def cancelling_of(status: JobStatus, index: int | None) -> Cancelling | None:
    """Returns the cancellation of the job, or of its task with that index. Returns None if it is
    not being cancelled.
    """
    task = find_task(status.tasks, index) if index is not None else None
    return (
        task.cancelling if task is not None and task.cancelling is not None else status.cancelling
    )


def reason_of(status: JobStatus, index: int | None = None) -> str:
    """Returns why a job, or its task with that index, is in its state, by the job's status."""
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


async def held_above(connection: Connection, job: str, refusal: Refusal) -> str:
    """Returns a remark for a job that waits for capacity: which job above it holds enough
    resources for it. Returns an empty text if no job above does.
    """
    if refusal.code not in (RefusalCode.BUSY, RefusalCode.KEPT):
        return ""
    for parent in _above(job):
        resources = (await jobs.submitted.submitted_spec(connection, parent)).resources.amounts()
        if all(
            refusal.free.get(name, 0) + resources.get(name, 0) >= needed
            for name, needed in refusal.needed.items()
        ):
            return (
                f"{parent}, to which it belongs, holds {format_amounts(resources)} itself: if"
                " that job waits for this one, request less for one of them, or add a host"
            )
    return ""


def _above(job: str) -> Iterator[str]:
    """Yields the parent of the job, the parent of that job, and so on."""
    while (parent := names.parent_id(job)) is not None:
        yield parent
        job = parent
