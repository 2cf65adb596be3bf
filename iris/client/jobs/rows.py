"""A job as lists show it: what the Temporal service knows of its workflow."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import Field
from temporalio.client import WorkflowExecution, WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey

from iris.client.connect.rpc import UNREADABLE_MEMO, memo_of
from iris.model import names
from iris.model.frozen import Frozen
from iris.model.job.arrays import MAX_TASKS
from iris.model.job.cancelling import Cancelling, cancelling_in
from iris.model.job.children import parent_in
from iris.model.job.spec import MAX_REPLICAS, Band
from iris.model.job.tags import MEMO_NOTE, tags_in
from iris.model.states import JobState

#: The text that replaces an encrypted command if this client does not have its key.
UNREADABLE = "(cannot be read with the keys known here)"


class JobRow(Frozen):
    """A job as a list shows it."""

    id: str
    state: JobState
    user: str
    submitted_at: datetime
    command: str
    priority: str = Band.INTERACTIVE
    #: The number of tasks. None if this client cannot read the job's description.
    tasks: int | None = 1
    #: The number of the run among all runs with this job name; the oldest run is 1. None for the
    #: latest run.
    run: int | None = None
    #: The accelerators of each task, such as `gpu:H100:8`. Empty if the task has none.
    device: str = ""
    #: The reason for the state. For a waiting job, it is the code of the scheduler's reason. Empty
    #: if no reason is known.
    reason: str = ""
    #: The cancellation that is in progress, while programs of the job still run. None if the job is
    #: not being cancelled.
    cancelling: Cancelling | None = None
    #: The id of the first run of the parent job. Empty if the job has no parent.
    parent_run: str = ""
    #: The git commit of the job's files. It ends with `+` if the files differ from the commit.
    #: Empty if no commit is known.
    commit: str = ""
    tags: dict[str, str] = Field(default_factory=dict)
    note: str = ""
    #: Temporal's id of the run in this row. A job that continued as new has several runs. Empty if
    #: the id is unknown.
    run_id: str = ""

    @property
    def parent(self) -> str | None:
        """The id of the parent job. None if the job has no parent."""
        return names.parent_id(self.id)


def attribute(execution: WorkflowExecution, name: str) -> str:
    """Returns the value of a search attribute. Returns an empty text if it has no value."""
    return str(execution.typed_search_attributes.get(SearchAttributeKey.for_keyword(name)) or "")


def tags_of(execution: WorkflowExecution) -> dict[str, str]:
    """Returns the tags of a job in a list."""
    return tags_in(
        execution.typed_search_attributes.get(SearchAttributeKey.for_keyword_list(names.SA_TAGS))
        or ()
    )


def state_of(execution: WorkflowExecution) -> JobState:
    """Returns the job's state for a list: by how the workflow ended, or by the state that a running
    workflow published last.
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


def device_in(memo: Mapping[str, Any]) -> str:
    """Returns the accelerators of each task by the job's memo. Returns an empty text if the memo
    has none.
    """
    device = memo.get(names.MEMO_DEVICE)
    return device if isinstance(device, str) else ""


def commit_in(memo: Mapping[str, Any]) -> str:
    """Returns the git commit of a job's files by the job's memo. Returns an empty text if the memo
    has none.
    """
    commit = memo.get(names.MEMO_COMMIT)
    return commit if isinstance(commit, str) else ""


def note_in(memo: Mapping[str, Any]) -> str:
    """Returns the user's note by the job's memo. Returns an empty text if there is none."""
    note = memo.get(MEMO_NOTE)
    return note if isinstance(note, str) else ""


def reason_in(memo: Mapping[str, Any], state: JobState) -> str:
    """Returns the reason of a job's state by the job's memo. Returns an empty text if the memo has
    no reason, or the reason of another state.
    """
    shown = memo.get(names.MEMO_REASON)
    reason = (
        shown.get("reason") if isinstance(shown, dict) and shown.get("state") == state else None
    )
    return reason if isinstance(reason, str) else ""


def tasks_in(memo: Mapping[str, Any]) -> int:
    """Returns the number of a job's tasks by the job's memo. Returns 1 if the memo has no valid
    number: any client can start a workflow with any memo.
    """
    tasks = memo.get(names.MEMO_TASKS)
    return tasks if isinstance(tasks, int) and 0 < tasks <= max(MAX_REPLICAS, MAX_TASKS) else 1


async def row_of(execution: WorkflowExecution) -> JobRow:
    """Returns the row of a job in a list."""
    memo = await memo_of(execution)
    known, state = memo is not UNREADABLE_MEMO, state_of(execution)
    cancelling = None if state.ended else cancelling_in(memo)
    return JobRow(
        id=names.job_of_workflow(execution.id),
        state=state,
        user=attribute(execution, names.SA_USER),
        submitted_at=execution.start_time,
        command=str(memo.get(names.MEMO_COMMAND, "")) if known else UNREADABLE,
        priority=attribute(execution, names.SA_PRIORITY),
        tasks=tasks_in(memo) if known else None,
        device=device_in(memo),
        commit=commit_in(memo),
        parent_run=parent.run_id if (parent := parent_in(memo)) is not None else "",
        reason=str(cancelling) if cancelling is not None else reason_in(memo, state),
        cancelling=cancelling,
        tags=tags_of(execution),
        note=note_in(memo),
        run_id=execution.run_id,
    )
