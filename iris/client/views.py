"""The client's views of jobs, and the conversion of Temporal's workflow status to a job state."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from urllib.parse import quote

from pydantic import Field
from temporalio.client import WorkflowExecution, WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey

from iris.model import names
from iris.model.errors import NotFound
from iris.model.frozen import Frozen
from iris.model.job.arrays import find_task, format_indices
from iris.model.job.attempts import AttemptRecord
from iris.model.job.cancelling import Cancelling
from iris.model.job.spec import Band
from iris.model.job.status import JobStatus, TaskStatus
from iris.model.job.tags import tags_in
from iris.model.states import LIVE, JobState, TaskState
from iris.scheduling.placement.refusals import Refusal, RefusalCode


class Submitted(Frozen):
    """A job that was accepted."""

    id: str
    workflow_id: str
    run_id: str
    #: The job's page in Temporal's Web UI; empty when the cluster has none.
    ui: str


class CancelRequest(NamedTuple):
    """The answer to the request to cancel a job or one of its tasks."""

    #: The state of one that has ended already: there is nothing to cancel. None: it has not.
    ended: JobState | TaskState | None
    #: How long its programs may take to end.
    grace: timedelta


class JobRow(Frozen):
    """A job in a list."""

    id: str
    state: JobState
    user: str
    submitted_at: datetime
    command: str
    priority: str = Band.INTERACTIVE
    #: None: unknown, because this client cannot read the job's description.
    tasks: int | None = 1
    #: Its number among the runs of its name, the oldest of which is 1; None: it is the latest of
    #: them.
    run: int | None = None
    #: The accelerators of each task, such as `gpu:H100:8`; empty: none.
    device: str = ""
    #: For a waiting job the code of the scheduler's reason; why a job is held or did not succeed;
    #: empty: none is known.
    reason: str = ""
    #: The cancellation of a job whose programs still run.
    cancelling: Cancelling | None = None
    #: The first run of the job that it belongs to; empty: it belongs to none.
    parent_run: str = ""
    #: The git commit of its files, with a `+` if they differ from it; empty: none is known.
    commit: str = ""
    tags: dict[str, str] = Field(default_factory=dict)
    note: str = ""
    #: Temporal's id of the run that was listed; empty: unknown. A job that has continued as new has
    #: others before and after it.
    run_id: str = ""

    @property
    def parent(self) -> str | None:
        """The id of the job that it belongs to; None: it belongs to none."""
        return names.parent_id(self.id)


class TrialAnswer(Frozen):
    """The part of the scheduler's `Answer` to a trial request that tells why a job cannot run. The
    whole `Answer` would import the scheduler's state.
    """

    refusal: Refusal | None = None


class LogSource(Frozen):
    """What a reader of a job's logs or results needs."""

    run_id: str
    tasks: int
    #: The indices of the tasks; None: those from 0.
    indices: tuple[int, ...] | None = None
    #: Whether the job runs a function, which leaves a result.
    function: bool = False

    @property
    def numbers(self) -> Sequence[int]:
        """The indices of the tasks."""
        return range(self.tasks) if self.indices is None else self.indices


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


def attribute(execution: WorkflowExecution, name: str) -> str:
    return str(execution.typed_search_attributes.get(SearchAttributeKey.for_keyword(name)) or "")


def tags_of(execution: WorkflowExecution) -> dict[str, str]:
    """Returns the tags of a job in a list."""
    return tags_in(
        execution.typed_search_attributes.get(SearchAttributeKey.for_keyword_list(names.SA_TAGS))
        or ()
    )


def page_of(ui: str, namespace: str, workflow_id: str, run_id: str | None = None) -> str:
    """Returns the address of a workflow's page, of its latest run if none is given; empty without a
    Web UI (`ui`).
    """
    run = f"/{run_id}" if run_id else ""
    return f"{ui}/namespaces/{namespace}/workflows/{quote(workflow_id, safe='')}{run}" if ui else ""


def state_of(execution: WorkflowExecution) -> JobState:
    """Returns the job's state for a list: from the workflow's own end, else from the state that it
    last published.
    """
    match execution.status:
        case WorkflowExecutionStatus.COMPLETED:
            return JobState.SUCCEEDED
        case WorkflowExecutionStatus.CANCELED | WorkflowExecutionStatus.TERMINATED:
            return JobState.KILLED
        case WorkflowExecutionStatus.TIMED_OUT:
            return JobState.FAILED
    shown = attribute(execution, names.SA_STATE)
    state = JobState(shown) if shown in JobState.__members__ else JobState.PENDING
    if execution.status is WorkflowExecutionStatus.FAILED and not state.ended:
        return JobState.FAILED
    return state


def overruled(status: JobStatus, end: JobState) -> JobStatus:
    """Applies the workflow's end state to the job's status. A terminated workflow cannot record its
    own end.
    """
    if status.state is end:
        return status
    reason = "its workflow was terminated"

    def ended(task: TaskStatus) -> TaskStatus:
        if task.state in LIVE or task.state is TaskState.PENDING:
            return task.model_copy(update={"state": TaskState.KILLED, "reason": reason})
        return task

    return status.model_copy(
        update={
            "state": end,
            "reason": reason,
            "tasks": tuple(ended(task) for task in status.tasks),
        }
    )


def task_of(job: str, index: int, tasks: Sequence[TaskStatus]) -> TaskStatus:
    """Returns the task of the job with this index.

    Raises:
        NotFound: it has none.
    """
    check_task(job, index, [each.index for each in tasks])
    found = find_task(tasks, index)
    assert found is not None
    return found


def check_task(job: str, index: int, tasks: Sequence[int]) -> None:
    """Checks that a job with these tasks has the task.

    Raises:
        NotFound: it has none with this index.
    """
    if index not in tasks:
        text = format_indices(tasks)
        numbers = (
            f"0 to {tasks[-1]}"
            if len(tasks) == tasks[-1] + 1
            else text
            if len(text) <= 60
            else f"{text[:57]}..."
        )
        raise NotFound(f"job {job} has no task {index}; its tasks are {numbers}")


def cancelling_of(status: JobStatus, index: int | None) -> Cancelling | None:
    """Returns the cancellation of the job, or of its task with that index; None: it is not being
    cancelled.
    """
    task = find_task(status.tasks, index) if index is not None else None
    return (
        task.cancelling if task is not None and task.cancelling is not None else status.cancelling
    )


def described(status: JobStatus, index: int | None = None) -> str:
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
