"""The results of tasks that have ended: what their functions returned or raised in the last
attempts.
"""

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

#: How long the result of a failed task may be missing in the store. A task that was killed leaves
#: none.
FAILED_PATIENCE = timedelta(seconds=3)
#: The patience for one look.
ONE_LOOK = timedelta(milliseconds=1)
#: Results that are read at the same time.
AT_ONCE = 32


async def task_results(
    store: Store, job: str, run_id: str, tasks: Sequence[TaskStatus]
) -> list[Any]:
    """Returns what the function returned in each task's last attempt; a `Raised` or a `NoResult`
    where it returned nothing.

    All tasks ended some time ago, so missing results are awaited for the same time, and not one
    after the other.
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
    """Returns the exception for who asks for the result of this task; None: the function returned
    it.
    """
    who = f"task {task.index} of {job.id}"
    if task.state is TaskState.CANCELLED:
        return JobCancelled(f"{who} was cancelled: {task.reason}", job, task)
    if isinstance(result, Raised):
        return result.exception(who, partial(JobFailed, status=job, task=task))
    if isinstance(result, NoResult) and task.state is TaskState.FAILED:
        return JobFailed(f"{who} FAILED: {task.reason}", job, task)
    return result if isinstance(result, NoResult) else None
