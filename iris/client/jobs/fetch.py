"""Downloads files of a job from the store into a directory, and changes nothing else there."""

import asyncio
import filecmp
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from iris.client.jobs.files import OutputFile, find_files
from iris.client.jobs.status import check_task
from iris.client.logs.follow import reading_from
from iris.client.logs.source import LogSource
from iris.client.workspace.git import git_folder_in
from iris.model.errors import IrisError, Rejected
from iris.storage.files import CannotWrite, is_full, writing
from iris.storage.object_store import Store

#: The maximum number of files that are fetched at the same time.
CONCURRENCY = 8
#: The maximum number of paths that an error names.
NAMED = 5
DIFFERS = "a different file exists"
ADDED = "would be added to a git repository that is there"
ELSEWHERE = "fetch into another directory with -o, or overwrite with --force"


class Fetched(NamedTuple):
    """The result of fetching one file."""

    file: OutputFile
    to: Path
    #: True if the file was written. False if the same file already existed.
    written: bool


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
    """Downloads the files that `find_files` finds, and returns their paths. If the files of several
    tasks are fetched, each task has a folder.

    Warns of git repositories among the files.

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
    _check_targets(directory, files, targets, force=force)
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


def _check_targets(
    directory: Path, files: Sequence[OutputFile], targets: Sequence[Path], *, force: bool
) -> None:
    """Refuses files that would be written to another place, or over other files."""
    _refuse(
        [to for to in targets if not _inside(directory, to)],
        f"would be written outside of {directory}",
        "remove its links",
    )
    if force:
        return
    _refuse(
        [to for file, to in zip(files, targets, strict=True) if _differs(to, file.size)],
        DIFFERS,
        ELSEWHERE,
    )
    _refuse([to for to in targets if _is_added_to_repository(directory, to)], ADDED, ELSEWHERE)


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


@contextmanager
def _parts_in(directory: Path) -> Iterator[Path]:
    """Yields a directory for incomplete files, inside the target directory, so that each file can
    be moved to its place in one step.
    """
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        parts = tempfile.TemporaryDirectory(
            prefix=".iris-fetch-", dir=directory, ignore_cleanup_errors=True
        )
    with parts as name:
        try:
            yield Path(name)
        except (
            CannotWrite
        ) as error:  # name the directory: the name of an incomplete file says nothing
            raise CannotWrite(error.errno, error.strerror, str(directory)) from None


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
