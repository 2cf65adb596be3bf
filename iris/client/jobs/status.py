"""Reads the status that a job itself reports: the result of one that has ended, or the answer of
one that has not.
"""

import asyncio
from typing import NamedTuple

from pydantic import ValidationError
from temporalio.client import (
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from iris.activities.control.service import first_run
from iris.client.connect.rpc import Connection, NotStarted, memo_of
from iris.client.jobs.lists import describe_job, tasks_in
from iris.client.jobs.submitted import submitted_spec
from iris.messages.array_part import PartReport
from iris.messages.job import Attempts
from iris.messages.task import OwnStatus
from iris.model import names
from iris.model.errors import Unreachable
from iris.model.job.arrays import MAX_KEPT_REASON, part_workflow
from iris.model.job.attempts import AttemptRecord
from iris.model.job.demand_limits import cut
from iris.model.job.status import JobStatus, TaskStatus
from iris.model.states import ENDED, LIVE, JobState, TaskState
from iris.scheduling.jobs.array_windows import chunks

#: Jobs that ended by themselves. Others have no result: they were cancelled or terminated.
_WITH_RESULT = (WorkflowExecutionStatus.COMPLETED, WorkflowExecutionStatus.FAILED)


async def reported_status(
    connection: Connection, described: WorkflowExecutionDescription
) -> JobStatus:
    """Returns the status that the job reports. One that has ended is not asked: an answer would
    replay its whole history.

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
    """Returns the status with which a job ended; None: it has not, or the results do not have all
    of its tasks.
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
    from iris.client.jobs.status import tasks_of_parts  # few jobs have so many tasks

    tasks = await tasks_of_parts(connection, described, status.id)
    return None if tasks is None else status.model_copy(update={"tasks": tasks})


async def with_own_status(
    connection: Connection, status: JobStatus, index: int, run_id: str
) -> JobStatus:
    """Returns the status of a live job with that of one task as the task's own workflow has it.

    Args:
        run_id: the job's first run. A workflow of that name may belong to an earlier job.

    Raises:
        Unreachable: no control plane answers.
    """
    known = next(task for task in status.tasks if task.index == index)
    if len(status.tasks) == 1 or known.state in ENDED:
        return status
    task_id = names.task_id(status.id, index)
    try:
        own = await connection.query(
            names.task_workflow(connection.record.name, task_id), "own_status", OwnStatus
        )
    except NotStarted:  # it has not begun, or belongs to a gang
        return status
    if own.run_id != run_id:
        return status
    task = own.task
    if task.state is TaskState.KILLED:  # alone, for the job goes on
        task = task.model_copy(update={"state": TaskState.CANCELLED})
    if known.cancelling is not None and task.state not in ENDED:  # the job knows who cancelled it
        task = task.model_copy(update={"cancelling": known.cancelling, "reason": known.reason})
    runs = {}
    if status.state is JobState.PENDING and task.state in LIVE:
        is_built = task.state is TaskState.BUILDING
        runs = (
            {"state": JobState.BUILDING, "reason": task.reason}
            if is_built
            else {"state": JobState.RUNNING, "reason": ""}
        )
    tasks = tuple(task if each.index == index else each for each in status.tasks)
    return status.model_copy(update={"tasks": tasks, **runs})


#: The parts that are read at the same time. The largest array has 40.
_AT_ONCE = 8


async def tasks_of_parts(
    connection: Connection, described: WorkflowExecutionDescription, job: str
) -> tuple[TaskStatus, ...] | None:
    """Returns all tasks of a large array that has ended; None: it is no large array, or its parts
    do not know all ends.

    The job alone knows how a task ended whose part has not begun, was terminated or belongs to a
    later job of that name, and why the tasks were killed.

    Raises:
        NotFound: the service no longer has the job's history.
        Unreachable: the service does not answer.
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
    """Returns the tasks with which a part of this job ended; none, if there is no such part or it
    has no result.
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


#: The most tasks of a job whose attempts one explanation lists.
MAX_TASKS_WITH_ATTEMPTS = 20


class KnownAttempts(NamedTuple):
    """The attempts of a job by task, as an `Explanation` has them."""

    attempts: dict[int, tuple[AttemptRecord, ...]]
    #: Why they are not known; empty: they are.
    attempts_unknown: str = ""


async def known_attempts(
    connection: Connection, status: JobStatus, index: int | None, run_id: str | None
) -> KnownAttempts:
    """Returns the attempts as `attempts_of` does, or why they are not known of a job that has
    ended.

    Raises:
        Unreachable: no control plane answers, and the job has not ended.
    """
    try:
        return KnownAttempts(await attempts_of(connection, status, index, run_id))
    except Unreachable as error:
        if not status.state.ended:
            raise
        return KnownAttempts({}, f"the outcome of its attempts is not known: {error}")


async def attempts_of(
    connection: Connection, status: JobStatus, index: int | None, run_id: str | None
) -> dict[int, tuple[AttemptRecord, ...]]:
    """Returns the attempts by task.

    The workflow of a job with independent tasks has no attempts itself, and would replay a long
    history to say so. Of such a job, the workflows of the tasks are asked that have failed, been
    preempted or never been started.

    Args:
        index: only those of this task; None: of all.
        run_id: the run of the job; None: the latest.

    Raises:
        Unreachable: no control plane answers.
    """
    cluster = connection.record.name
    if run_id is not None:
        latest = await describe_job(connection, status.id)
        run_id = None if run_id in (first_run(latest), latest.run_id) else run_id
    if len(status.tasks) == 1 or (await submitted_spec(connection, status.id, run_id)).is_gang:
        handle = connection.workflow(names.job_workflow(cluster, status.id), run_id)
        return {
            status.tasks[0].index: (await connection.query(handle, "attempts", Attempts)).attempts
        }
    if run_id is not None:
        return {}  # the workflows of its tasks have been started anew for later runs
    unlucky = [
        task.index
        for task in status.tasks
        if task.failures or task.preemptions or task.undelivered or task.setups
    ]
    indexes = unlucky[:MAX_TASKS_WITH_ATTEMPTS] if index is None else [index]
    ids = [names.task_workflow(cluster, names.task_id(status.id, each)) for each in indexes]
    answers = await asyncio.gather(*(_of_task(connection, workflow_id) for workflow_id in ids))
    return {each: answer for each, answer in zip(indexes, answers, strict=True) if answer}


async def _of_task(connection: Connection, workflow_id: str) -> tuple[AttemptRecord, ...]:
    try:
        return (await connection.query(workflow_id, "attempts", Attempts)).attempts
    except NotStarted:  # it never began
        return ()
