"""Finds the files in the store that a job's attempts left in their output directories, and fetches
them.
"""

import asyncio
import filecmp
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from iris.client.jobs.status import check_task
from iris.client.logs.follow import reading_from
from iris.client.logs.source import LogSource
from iris.client.workspace.git import git_folder_in
from iris.model import names
from iris.model.errors import InvalidValue, IrisError, Rejected
from iris.model.job import bundles
from iris.storage.files import CannotWrite, is_full, writing
from iris.storage.object_store import Store
from iris.storage.output_names import path_of
from iris.storage.saves import latest_save

#: The most files that are fetched at the same time.
CONCURRENCY = 8
#: The most paths that a refusal names.
NAMED = 5
DIFFERS = "a different file exists"
ADDED = "would be added to a git repository that is there"
ELSEWHERE = "fetch into another directory with -o, or overwrite with --force"


class OutputFile(NamedTuple):
    """A file that an attempt left."""

    task: int
    attempt: int
    #: Relative to the output directory.
    path: PurePosixPath
    size: int
    #: Its name in the store.
    object: str


class Fetched(NamedTuple):
    """The result of fetching one file."""

    file: OutputFile
    to: Path
    #: False: the same file was there already.
    written: bool


async def outputs_of(
    store: Store, job: str, run_id: str, task: int | None = None, attempt: int | None = None
) -> list[OutputFile]:
    """Lists the output files of each task, by task and path.

    Args:
        task: only this task; None: all tasks.
        attempt: only this attempt of each task; None: the latest attempt that has files.

    Raises:
        InvalidValue: the store has a name that is not a valid file path; Iris did not write it.
    """
    root = names.job_outputs(job, run_id)
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


async def fetch(
    store: Store,
    files: Sequence[OutputFile],
    directory: Path,
    *,
    by_task: bool,
    force: bool = False,
    progress: Callable[[Fetched], None] = lambda _: None,
) -> list[Fetched]:
    """Writes the files below the directory. Each file is written completely or not at all.

    Args:
        by_task: writes into one folder per task.
        force: overwrites existing files that differ.
        progress: called after each file.

    Raises:
        Rejected: an existing file differs, or a file would be added to an existing git repository,
            or a link would lead out of the directory. Sizes and links are checked before anything
            is fetched.
        IrisError: a listed file is gone from the store.
        CannotWrite: the directory cannot be written, or its disk is full.
    """
    targets = [
        directory / str(file.task) / file.path if by_task else directory / file.path
        for file in files
    ]
    _refuse(
        [to for to in targets if not _inside(directory, to)],
        f"would be written outside of {directory}",
        "remove its links",
    )
    if not force:
        _refuse(
            [to for file, to in zip(files, targets, strict=True) if _differs(to, file.size)],
            DIFFERS,
            ELSEWHERE,
        )
        _refuse([to for to in targets if _is_added_to_repository(directory, to)], ADDED, ELSEWHERE)
    gate = asyncio.Semaphore(CONCURRENCY)
    with _parts_in(directory) as parts:

        async def get(number: int, file: OutputFile, to: Path) -> Fetched:
            async with gate:
                part = parts / str(number)
                if not await store.get_file(file.object, part):
                    raise IrisError(
                        f"{file.object} was deleted from the store {store.url}; try again"
                    )
                fetched = Fetched(file, to, written=_put_in_place(part, to, force=force))
                progress(fetched)
                return fetched

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(get(number, *each))
                    for number, each in enumerate(zip(files, targets, strict=True))
                ]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


@contextmanager
def _parts_in(directory: Path) -> Iterator[Path]:
    """Yields a directory for incomplete files, inside the target directory, so that each file can
    be moved to its place in one step.

    Raises:
        CannotWrite: the target directory cannot be written; this also holds for a file that cannot.
    """
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        parts = tempfile.TemporaryDirectory(
            prefix=".iris-fetch-", dir=directory, ignore_cleanup_errors=True
        )
    with parts as name:
        try:
            yield Path(name)
        except CannotWrite as error:  # its file is an incomplete one, whose name says nothing
            raise CannotWrite(error.errno, error.strerror, str(directory)) from None


def repository_warnings(fetched: Sequence[Fetched]) -> list[str]:
    """Returns a line for each git repository to which files were written."""
    found = {
        git_folder_in(each.to.parents[len(each.file.path.parts) - 1], each.to)
        for each in fetched
        if each.written
    }
    problem = (
        "is a git repository of the job: git and editors run programs that its settings and hooks"
        " name"
    )
    return [
        f"{place} {problem}; look at them, or delete it"
        for place in sorted(place for place in found if place is not None)
    ]


def _is_added_to_repository(directory: Path, to: Path) -> bool:
    """Returns whether this is a new file of an existing git repository."""
    place = git_folder_in(directory.resolve(), to.parent.resolve() / to.name)
    return place is not None and place.exists() and not to.exists()


def _put_in_place(part: Path, to: Path, *, force: bool) -> bool:
    """Moves the file to its place; returns False if the same file was there already."""
    if to.is_file() and not to.is_symlink() and filecmp.cmp(part, to, shallow=False):
        part.unlink()
        return False
    if not force and to.exists():
        _refuse([to], DIFFERS, ELSEWHERE)
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        part.replace(to)
    except OSError as error:
        if is_full(error):
            raise CannotWrite(error.errno, error.strerror, str(to)) from None
        # A directory is where a file should be, or a file where a directory should be
        raise Rejected(
            f"{to} cannot be written: {error.strerror}; fetch into another directory with -o"
        ) from None
    return True


def _inside(directory: Path, to: Path) -> bool:
    """Returns whether writing to this path stays below the directory, after following existing
    links.
    """
    return to.parent.resolve().is_relative_to(directory.resolve())


def _differs(to: Path, size: int) -> bool:
    """Returns whether something else exists at this path, judged by kind and size."""
    return to.is_symlink() or (to.exists() and not (to.is_file() and to.stat().st_size == size))


def _refuse(paths: Sequence[Path], problem: str, remedy: str) -> None:
    if paths:
        more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
        raise Rejected(f"{', '.join(map(str, paths[:NAMED]))}{more}: {problem}; {remedy}")


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
        task: only this task; None: all.
        attempt: only this attempt of each task; None: the latest that has files.
        checkpoint: the files of the checkpoints instead, as they were saved last.

    Raises:
        InvalidValue: an attempt is named, and all attempts have one checkpoint.
        IrisError: the store does not answer.
    """
    if checkpoint and attempt is not None:
        raise InvalidValue(
            "attempt",
            attempt,
            "does not go with checkpoint",
            "leave it out: all attempts have one checkpoint",
        )
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
    """Downloads these files and returns their paths. Those of several tasks are written to one
    folder for each.

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
        fetched = await fetch(
            store, files, directory, by_task=task is None and source.tasks > 1, force=force
        )
    for warning in repository_warnings(fetched):
        warnings.warn(warning, stacklevel=2)
    return [each.to for each in fetched]


async def checkpoint_files(
    store: Store, job: str, run_id: str, task: int | None = None
) -> list[OutputFile]:
    """Lists the files of the last save of each task, by task and path. Links and empty directories
    are left out.

    Args:
        task: only this task; None: all tasks.

    Raises:
        InvalidValue: the store has a manifest that Iris did not write.
    """
    folders = await store.folders(names.job_checkpoints(job, run_id))
    found = []
    for index in sorted(int(name) for name in folders if name.isdecimal()):
        if task in (None, index) and (
            save := await latest_save(store, names.task_checkpoints(job, run_id, index))
        ):
            found += [
                OutputFile(index, save.attempt, path_of(item.path), item.size, item.stored_as)
                for item in save.items
                if item.stored_as
            ]
    return found
