"""Reads the status that a job itself reports, and finds tasks in it.

A job that has ended reports its status as its result. A running job answers a query.
"""

from collections.abc import Sequence

from pydantic import ValidationError
from temporalio.client import (
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
)
from temporalio.exceptions import ApplicationError

from iris.client.connect.rpc import Connection, memo_of
from iris.client.jobs.rows import tasks_in
from iris.model.errors import NotFound
from iris.model.job.arrays import find_task, format_indices
from iris.model.job.status import JobStatus, TaskStatus
from iris.model.states import LIVE, JobState, TaskState

#: The workflow states of jobs that have a result. Cancelled and terminated jobs have none.
_WITH_RESULT = (WorkflowExecutionStatus.COMPLETED, WorkflowExecutionStatus.FAILED)


async def reported_status(
    connection: Connection, described: WorkflowExecutionDescription
) -> JobStatus:
    """Returns the status that the job reports. The status of an ended job is its result, because a
    query would replay its whole history.

    Raises:
        Unreachable: no control plane answers, or the service does not.
    """
    status = await _result(connection, described)
    if status is not None:
        return status
    return await connection.query(
        connection.workflow(described.id, described.run_id), "status", JobStatus
    )


async def _result(
    connection: Connection, described: WorkflowExecutionDescription
) -> JobStatus | None:
    """Returns the status with which a job ended. Returns None if the job has not ended, or if the
    results lack some of its tasks.
    """
    if described.status not in _WITH_RESULT:
        return None
    with connection.rpc_errors():
        try:
            end = await connection.workflow(described.id, described.run_id).result(
                follow_runs=False
            )
        except WorkflowFailureError as error:
            if not isinstance(error.cause, ApplicationError) or not error.cause.details:
                return None
            end = error.cause.details[0]
    try:
        status = JobStatus.model_validate(end)
    except ValidationError:  # any client can start a workflow of this id
        return None
    if len(status.tasks) == tasks_in(await memo_of(described)):
        return status
    # Few jobs have so many tasks that parts of the array keep their ends.
    from iris.client.jobs.array_results import tasks_of_parts

    tasks = await tasks_of_parts(connection, described, status.id)
    return None if tasks is None else status.model_copy(update={"tasks": tasks})


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
        NotFound: the job has no such task.
    """
    check_task(job, index, [each.index for each in tasks])
    found = find_task(tasks, index)
    assert found is not None
    return found


def check_task(job: str, index: int, tasks: Sequence[int]) -> None:
    """Checks that the job has a task with this index.

    Args:
        tasks: the indices of the job's tasks.

    Raises:
        NotFound: the job has no such task.
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
