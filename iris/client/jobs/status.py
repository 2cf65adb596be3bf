"""Reads the status that a job itself reports: the result of one that has ended, or the answer of one that has not."""

from pydantic import ValidationError
from temporalio.client import WorkflowExecutionDescription, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import ApplicationError

from iris.client.connect.rpc import Connection, memo_of
from iris.client.job_filter import tasks_in
from iris.model.jobs import JobStatus

#: Jobs that ended by themselves. Others have no result: they were cancelled or terminated.
_WITH_RESULT = (WorkflowExecutionStatus.COMPLETED, WorkflowExecutionStatus.FAILED)


async def reported_status(connection: Connection, described: WorkflowExecutionDescription) -> JobStatus:
    """Returns the status that the job reports. One that has ended is not asked: an answer would replay its whole history.

    Raises:
        Unreachable: no control plane answers, or the service does not.
    """
    status = await _result(connection, described)
    if status is not None:
        return status
    return await connection.query(connection.workflow(described.id, described.run_id), "status", JobStatus)


async def _result(connection: Connection, described: WorkflowExecutionDescription) -> JobStatus | None:
    """Returns the status with which a job ended; None: it has not, or the results do not have all of its tasks."""
    if described.status not in _WITH_RESULT:
        return None
    with connection.rpc_errors():
        try:
            end = await connection.workflow(described.id, described.run_id).result(follow_runs=False)
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
    from iris.client.array_results import tasks_of_parts  # few jobs have so many tasks

    tasks = await tasks_of_parts(connection, described, status.id)
    return None if tasks is None else status.model_copy(update={"tasks": tasks})
