"""Reads how the tasks of a large array ended, from the results of the array's parts."""

import asyncio

from pydantic import ValidationError
from temporalio.client import WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from iris.activities.control.service import first_run
from iris.client.connect.rpc import Connection
from iris.client.jobs.submitted import submitted_spec
from iris.messages.array_part import PartReport
from iris.model.job.arrays import MAX_KEPT_REASON, part_workflow
from iris.model.job.demand_limits import cut
from iris.model.job.status import TaskStatus
from iris.model.states import ENDED, TaskState
from iris.scheduling.jobs.array_windows import chunks

#: The maximum number of parts of a large array whose results are read at the same time. The largest
#: array has 40 parts.
_AT_ONCE = 8


async def tasks_of_parts(
    connection: Connection, described: WorkflowExecutionDescription, job: str
) -> tuple[TaskStatus, ...] | None:
    """Returns all tasks of a large array that has ended. Returns None if the array has no parts, or
    if the parts do not know how each task ended.

    Only the job knows why its tasks were killed. Only the job knows the end of a task whose part
    never began, was terminated, or now belongs to a later job of the same name.
    """
    spec = await submitted_spec(connection, job, first_run(described))
    if spec.array is None or not spec.array.has_parts(spec.replicas):
        return None
    at_once = asyncio.Semaphore(_AT_ONCE)

    async def read(number: int) -> tuple[TaskStatus, ...]:
        async with at_once:
            return await _tasks_of(
                connection, described, part_workflow(connection.record.name, job, number)
            )

    parts = await asyncio.gather(
        *(read(number) for number, _ in enumerate(chunks(spec.indices, spec.array.part)))
    )
    tasks = [task for part in parts for task in part]
    if [task.index for task in tasks] != list(spec.indices):
        return None
    if any(task.state not in ENDED or task.state is TaskState.KILLED for task in tasks):
        return None
    return tuple(
        task.model_copy(update={"reason": cut(task.reason, MAX_KEPT_REASON)}) for task in tasks
    )


async def _tasks_of(
    connection: Connection, job: WorkflowExecutionDescription, part: str
) -> tuple[TaskStatus, ...]:
    """Returns the tasks of a part of this job. Returns no tasks if the part does not exist or has
    no result.
    """
    with connection.rpc_errors():
        try:
            described = await connection.workflow(part).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return ()
            raise
        belongs = (described.parent_id, described.parent_run_id) == (job.id, job.run_id)
        if not belongs or described.status is not WorkflowExecutionStatus.COMPLETED:
            return ()
        result = await connection.workflow(part, described.run_id).result(follow_runs=False)
    try:
        return PartReport.model_validate(result).tasks
    except ValidationError:  # any client can start a workflow of this id
        return ()
