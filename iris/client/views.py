"""What a client shows of jobs, and how a job's state is read from what Temporal lists of its workflow."""

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field
from temporalio.client import WorkflowExecution, WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey

from iris import names
from iris.attempts import AttemptRecord
from iris.jobs import JobStatus, TaskStatus
from iris.states import LIVE, JobState, TaskState


class Submitted(BaseModel):
    """A job that has been accepted."""

    model_config = ConfigDict(frozen=True)

    id: str
    workflow_id: str
    run_id: str
    #: Its page in Temporal's Web UI; empty when the cluster has none.
    ui: str


class JobRow(BaseModel):
    """A job in a list."""

    model_config = ConfigDict(frozen=True)

    id: str
    state: JobState
    user: str
    submitted_at: datetime
    command: str


class LogSource(BaseModel):
    """What a reader of a job's logs needs to know."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    tasks: int


class Explanation(BaseModel):
    """Why a job is where it is: for a waiting one the scheduler's reason with its numbers; and how it came there."""

    model_config = ConfigDict(frozen=True)

    id: str
    state: JobState
    code: str
    message: str
    needed: dict[str, int] = Field(default_factory=dict)
    free: dict[str, int] = Field(default_factory=dict)
    #: For a waiting one: how many hosts the reason is about, how many requests are served first, how many hosts each constraint
    #: excludes, what would end the wait.
    hosts: int = 0
    ahead: int = 0
    excluded: dict[str, int] = Field(default_factory=dict)
    remedy: str = ""
    #: What the autoscaler does about it (the message says so, too), and since when.
    scaling: str = ""
    since: datetime | None = None
    #: For a waiting gang: how many hosts it needs in one group, and how many the best group has (BUSY: has free).
    group_needs: int = 0
    group_has: int = 0
    #: What became of every attempt so far, by task; of a gang they are all the first task's.
    attempts: dict[int, tuple[AttemptRecord, ...]] = Field(default_factory=dict)


def attribute(execution: WorkflowExecution, name: str) -> str:
    return str(execution.typed_search_attributes.get(SearchAttributeKey.for_keyword(name)) or "")


def state_of(execution: WorkflowExecution) -> JobState:
    """A job's state as lists know it: the workflow's own end, or what it last showed."""
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
    """The status of an ended job. One that was terminated had no time to say so itself."""
    if status.state is end:
        return status
    reason = "its workflow was terminated"

    def ended(task: TaskStatus) -> TaskStatus:
        if task.state in LIVE or task.state is TaskState.PENDING:
            return task.model_copy(update={"state": TaskState.KILLED, "reason": reason})
        return task

    return status.model_copy(update={"state": end, "reason": reason, "tasks": tuple(ended(task) for task in status.tasks)})


def story(status: JobStatus) -> str:
    """What there is to say of a job that gives no reason itself."""
    if status.state is JobState.SUCCEEDED:
        return "every task ended with exit code 0"
    hosts = sorted({task.host for task in status.tasks if task.host and task.state in LIVE})
    if hosts:
        return f"runs on {', '.join(hosts)}"
    return "has just been submitted"
