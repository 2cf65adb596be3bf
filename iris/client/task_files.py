"""Finds and fetches what the tasks of a job left in their output directories, or saved in their checkpoint directories."""

import warnings
from pathlib import Path

from iris.client.checkpoints import checkpoint_files
from iris.client.logs.follow import reading_from
from iris.client.outputs import OutputFile, fetch, outputs_of, repository_warnings
from iris.client.views import LogSource, check_task
from iris.model.errors import InvalidValue
from iris.storage.object_store import Store


async def find_files(
    store: Store, job: str, source: LogSource, task: int | None, attempt: int | None, *, checkpoint: bool
) -> list[OutputFile]:
    """Lists the files of each task, by task and path.

    Args:
        task: only this task; None: all.
        attempt: only this attempt of each task; None: the latest that has files.
        checkpoint: the files of the checkpoints instead, as they were saved last.

    Raises:
        InvalidValue: an attempt is named, and all attempts have one checkpoint.
        IrisError: the store does not answer.
    """
    if checkpoint and attempt is not None:
        raise InvalidValue("attempt", attempt, "does not go with checkpoint", "leave it out: all attempts have one checkpoint")
    with reading_from(store, f"the {'checkpoint' if checkpoint else 'outputs'} of {job}"):
        if checkpoint:
            return await checkpoint_files(store, job, source.run_id, task)
        return await outputs_of(store, job, source.run_id, task, attempt)


async def fetch_task_files(
    store: Store,
    job: str,
    source: LogSource,
    directory: Path,
    task: int | None,
    attempt: int | None,
    *,
    checkpoint: bool,
    force: bool,
) -> list[Path]:
    """Downloads these files and returns their paths. Those of several tasks are written to one folder for each.

    Warns of git repositories among them.

    Raises:
        NotFound: the job has no such task.
        Rejected: a different file exists; nothing was fetched.
        InvalidValue, IrisError: as in `find_files`.
    """
    if task is not None:
        check_task(job, task, source.numbers)
    files = await find_files(store, job, source, task, attempt, checkpoint=checkpoint)
    with reading_from(store, f"the files of {job}"):
        fetched = await fetch(store, files, directory, by_task=task is None and source.tasks > 1, force=force)
    for warning in repository_warnings(fetched):
        warnings.warn(warning, stacklevel=2)
    return [each.to for each in fetched]
