"""What a job's attempts left in their output directories: finding it in the store, and fetching it."""

import asyncio
import filecmp
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from iris import names
from iris.activities.outputs import path_of
from iris.errors import IrisError, Rejected
from iris.store import Store

#: Files that are on their way at once.
AT_ONCE = 8
#: Paths that a refusal names.
NAMED = 5
DIFFERS = "there is something else already"
ELSEWHERE = "fetch into another directory with -o, or overwrite with --force"


class OutputFile(NamedTuple):
    """A file that an attempt left."""

    task: int
    attempt: int
    #: Below the output directory.
    path: PurePosixPath
    size: int
    #: Its name in the store.
    object: str


class Fetched(NamedTuple):
    """What became of a file that was to be fetched."""

    file: OutputFile
    to: Path
    #: False: the very same file was there already.
    written: bool


async def outputs_of(
    store: Store, job: str, run_id: str, task: int | None = None, attempt: int | None = None
) -> list[OutputFile]:
    """The files of each task's attempt of that number, or of its latest that has any; by task and path.

    Args:
        task: only this task's; None: all.

    Raises:
        InvalidValue: somebody else has written a name into the store that is no path of a file.
    """
    root = names.job_outputs(job, run_id)
    found: dict[int, dict[int, list[OutputFile]]] = {}
    for name, size in await store.sizes(root if task is None else f"{root}/{task}"):
        index, number, *rest = name.removeprefix(f"{root}/").split("/", 2)
        if index.isdecimal() and number.isdecimal() and rest and attempt in (None, int(number)):
            file = OutputFile(int(index), int(number), path_of(rest[0]), size, name)
            found.setdefault(file.task, {}).setdefault(file.attempt, []).append(file)
    return [file for _, attempts in sorted(found.items()) for file in sorted(attempts[max(attempts)])]


async def fetch(
    store: Store,
    files: Sequence[OutputFile],
    directory: Path,
    *,
    by_task: bool,
    force: bool = False,
    progress: Callable[[Fetched], None] = lambda _: None,
) -> list[Fetched]:
    """Write the files below the directory, each whole or not at all.

    Args:
        by_task: into a folder for each task.
        force: also over files that are there and differ.
        progress: told of each one as soon as it is there.

    Raises:
        Rejected: a file that differs is in the way, or a link would lead out of the directory. Of sizes and links that is known
            before anything is fetched.
        IrisError: something that was there is gone from the store.
    """
    targets = [directory / str(file.task) / file.path if by_task else directory / file.path for file in files]
    _refuse([to for to in targets if not _inside(directory, to)], f"would be written outside of {directory}", "remove its links")
    if not force:
        _refuse([to for file, to in zip(files, targets, strict=True) if _differs(to, file.size)], DIFFERS, ELSEWHERE)
    directory.mkdir(parents=True, exist_ok=True)
    gate = asyncio.Semaphore(AT_ONCE)
    # In the directory itself, so that a file can be put in its place in one step.
    with tempfile.TemporaryDirectory(prefix=".iris-fetch-", dir=directory) as parts:

        async def get(number: int, file: OutputFile, to: Path) -> Fetched:
            async with gate:
                part = Path(parts) / str(number)
                if not await store.get_file(file.object, part):
                    raise IrisError(f"{file.object} has gone from the store {store.url} meanwhile; try again")
                fetched = Fetched(file, to, written=_put_in_place(part, to, force=force))
                progress(fetched)
                return fetched

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(get(number, *each)) for number, each in enumerate(zip(files, targets, strict=True))]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


def _put_in_place(part: Path, to: Path, *, force: bool) -> bool:
    """Whether there was anything to do."""
    if to.is_file() and not to.is_symlink() and filecmp.cmp(part, to, shallow=False):
        part.unlink()
        return False
    if not force and to.exists():
        _refuse([to], DIFFERS, ELSEWHERE)
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        part.replace(to)
    except OSError as error:  # a directory where a file should be, or the other way round
        raise Rejected(f"{to} cannot be written: {error.strerror}; fetch into another directory with -o") from None
    return True


def _inside(directory: Path, to: Path) -> bool:
    """Whether writing there writes below the directory, wherever links among what is there lead."""
    return to.parent.resolve().is_relative_to(directory.resolve())


def _differs(to: Path, size: int) -> bool:
    """Whether there is something else already, as far as sizes tell."""
    return to.is_symlink() or (to.exists() and not (to.is_file() and to.stat().st_size == size))


def _refuse(paths: Sequence[Path], problem: str, remedy: str) -> None:
    if paths:
        more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
        raise Rejected(f"{', '.join(map(str, paths[:NAMED]))}{more}: {problem}; {remedy}")
