"""The result of a task that has ended: what its function returned or raised in the last attempt."""

from datetime import timedelta
from typing import Any

from iris.client.functions.result import PATIENCE, Raised, RemoteTraceback, read_result
from iris.model.errors import JobFailed
from iris.model.jobs import TaskStatus
from iris.model.states import TaskState
from iris.storage.object_store import Store

#: How long the result of a failed task may be missing in the store. A task that was killed leaves none.
FAILED_PATIENCE = timedelta(seconds=3)


async def task_result(store: Store, job: str, run_id: str, task: TaskStatus) -> Any:
    """Returns what the function returned in the task's last attempt.

    Raises:
        Exception: what the function raised.
        JobFailed: the function raised what cannot be restored here.
        NoResult: the result is not in the store, or cannot be restored here.
    """
    patience = FAILED_PATIENCE if task.state is TaskState.FAILED else PATIENCE
    value = await read_result(store, job, run_id, task.index, task.attempt, patience=patience)
    if not isinstance(value, Raised):
        return value
    error = value.error
    if error is None or isinstance(error, StopIteration | StopAsyncIteration):  # a coroutine cannot raise these
        error = JobFailed(f"task {task.index} of {job} raised {value.text}")
    raise error from RemoteTraceback(value.traceback)
