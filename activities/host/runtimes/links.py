"""Opens files in directories that a job can write to, and never through a link or a pipe that the job put in their place."""

import contextlib
import errno
import os
import stat
from pathlib import Path

#: The system's errors for a link, a pipe, a socket or a directory in the place of a file.
_OTHER_THINGS = {errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.EMLINK}
#: The most bytes of a file that is read as a whole.
MOST = 64 * 1024


class Replaced(OSError):
    """Something else is in the place of a file that Iris keeps."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path.name} was replaced: it is not the file that Iris created there")


def open_file(path: Path, flags: int = os.O_RDONLY) -> int:
    """Opens a regular file in a directory that is not a link, and returns the descriptor. A file that it creates is private.

    Raises:
        Replaced: the file is a link or not a regular file, or its directory is a link.
        OSError: the file cannot be opened or does not exist.
    """
    try:
        folder = open_directory(path.parent)
        try:
            # Without O_NONBLOCK, opening a pipe would block.
            file = os.open(path.name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600, dir_fd=folder)
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
        OSError: it is not a directory, or does not exist.
    """
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def read(path: Path, most: int = MOST) -> bytes:
    """Returns the contents of a file.

    Raises:
        Replaced: as in `open_file`, or the file is larger than Iris writes it.
        OSError: the file cannot be read or does not exist.
    """
    with os.fdopen(open_file(path), "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise Replaced(path)
    return data


def write(path: Path, text: str) -> None:
    """Writes a private file, as `iris.storage.files.write_whole` does, and follows no link in the place of its temporary file.

    Raises:
        Replaced: its directory is a link.
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
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=folder)
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
        with os.fdopen(file, "w", encoding="utf-8") as opened:
            opened.write(text)
        os.replace(draft, path.name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(folder)
