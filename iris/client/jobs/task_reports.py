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
from iris.model.errors import NotAllowed, Unreachable
from iris.model.job.attempts import AttemptRecord
from iris.model.job.status import JobStatus
from iris.model.states import ENDED, LIVE, JobState, TaskState

#: The maximum number of tasks of a job whose attempts one explanation lists.
MAX_TASKS_WITH_ATTEMPTS = 20


async def with_own_status(
    connection: Connection, status: JobStatus, index: int, run_id: str
) -> JobStatus:
    """Returns the status of a running job, in which one task is as its own workflow reports it.

    Args:
        run_id: the job's first run. A task's workflow of another run belongs to an earlier job.
    """
    known = next(task for task in status.tasks if task.index == index)
    if len(status.tasks) == 1 or known.state in ENDED:
        return status
    task_id = names.task_id(status.id, index)
    try:
        own = await connection.query(
            names.task_workflow(connection.record.name, task_id), "own_status", OwnStatus
        )
    except NotStarted:  # the task has not begun, or belongs to a gang
        return status
    if own.run_id != run_id:
        return status
    task = own.task
    if task.state is TaskState.KILLED:  # only this task ended: the job goes on
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


class KnownAttempts(NamedTuple):
    """The known attempts of a job by task, in the form that `Explanation` uses."""

    attempts: dict[int, tuple[AttemptRecord, ...]]
    #: The reason why the attempts are not known. Empty if they are known.
    attempts_unknown: str = ""


async def known_attempts(
    connection: Connection, status: JobStatus, index: int | None, run_id: str | None
) -> KnownAttempts:
    """Returns the attempts as `attempts_of` does. If no control plane answers, an ended job has
    no attempts, and the answer says why. A job of somebody else has none if the cluster's policy
    hides them.
    """
    try:
        return KnownAttempts(await attempts_of(connection, status, index, run_id))
    except NotAllowed:
        return KnownAttempts({})
    except Unreachable as error:
        if not status.state.ended:
            raise
        return KnownAttempts({}, f"the outcome of its attempts is not known: {error}")


async def attempts_of(
    connection: Connection, status: JobStatus, index: int | None, run_id: str | None
) -> dict[int, tuple[AttemptRecord, ...]]:
    """Returns the attempts by task.

    If the tasks are independent, each task has a workflow with its attempts, and the workflow of
    the job has none. Then only tasks that failed, were preempted or never started are asked.

    Args:
        index: returns only the attempts of this task. None returns the attempts of all tasks.
        run_id: the run of the job. None is the latest run.
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
        return {}  # later runs use the ids of the tasks' workflows
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
    except NotStarted:  # the task never began
        return ()
