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
from enum import Enum, auto
from pathlib import Path, PurePath
from typing import NamedTuple

from iris.activities.host.runtimes.cleanup import links, trees
from iris.model.host.store_limits import MOST_STEPS, OutputFile, select
from iris.storage.object_store import Store
from iris.storage.output_names import object_name

#: The maximum number of files of one host that are uploaded at the same time. The upload of a large
#: file needs the memory of several parts of 5 MiB each.
AT_ONCE = 8
#: The maximum number of links that a path may contain, the same as in Linux.
MOST_LINKS = 40
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Kept(NamedTuple):
    """The numbers and sizes of output files that were stored or were not stored."""

    #: The number of stored files.
    files: int
    #: The total size of the stored files, in bytes.
    size: int
    #: The number of files that were not stored because of the limits on the number of files, their
    #: total size and their paths.
    left_out: int = 0
    #: The total size of the files that are counted in `left_out`, in bytes.
    left_out_bytes: int = 0
    #: The number of files that were not stored because the agent may not read them.
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
        prefix: the folder of the objects in the store.
        gate: limits the uploads of all attempts together; None for a limit of this call only.
        owner: the only user whose files are stored, because a job may make hard links to files of
            other users; None for all users.
        limit: the most bytes to store, by the sizes before the first upload. Files that do not fit,
            files whose paths are too long for a store, and files that this process may not read are
            left out.

    Raises:
        links.Replaced: the path is not a directory, or it or its parent directory is a link.
        OSError, obstore's exceptions: some files could not be stored. All others were stored.
    """
    try:
        root = _open_root(directory)
    except FileNotFoundError:
        return Kept(0, 0)
    upload = _Upload(store, root, directory, prefix, gate or asyncio.Semaphore(AT_ONCE), owner)
    try:
        if _is_empty(root):
            return Kept(0, 0)
        chosen = await asyncio.to_thread(
            lambda: select(_files(root, directory), limit, upload.name_of)
        )
        results = await asyncio.gather(
            *(upload.put(file.path) for file in chosen.stored), return_exceptions=True
        )
    finally:
        os.close(root)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    sizes = [result for result in results if isinstance(result, int)]
    unreadable = sum(result is _Skipped.UNREADABLE for result in results)
    return Kept(len(sizes), sum(sizes), chosen.left_out, chosen.left_out_bytes, unreadable)


class _Skipped(Enum):
    """The reason why a file is not stored."""

    #: The file does not exist any more, is not a regular file any more, or belongs to another user.
    NOT_AN_OUTPUT = auto()
    #: The agent may not read the file.
    UNREADABLE = auto()


class _Upload(NamedTuple):
    """The settings of the upload of one output directory."""

    store: Store
    #: The descriptor of the output directory, which is open during the upload.
    root: int
    directory: Path
    prefix: str
    gate: asyncio.Semaphore
    owner: int | None

    def name_of(self, path: PurePath) -> str:
        return f"{self.prefix}/{object_name(path)}"

    async def put(self, path: PurePath) -> int | _Skipped:
        """Stores one file and returns its size."""
        async with self.gate:
            try:
                found = await asyncio.to_thread(_open_below, self.root, self.directory, path)
            except PermissionError:
                return _Skipped.UNREADABLE
            if found is None:
                return _Skipped.NOT_AN_OUTPUT
            with os.fdopen(found, "rb") as file:
                status = os.fstat(found)
                if self.owner not in (None, status.st_uid):
                    return _Skipped.NOT_AN_OUTPUT
                await self.store.put_file(self.name_of(path), file)
                return status.st_size


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
    """Yields the regular files below the open directory, and the links to such files. The size of a
    link is that of its file.
    """
    for visit in trees.visits(root):
        for name in () if visit.left else visit.names:
            with contextlib.suppress(FileNotFoundError):
                # Deeper files are only counted. So the rest of their paths, which may be very long,
                # is not needed.
                path = PurePath(*visit.steps[:MOST_STEPS], name)
                status = os.lstat(name, dir_fd=visit.at)
                if stat.S_ISREG(status.st_mode):
                    yield OutputFile(path, status.st_size)
                elif (
                    stat.S_ISLNK(status.st_mode)
                    and (size := _size_below(root, directory, path)) is not None
                ):
                    yield OutputFile(path, size)


def _size_below(root: int, directory: Path, path: PurePath) -> int | None:
    """Returns the size of the file to which a link leads; None if `_open_below` finds no file; 0 if
    the file cannot be opened, which the upload reports.
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
        # The file was just replaced by something else.
        if error.errno in (
            errno.ELOOP,
            errno.ENXIO,
            errno.ENAMETOOLONG,
        ):
            return None
        raise
    finally:
        for folder in folders:
            os.close(folder)


def _parts_below(directory: Path, target: str) -> list[str] | None:
    """Returns the steps of a link's target, or None if the target is an absolute path that is not
    below the directory. The steps of an absolute path start in the directory.
    """
    if not target.startswith("/"):
        return [part for part in target.split("/") if part not in ("", ".")]
    for root in (directory, directory.resolve()):
        if target.startswith(f"{root}/"):
            return _parts_below(directory, target.removeprefix(f"{root}/").lstrip("/"))
    return None
