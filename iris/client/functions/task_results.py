"""Reads the results of ended tasks: the values or the exceptions of their last attempts."""

import time
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from iris.client.functions.result import PATIENCE, NoResult, Raised, read_result
from iris.concurrency import for_each
from iris.model.job.errors import JobCancelled, JobFailed
from iris.model.job.status import JobStatus, TaskStatus
from iris.model.states import TaskState
from iris.storage.object_store import Store

#: The maximum time to wait for the result of a failed task. The wait is short, because a task that
#: was killed has no result.
FAILED_PATIENCE = timedelta(seconds=3)
#: The minimum time to wait for a result. It is enough for one attempt to read the result.
ONE_LOOK = timedelta(milliseconds=1)
#: The maximum number of results that are read at the same time.
AT_ONCE = 32


async def task_results(
    store: Store, job: str, run_id: str, tasks: Sequence[TaskStatus]
) -> list[Any]:
    """Returns the value of the function in each task's last attempt. A task without a value has a
    `Raised` or a `NoResult`.

    All missing results are awaited at the same time, because all tasks have ended.
    """
    began = time.monotonic()

    async def result(task: TaskStatus) -> Any:
        patience = FAILED_PATIENCE if task.state is TaskState.FAILED else PATIENCE
        left = max(ONE_LOOK, patience - timedelta(seconds=time.monotonic() - began))
        try:
            return await read_result(store, job, run_id, task.index, task.attempt, patience=left)
        except NoResult as error:
            return error

    return await for_each(tasks, result, at_once=AT_ONCE)


def error_of(result: Any, task: TaskStatus, job: JobStatus) -> BaseException | None:
    """Returns the exception for a caller that reads the result of this task. Returns None if the
    task has a value.
    """
    who = f"task {task.index} of {job.id}"
    if task.state is TaskState.CANCELLED:
        return JobCancelled(f"{who} was cancelled: {task.reason}", job, task)
    if isinstance(result, Raised):
        return result.exception(who, partial(JobFailed, status=job, task=task))
    if isinstance(result, NoResult) and task.state is TaskState.FAILED:
        return JobFailed(f"{who} FAILED: {task.reason}", job, task)
    return result if isinstance(result, NoResult) else None
