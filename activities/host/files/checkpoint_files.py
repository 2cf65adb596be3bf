"""Reads and fills a task's checkpoint directory. The program may change the directory at any time,
and may put anything into it.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import BinaryIO, Self

from iris.activities.host.runtimes.cleanup import links, trees
from iris.activities.host.runtimes.process.job_users import acting_as
from iris.model.checkpoint.plan import Found
from iris.model.checkpoint.saves import MOST_ENTRIES, SavedItem
from iris.model.errors import InvalidValue
from iris.storage.output_names import object_name, path_of

#: The name of the checkpoint directory among an attempt's files.
FOLDER = "checkpoint"
#: The number of bytes in one block of an upload.
_BLOCK = 4 * 1024 * 1024
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class TooLarge(Exception):
    """The error if the directory contains more than may be saved. The message names the limit."""


class Changed(Exception):
    """The error if a file is no longer the version that `scan` found."""


class Unreadable(Exception):
    """The error if the agent may not read a file. The message is the file's path."""


def is_empty(files: Path) -> bool:
    """Returns whether the checkpoint directory has no entries. Most jobs leave it empty, and this
    needs no thread.

    Raises:
        OSError: the directory is gone, or is a link.
    """
    with links.directory(files, FOLDER) as at, os.scandir(at) as entries:
        return next(entries, None) is None


def scan(files: Path, owner: int | None) -> list[Found]:
    """Returns the regular files, directories and links of the checkpoint directory.

    Args:
        owner: the only user whose files count, because a job may make hard links to files of other
            users; None for all users.

    Raises:
        TooLarge: the directory contains too many files.
        OSError: the directory is gone, is a link, or cannot be read.
    """
    found: list[Found] = []
    with links.directory(files, FOLDER) as top:
        for visit in trees.visits(top):
            if visit.left:
                continue
            if visit.steps:
                found.append(_found(PurePath(*visit.steps), os.fstat(visit.at)))
            for name in visit.names:
                try:
                    status = os.lstat(name, dir_fd=visit.at)
                    link = (
                        os.fsencode(os.readlink(name, dir_fd=visit.at))
                        if stat.S_ISLNK(status.st_mode)
                        else b""
                    )
                except OSError:  # the entry is gone or replaced
                    continue
                if owner in (None, status.st_uid) and (stat.S_ISREG(status.st_mode) or link):
                    found.append(_found(PurePath(*visit.steps, name), status, link))
            if len(found) > MOST_ENTRIES:
                raise TooLarge(f"it has more than {MOST_ENTRIES:,} files and directories")
    return found


def open_found(files: Path, item: Found, owner: int | None) -> BinaryIO:
    """Opens the version of a file that `scan` found.

    Raises:
        Changed: the file is gone, or is another version.
        Unreadable: this process may not read the file.
        OSError: the file cannot be read.
    """
    path = path_of(item.path)
    try:
        with links.directory(files, FOLDER, *path.parts[:-1]) as at:
            file = os.fdopen(os.open(path.name, _READ, dir_fd=at), "rb", buffering=0)
    except OSError as error:
        if isinstance(error, FileNotFoundError | links.Replaced) or error.errno in (
            errno.ELOOP,
            errno.ENXIO,
        ):
            raise Changed(item.path) from None
        if isinstance(error, PermissionError):
            raise Unreadable(item.path) from None
        raise
    try:
        check(file, item, owner)
    except Changed:
        file.close()
        raise
    return file


def check(file: BinaryIO, item: Found, owner: int | None = None) -> None:
    """Raises `Changed` if the open file is not the version that was found."""
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode) or owner not in (None, status.st_uid):
        raise Changed(item.path)
    if (status.st_ino, status.st_size, status.st_mtime_ns) != (
        item.inode,
        item.size,
        item.mtime_ns,
    ):
        raise Changed(item.path)


class Reading:
    """Yields the blocks of an open file, and computes the SHA-256 of the whole file.

    Args:
        progress: called after each block, with the block's number of bytes.
    """

    def __init__(self, file: BinaryIO, size: int, progress: Callable[[int], None]) -> None:
        self._file, self._size, self._progress = file, size, progress
        self._sha256 = hashlib.sha256()
        #: The number of bytes that were read.
        self.read = 0

    def __iter__(self) -> Iterator[bytes]:
        while self.read < self._size and (
            block := self._file.read(min(_BLOCK, self._size - self.read))
        ):
            self._sha256.update(block)
            self.read += len(block)
            self._progress(len(block))
            yield block

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()


class Writing:
    """Restores one file of a save in the checkpoint directory.

    Raises:
        OSError: the file exists already, or the disk is full.
    """

    def __init__(self, directory: Path, item: SavedItem, owner: int | None) -> None:
        self._item = item
        with acting_as(owner):
            self._file = os.fdopen(
                os.open(_inside(directory, item), _NEW, 0o600), "wb", buffering=0
            )
        self._sha256, self._size = hashlib.sha256(), 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._file.close()

    def write(self, block: bytes) -> None:
        if self._size + len(block) > self._item.size:
            raise OSError(
                f"{self._item.stored_as} in the store is damaged: it is larger than the saved file"
            )
        self._sha256.update(block)
        self._size += len(block)
        while block:
            block = block[self._file.write(block) :]

    def finish(self) -> None:
        """Sets the mode and the time of the file.

        Raises:
            OSError: the contents are not those that were saved.
        """
        if (self._size, self._sha256.hexdigest()) != (self._item.size, self._item.sha256):
            raise OSError(f"{self._item.stored_as} in the store is damaged")
        os.fchmod(self._file.fileno(), self._item.mode & 0o777)
        os.utime(self._file.fileno(), ns=(self._item.mtime_ns, self._item.mtime_ns))


def make_folders(directory: Path, items: Sequence[SavedItem], owner: int | None) -> None:
    """Creates the directories of a save with a mode in which files can be written. `make_links`
    sets their final modes.
    """
    with acting_as(owner):
        for item in sorted(items, key=lambda item: item.path.count("/")):
            if not item.stored_as and not item.target:
                _inside(directory, item).mkdir(0o700)


def make_links(directory: Path, items: Sequence[SavedItem], owner: int | None) -> None:
    """Creates the links of a save, and then sets the directories' modes.

    The links are created after the files, so that no file is written through a link. A link may
    lead anywhere, because the agent never follows it.
    """
    with acting_as(owner):
        for item in items:
            if item.target:
                _inside(directory, item).symlink_to(os.fsdecode(bytes.fromhex(item.target)))
        for item in sorted(items, key=lambda item: -item.path.count("/")):
            if not item.stored_as and not item.target:
                _inside(directory, item).chmod(item.mode & 0o777)


def _found(path: PurePath, status: os.stat_result, link: bytes = b"") -> Found:
    is_file = stat.S_ISREG(status.st_mode)
    return Found(
        path=object_name(path),
        mode=0 if link else status.st_mode & 0o777,
        changed_ns=status.st_ctime_ns,
        inode=status.st_ino,
        size=status.st_size if is_file else 0,
        mtime_ns=status.st_mtime_ns if is_file else 0,
        is_file=is_file,
        target=link.hex(),
    )


def _inside(directory: Path, item: SavedItem) -> Path:
    """Returns the path of a saved item. Raises OSError if the path is outside of the directory,
    which it is in no save of an agent.
    """
    try:
        return directory / path_of(item.path)
    except InvalidValue as error:
        raise OSError(str(error)) from None
