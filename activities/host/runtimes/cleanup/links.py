"""Opens files in directories to which a job can write. Never follows a link or opens a pipe that
the job put in the place of a file.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

#: The numbers of the system's errors if a link, a pipe, a socket or a directory replaces a file.
_OTHER_THINGS = {errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.EMLINK}
#: The default size limit of a file that is read as a whole, in bytes.
MOST = 64 * 1024


class Replaced(OSError):
    """The error if a link or another kind of entry replaces a file that Iris wrote."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path.name} was replaced: it is not the file that Iris created there")


def open_file(path: Path, flags: int = os.O_RDONLY) -> int:
    """Opens a regular file in a directory that is not a link, and returns the descriptor. A file
    that it creates is private.

    Raises:
        Replaced: the file is a link or not a regular file, or its directory is a link.
        OSError: the file cannot be opened or does not exist.
    """
    try:
        folder = open_directory(path.parent)
        try:
            # Without O_NONBLOCK, opening a pipe would block.
            file = os.open(
                path.name,
                flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
                0o600,
                dir_fd=folder,
            )
        finally:
            os.close(folder)
    except OSError as error:
        if error.errno in _OTHER_THINGS:
            raise Replaced(path) from None
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise Replaced(path)
    return file


def open_directory(path: Path) -> int:
    """Opens a directory that is not a link, and returns the descriptor.

    Raises:
        OSError: the path is not a directory, or does not exist.
    """
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


@contextlib.contextmanager
def directory(top: Path, *steps: str) -> Iterator[int]:
    """Opens a directory below another one, and yields the descriptor.

    Raises:
        Replaced: the directory at the top, or one of the steps, is a link or not a directory.
        OSError: a directory cannot be opened or does not exist.
    """
    at, path = None, top
    try:
        try:
            at = open_directory(top)
            for step in steps:
                path = path / step
                below = os.open(
                    step, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at
                )
                os.close(at)
                at = below
        except OSError as error:
            if error.errno in _OTHER_THINGS:
                raise Replaced(path) from None
            raise
        yield at
    finally:
        if at is not None:
            os.close(at)


def place(name: str, text: str, at: int, *, mode: int = 0o644, replace: bool = False) -> None:
    """Creates a file in an open directory. Never opens an existing entry, which may be a link or a
    pipe.

    Args:
        replace: True to remove an existing entry of this name first; False to leave it as it is.

    Raises:
        OSError: the disk is full, or a directory has this name.
    """
    if replace:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=at)
    with contextlib.suppress(FileExistsError):
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=at)
        with os.fdopen(file, "w", encoding="utf-8") as opened:
            opened.write(text)
            os.fchmod(opened.fileno(), mode)


def read(path: Path, most: int = MOST) -> bytes:
    """Returns the contents of a file.

    Raises:
        Replaced: as in `open_file`, or the file is larger than `most` bytes.
        OSError: the file cannot be read or does not exist.
    """
    data = read_from(path, 0, most + 1)
    if len(data) > most:
        raise Replaced(path)
    return data


def read_from(path: Path, offset: int, most: int) -> bytes:
    """Returns up to `most` bytes of a file from this offset.

    Does not use a file object of Python, which makes four more system calls for each file.

    Raises:
        Replaced: as in `open_file`.
        OSError: the file cannot be read or does not exist.
    """
    file, found = open_file(path), b""
    try:
        while len(found) < most and (
            more := os.pread(file, most - len(found), offset + len(found))
        ):
            found += more
    finally:
        os.close(file)
    return found


def _create(name: str, at: int) -> int:
    """Creates a private file in an open directory, replaces an entry of this name, and returns the
    descriptor.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(name, flags, 0o600, dir_fd=at)
    except FileExistsError:  # from a writer that was killed, or from the job
        os.unlink(name, dir_fd=at)
        return os.open(name, flags, 0o600, dir_fd=at)


def write(path: Path, text: str) -> None:
    """Writes a private file, as `iris.storage.files.write_whole` does, and follows no link in the
    place of its temporary file.

    Raises:
        Replaced: the directory of the file is a link.
        OSError: the disk is full, or the directory is gone.
    """
    draft = f".{path.name}.new"
    try:
        folder = open_directory(path.parent)
    except OSError as error:
        if error.errno in _OTHER_THINGS:
            raise Replaced(path.parent) from None
        raise
    try:
        file, data = _create(draft, folder), text.encode()
        try:
            while data:
                data = data[os.write(file, data) :]
        finally:
            os.close(file)
        os.replace(draft, path.name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(folder)
