"""Stores the files that an attempt leaves in its output directory: each regular file becomes an
object with the same path.
"""

import asyncio
import contextlib
import errno
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import NamedTuple

from iris.activities.host.runtimes.cleanup import links, trees
from iris.model.host.store_limits import MOST_STEPS, OutputFile, select
from iris.storage.object_store import Store
from iris.storage.output_names import object_name

#: How many files of one host are uploaded at once. A large file holds several parts of 5 MiB each
#: in memory.
AT_ONCE = 8
#: A path that follows more links than this leads nowhere, as in Linux.
MOST_LINKS = 40
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Kept(NamedTuple):
    """The number and the size of the files that were stored, and of those that were left out
    because of a limit.
    """

    files: int
    #: The total size, in bytes.
    size: int
    left_out: int = 0
    left_out_bytes: int = 0
    #: The number of files that the agent may not read.
    unreadable: int = 0


async def keep(
    store: Store,
    directory: Path,
    prefix: str,
    gate: asyncio.Semaphore | None = None,
    *,
    owner: int | None = None,
    limit: int = sys.maxsize,
) -> Kept:
    """Stores every regular file below the directory. A second call stores the same objects.

    A link to a file of the directory is stored as that file, if no step of its path leads out of
    the directory. Links to directories, links that lead out, pipes, sockets and devices are
    skipped. Processes of the job may still change the files, so each file is opened relative to the
    open directory, and the system follows no link.

    Args:
        gate: limits the uploads of all attempts together; None: limits the uploads of this call
            only.
        owner: skips files of other users, to which a job may have made a hard link; None: stores
            every user's files.
        limit: the most bytes to store, by the sizes before the first upload. Files that do not fit
            are left out, and so are those with longer paths than a store takes, and those that this
            process may not read.

    Raises:
        links.Replaced: the path is not a directory, or it or its parent directory is a link.
        OSError, obstore's exceptions: some files could not be stored. All others were stored.
    """
    try:
        root = _open_root(directory)
    except FileNotFoundError:
        return Kept(0, 0)
    one, unreadable = gate or asyncio.Semaphore(AT_ONCE), 0

    def name_of(path: PurePath) -> str:
        return f"{prefix}/{object_name(path)}"

    async def put(path: PurePath) -> int | None:
        async with one:
            try:
                found = await asyncio.to_thread(_open_below, root, directory, path)
            except PermissionError:
                nonlocal unreadable
                unreadable += 1
                return None
            if found is None:
                return None
            with os.fdopen(found, "rb") as file:
                status = os.fstat(found)
                if owner not in (None, status.st_uid):
                    return None
                size = status.st_size
                await store.put_file(name_of(path), file)
                return size

    try:
        if _is_empty(root):
            return Kept(0, 0)
        chosen = await asyncio.to_thread(lambda: select(_files(root, directory), limit, name_of))
        results = await asyncio.gather(
            *(put(file.path) for file in chosen.stored), return_exceptions=True
        )
    finally:
        os.close(root)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    sizes = [size for size in results if isinstance(size, int)]
    return Kept(len(sizes), sum(sizes), chosen.left_out, chosen.left_out_bytes, unreadable)


def _open_root(directory: Path) -> int:
    try:
        parent = links.open_directory(directory.parent)
        try:
            return os.open(directory.name, _FOLDER, dir_fd=parent)
        finally:
            os.close(parent)
    except FileNotFoundError:
        raise
    except OSError:
        raise links.Replaced(directory) from None


def _is_empty(root: int) -> bool:
    """Returns whether an open directory has no entries. Most jobs leave no outputs, and this needs
    no thread.
    """
    with os.scandir(root) as entries:
        return next(entries, None) is None


def _files(root: int, directory: Path) -> Iterator[OutputFile]:
    """Yields the regular files below the open directory, and the links there with the size of the
    file to which they lead.
    """
    for visit in trees.visits(root):
        for name in () if visit.left else visit.names:
            with contextlib.suppress(FileNotFoundError):
                # Deeper files are counted only, so the rest of their paths, which may be very long,
                # does not matter.
                status, path = (
                    os.lstat(name, dir_fd=visit.at),
                    PurePath(*visit.steps[:MOST_STEPS], name),
                )
                if stat.S_ISREG(status.st_mode):
                    yield OutputFile(path, status.st_size)
                elif (
                    stat.S_ISLNK(status.st_mode)
                    and (size := _size_below(root, directory, path)) is not None
                ):
                    yield OutputFile(path, size)


def _size_below(root: int, directory: Path, path: PurePath) -> int | None:
    """Returns the size of the file to which a link leads, as `_open_below`; 0: it cannot be opened,
    which the upload reports.
    """
    try:
        found = _open_below(root, directory, path)
    except OSError:
        return 0
    if found is None:
        return None
    with os.fdopen(found, "rb"):
        return os.fstat(found).st_size


def _open_below(root: int, directory: Path, path: PurePath) -> int | None:
    """Returns a descriptor of the regular file at the path, or None if there is none or the path
    leads out of the directory.

    Args:
        root: a descriptor of the open directory.
        directory: the path of this directory, with which absolute links into it start.
    """
    left, links_left = list(path.parts), MOST_LINKS
    folders = [os.dup(root)]
    try:
        while left:
            name = left.pop(0)
            if name == "..":
                if len(folders) == 1:
                    return None
                os.close(folders.pop())
                continue
            try:
                target = os.readlink(name, dir_fd=folders[-1])
            except OSError as error:
                if error.errno != errno.EINVAL:  # EINVAL: it is not a link
                    raise
            else:
                links_left -= 1
                parts = _parts_below(directory, target)
                if parts is None or not links_left:
                    return None
                if target.startswith("/"):
                    while len(folders) > 1:
                        os.close(folders.pop())
                left = [*parts, *left]
                continue
            if left:
                if len(folders) > MOST_STEPS:
                    return None
                folders.append(os.open(name, _FOLDER, dir_fd=folders[-1]))
                continue
            found = os.open(
                name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folders[-1]
            )
            if stat.S_ISREG(os.fstat(found).st_mode):
                return found
            os.close(found)
        return None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno in (
            errno.ELOOP,
            errno.ENXIO,
            errno.ENAMETOOLONG,
        ):  # the file was just replaced by something else
            return None
        raise
    finally:
        for folder in folders:
            os.close(folder)


def _parts_below(directory: Path, target: str) -> list[str] | None:
    """Returns the steps of a link's target, or None if the target is absolute and not below the
    directory.

    The steps of an absolute target start in the directory.
    """
    if not target.startswith("/"):
        return [part for part in target.split("/") if part not in ("", ".")]
    for root in (directory, directory.resolve()):
        if target.startswith(f"{root}/"):
            return _parts_below(directory, target.removeprefix(f"{root}/").lstrip("/"))
    return None
