"""The results of a job that has ended, and the error for who asks for those of a job that has
failed.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from iris.client.connect.identity import current_user
from iris.client.functions.result import PATIENCE, NoResult, Raised, read_result
from iris.client.logs.entries import Entries
from iris.client.logs.source import LogSource
from iris.client.logs.stored import LogReader
from iris.concurrency import for_each
from iris.model.errors import Rejected
from iris.model.job.demand_limits import cut
from iris.model.job.errors import JobCancelled, JobFailed
from iris.model.job.status import JobStatus, TaskStatus
from iris.model.states import JobState, TaskState
from iris.model.terminal_text import fit
from iris.storage.object_store import STORE_ERRORS, Store

#: The maximum number of failed tasks whose exceptions are read for a job's error.
FAILED_TASKS_READ = 10
#: The maximum number of last lines of a task's output in a job's error.
LAST_LINES = 20
#: The maximum number of characters of each line of a task's output in a job's error.
LAST_LINE_LENGTH = 1000
#: The maximum number of seconds to read a task's last lines of output for a job's error. Without an
#: answer in this time, the error is raised without the lines.
LAST_LINES_TIMEOUT_S = 10.0
#: The task states that make a job fail. The state that best explains the failure comes first.
_FAILURES = (TaskState.FAILED, TaskState.WORKER_FAILED, TaskState.PREEMPTED)
_NEVER = datetime.max.replace(tzinfo=UTC)
#: The maximum time to wait for the result of a failed task. The wait is short, because a task that
#: was killed has no result.
FAILED_PATIENCE = timedelta(seconds=3)
#: The minimum time to wait for a result. It is enough for one attempt to read the result.
ONE_LOOK = timedelta(milliseconds=1)
#: The maximum number of results that are read at the same time.
AT_ONCE = 32


def check_own(job: str) -> None:
    """Refuses to read the results of another user's job.

    Raises:
        Rejected: another user submitted the job.
    """
    user = job.partition("/")[0]
    if user != current_user():
        raise Rejected(
            f"the result of {job} is not unpickled: this can run code of {user}; to trust it, pass"
            " trusted=True"
        )


async def results_of(
    store: Store,
    source: LogSource,
    status: JobStatus,
    *,
    only_first: bool,
    return_exceptions: bool = False,
) -> list[Any]:
    """Returns the result of each task of a job that has ended, or of its first task only.

    Args:
        source: the job's run, and whether it runs a function.
        return_exceptions: if the job succeeded although tasks failed, puts their exceptions into
            the list instead of raising one.

    Raises:
        Exception: what the function raised.
        JobFailed, JobCancelled: the job, or a task of it, ended otherwise.
        NoResult: the result is not in the store, or cannot be restored here.
    """
    if status.state is not JobState.SUCCEEDED:
        raise await _failure(store, source, status)
    tasks = status.tasks[:1] if only_first else status.tasks
    lost = [
        task
        for task in tasks
        if task.state is TaskState.CANCELLED or (task.state is TaskState.FAILED and source.function)
    ]
    if lost and not return_exceptions:
        tasks = (lost[0],)
    read = (
        [task for task in tasks if task.state is not TaskState.CANCELLED] if source.function else []
    )
    results = await task_results(store, status.id, source.run_id, read)
    found = {task.index: result for task, result in zip(read, results, strict=True)}
    for task in tasks:
        if (error := error_of(found.get(task.index), task, status)) is not None:
            if not (return_exceptions and isinstance(error, Exception)):
                raise await _with_last_lines(error, store, source, status)
            found[task.index] = error
    return [found.get(task.index) for task in tasks]


async def _failure(store: Store, source: LogSource, status: JobStatus) -> BaseException:
    """Returns the error for a job that did not succeed: the exception of a function, if one was
    raised.
    """
    failed = [task for task in status.tasks if task.state is TaskState.FAILED and source.function][
        :FAILED_TASKS_READ
    ]
    for task, result in zip(
        failed, await task_results(store, status.id, source.run_id, failed), strict=True
    ):
        if isinstance(result, Raised):  # otherwise the task was killed, or its program exited
            error = result.exception(
                f"task {task.index} of {status.id}", partial(JobFailed, status=status, task=task)
            )
            return await _with_last_lines(error, store, source, status)
    text = f"{status.id} {status.state}: {status.reason}"
    if status.state is JobState.KILLED:
        return JobCancelled(text, status)
    return await _with_last_lines(
        JobFailed(text, status, _first_failed(status)), store, source, status
    )


def _first_failed(status: JobStatus) -> TaskStatus | None:
    """Returns the task that failed first. In a gang, it ended the other tasks. Returns None if no
    task had begun.
    """
    failed = [task for task in status.tasks if task.state in _FAILURES and task.attempt]
    return min(
        failed,
        key=lambda task: (_FAILURES.index(task.state), task.finished_at or _NEVER),
        default=None,
    )


async def _with_last_lines(
    error: BaseException, store: Store, source: LogSource, status: JobStatus
) -> BaseException:
    """Adds the last lines of the failed task to the error, also as a note for its traceback."""
    if not isinstance(error, JobFailed) or error.status is not status or error.task is None:
        # An exception of a function has its own traceback. It may be the failure of another job.
        return error
    job, task = status.id, error.task
    with suppress(TimeoutError, ValueError, *STORE_ERRORS):
        async with asyncio.timeout(LAST_LINES_TIMEOUT_S):
            found = await LogReader(store, job, source.run_id, task.index, task.attempt).tail(
                LAST_LINES
            )
        entries = Entries()
        lines = [entry.text for entry in (*entries.add(found), *entries.finish())]
        error.last_lines = tuple(cut(line, LAST_LINE_LENGTH) for line in lines[-LAST_LINES:])
    if error.last_lines:
        shown = map(fit, error.last_lines)  # a traceback may end on a terminal
        error.add_note("\n  | ".join([f"The last lines of task {task.index} of {job}:", *shown]))
    return error


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
