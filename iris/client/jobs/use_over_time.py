"""Reads what the tasks of a job used over time, from the series that the hosts' agents stored. Asks
only the Temporal service and the store.
"""

import logging

from pydantic import ValidationError

from iris.client.connect.rpc import Connection
from iris.client.jobs.status import check_task
from iris.client.jobs.submitted import submitted_spec
from iris.client.logs.follow import reading_from
from iris.client.logs.reading import AT_ONCE, Found
from iris.client.logs.source import log_source
from iris.client.logs.stored import JobLogs
from iris.concurrency import for_each
from iris.model import store_paths
from iris.model.units import MIB
from iris.storage.object_store import Store
from iris.usage.series import Series
from iris.usage.summary import JobUse, TaskUse

logger = logging.getLogger(__name__)

#: The maximum number of tasks of a job whose resource use is read. Each task needs a few requests
#: to the store.
MAX_TASKS = 1_000
#: The maximum size in bytes of a stored series of measurements. A job that can write to the store
#: may write a larger one.
_MOST = MIB


async def job_use(
    connection: Connection, job: str, index: int | None, run_id: str | None
) -> JobUse:
    """Returns the use of a job's tasks, or of its task with that index.

    Raises:
        NotFound: there is no such job, or it has no such task.
        Unreachable: the service does not answer.
        IrisError: the store does not answer.
    """
    spec = await submitted_spec(connection, job, run_id)
    if index is not None:
        check_task(job, index, spec.indices)
    source, store = await log_source(connection, job, run_id), Store(connection.record.store)
    indices = spec.indices if index is None else [index]
    # Equally spaced tasks of a large array stand for all of them.
    wanted = indices[:: -(-len(indices) // MAX_TASKS)]
    with reading_from(store, f"the use of {job}"):
        found = await for_each(
            wanted, lambda task: task_use(store, job, source.run_id, task), at_once=AT_ONCE
        )
    tasks = tuple(each for each in found if each is not None)
    return JobUse(
        job=job,
        requested=spec.resources,
        tasks=tasks,
        unmeasured=len(found) - len(tasks),
        unread=len(indices) - len(wanted),
    )


async def task_use(store: Store, job: str, run_id: str, task: int) -> TaskUse | None:
    """Returns the use of the last attempt of a task that was measured; None if there is none."""
    attempts = await JobLogs(job, run_id, task).find(store, quick=False)
    for attempt in sorted(attempts, key=lambda each: each.attempt, reverse=True):
        if (series := await _series(store, attempt)) is not None:
            return TaskUse(task=task, attempt=attempt.attempt, series=series)
    return None


async def _series(store: Store, attempt: Found) -> Series | None:
    stored = await store.get(store_paths.attempt_use(attempt.prefix), _MOST)
    try:
        series = Series() if stored is None else Series.model_validate_json(stored)
        return series if series.points else None
    except ValidationError:
        logger.warning(
            "the use of attempt %d of task %d cannot be read", attempt.attempt, attempt.task
        )
        return None
