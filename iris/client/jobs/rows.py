"""The client's views of jobs, and the conversion of Temporal's workflow status to a job state."""

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


def attribute(execution: WorkflowExecution, name: str) -> str:
    return str(execution.typed_search_attributes.get(SearchAttributeKey.for_keyword(name)) or "")


def tags_of(execution: WorkflowExecution) -> dict[str, str]:
    """Returns the tags of a job in a list."""
    return tags_in(
        execution.typed_search_attributes.get(SearchAttributeKey.for_keyword_list(names.SA_TAGS))
        or ()
    )


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


#: The command of a job whose description is encrypted with a key that this client does not have.
UNREADABLE = "(cannot be read with the keys known here)"


def device_in(memo: Mapping[str, Any]) -> str:
    """Returns the accelerators of each of a job's tasks by its memo; empty if the memo has none."""
    device = memo.get(names.MEMO_DEVICE)
    return device if isinstance(device, str) else ""


def commit_in(memo: Mapping[str, Any]) -> str:
    """Returns the git commit of a job's files by its memo; empty if the memo has none."""
    commit = memo.get(names.MEMO_COMMIT)
    return commit if isinstance(commit, str) else ""


def note_in(memo: Mapping[str, Any]) -> str:
    """Returns what a job's user has noted, by the job's memo; empty if the memo has nothing."""
    note = memo.get(MEMO_NOTE)
    return note if isinstance(note, str) else ""


def reason_in(memo: Mapping[str, Any], state: JobState) -> str:
    """Returns the reason of a job's state by its memo; empty if the memo has none, or that of
    another state.
    """
    shown = memo.get(names.MEMO_REASON)
    reason = (
        shown.get("reason") if isinstance(shown, dict) and shown.get("state") == state else None
    )
    return reason if isinstance(reason, str) else ""


def tasks_in(memo: Mapping[str, Any]) -> int:
    """Returns the number of a job's tasks by its memo; 1 if the memo has none: any client can start
    a workflow with any memo.
    """
    tasks = memo.get(names.MEMO_TASKS)
    return tasks if isinstance(tasks, int) and 0 < tasks <= max(MAX_REPLICAS, MAX_TASKS) else 1


async def row_of(execution: WorkflowExecution) -> JobRow:
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
