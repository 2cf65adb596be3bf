"""Reads what single tasks report themselves: their states and their attempts."""

import asyncio
from typing import NamedTuple

from iris.activities.control.service import first_run
from iris.client.connect.rpc import Connection, NotStarted
from iris.client.jobs.find import describe_job
from iris.client.jobs.submitted import submitted_spec
from iris.messages.job import Attempts
from iris.messages.task import OwnStatus
from iris.model import names
from iris.model.errors import Unreachable
from iris.model.job.attempts import AttemptRecord
from iris.model.job.spec import JobStatus
from iris.model.states import ENDED, LIVE, JobState, TaskState


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
