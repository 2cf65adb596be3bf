"""Lists the files in the store that a job's attempts left: their outputs and their checkpoints."""

from pathlib import PurePosixPath
from typing import NamedTuple

from iris.client.logs.follow import reading_from
from iris.client.logs.source import LogSource
from iris.model import store_paths
from iris.model.errors import InvalidValue
from iris.model.job import bundles
from iris.storage.object_store import Store
from iris.storage.output_names import path_of
from iris.storage.saves import latest_save


class OutputFile(NamedTuple):
    """A file that an attempt of a task left in its output directory."""

    task: int
    attempt: int
    #: The path of the file, relative to the output directory.
    path: PurePosixPath
    size: int
    #: The name of the file's object in the store.
    object: str


async def find_files(
    store: Store,
    job: str,
    source: LogSource,
    task: int | None,
    attempt: int | None,
    *,
    checkpoint: bool,
) -> list[OutputFile]:
    """Lists the files of each task, by task and path.

    Args:
        task, attempt: as for `outputs_of`.
        checkpoint: lists the files of the last checkpoints instead.

    Raises:
        InvalidValue: an attempt is named, but all attempts share one checkpoint.
        IrisError: the store does not answer.
    """
    if checkpoint and attempt is not None:
        raise InvalidValue(
            "attempt",
            attempt,
            "does not go with checkpoint",
            "leave it out: all attempts share one checkpoint",
        )
    with reading_from(store, f"the {'checkpoint' if checkpoint else 'outputs'} of {job}"):
        if checkpoint:
            return await checkpoint_files(store, job, source.run_id, task)
        return await outputs_of(store, job, source.run_id, task, attempt)


async def outputs_of(
    store: Store, job: str, run_id: str, task: int | None = None, attempt: int | None = None
) -> list[OutputFile]:
    """Lists the output files of each task, by task and path.

    Args:
        task: lists only the files of this task. None lists the files of all tasks.
        attempt: lists only the files of this attempt. None lists the files of the latest attempt of
            each task that has files.

    Raises:
        InvalidValue: the store has a name that is not a valid file path; Iris did not write it.
    """
    root = store_paths.job_outputs(job, run_id)
    found: dict[int, dict[int, list[OutputFile]]] = {}
    for name, size in await store.sizes(root if task is None else f"{root}/{task}"):
        index, number, *rest = name.removeprefix(f"{root}/").split("/", 2)
        if index.isdecimal() and number.isdecimal() and rest and attempt in (None, int(number)):
            if rest[0].startswith(f"{bundles.FOLDER}/"):
                continue
            file = OutputFile(int(index), int(number), path_of(rest[0]), size, name)
            found.setdefault(file.task, {}).setdefault(file.attempt, []).append(file)
    return [
        file for _, attempts in sorted(found.items()) for file in sorted(attempts[max(attempts)])
    ]


async def checkpoint_files(
    store: Store, job: str, run_id: str, task: int | None = None
) -> list[OutputFile]:
    """Lists the files of the last save of each task, by task and path. Links and empty directories
    are left out.

    Args:
        task: lists only the files of this task. None lists the files of all tasks.

    Raises:
        InvalidValue: the store has a manifest that Iris did not write.
    """
    folders = await store.folders(store_paths.job_checkpoints(job, run_id))
    found = []
    for index in sorted(int(name) for name in folders if name.isdecimal()):
        if task in (None, index) and (
            save := await latest_save(store, store_paths.task_checkpoints(job, run_id, index))
        ):
            found += [
                OutputFile(index, save.attempt, path_of(item.path), item.size, item.stored_as)
                for item in save.items
                if item.stored_as
            ]
    return found
