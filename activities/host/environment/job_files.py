"""Reads files that a job names. Such a file may be anything: a pipe, a device, a link, or too
large.
"""

import errno
import hashlib
import json
import os
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from iris.activities.host.runtimes.base import OF_THE_MACHINE, JobFault
from iris.activities.host.runtimes.cleanup import trees
from iris.activities.host.runtimes.threads import Stopped
from iris.model.units import format_bytes

#: The exit code of a set-up that fails before its first command. uv uses the same exit code for
#: invalid input.
INVALID_INPUT = 2


@contextmanager
def reading_the_jobs_files() -> Iterator[None]:
    """Turns an error of the job's own files into a fault of the job, because every other host would
    meet the same error.

    Raises:
        JobFault: the block raised an `OSError` that is not one of `OF_THE_MACHINE`.
    """
    try:
        yield
    except OSError as error:
        if error.errno in OF_THE_MACHINE:
            raise
        what = (
            f"{os.fspath(error.filename)!r} cannot be read: {error.strerror}"
            if error.filename is not None
            else str(error)
        )
        raise JobFault(f"set-up failed: {what}", INVALID_INPUT) from None


def read(file: Path, most: int) -> bytes:
    """Returns the content of a file. Does not block.

    Raises:
        OSError: the file cannot be read, is not a regular file, or is larger than `most` bytes.
    """
    descriptor = open_regular(file)
    with os.fdopen(descriptor, "rb") as opened:
        size = os.fstat(descriptor).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"larger than {format_bytes(most)}", str(file))
        # Files that the kernel makes, some of which never end, have the size 0.
        return opened.read(size)


def open_regular(file: Path | str, at: int | None = None, flags: int = 0) -> int:
    """Opens a regular file for reading and returns the descriptor. Does not block.

    Args:
        at: a descriptor of the directory to which the path is relative.
        flags: further flags of `os.open`.

    Raises:
        OSError: the file cannot be opened, or is not a regular file.
    """
    descriptor = os.open(
        file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | flags, dir_fd=at
    )
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(file))
    return descriptor


def hash_of(directory: Path, names: Iterable[str]) -> dict[str, str]:
    """Returns the SHA-256 of each of the files that exists, by name."""
    return {
        name: _hash(open_regular(directory / name))
        for name in names
        if (directory / name).is_file()
    }


def hash_of_all(directory: Path, stop: threading.Event) -> str:
    """Returns one SHA-256 of all files below the directory, with their names. The content of a link
    is its target.
    """
    whole = hashlib.sha256()
    for visit in trees.visits(directory):
        for name in () if visit.left else visit.names:
            if stop.is_set():
                raise Stopped
            mode = os.lstat(name, dir_fd=visit.at).st_mode
            if stat.S_ISLNK(mode):
                content = os.readlink(name, dir_fd=visit.at)
            elif stat.S_ISREG(mode):
                content = _hash(open_regular(name, visit.at, os.O_NOFOLLOW))
            else:
                continue
            whole.update(json.dumps(["/".join((*visit.steps, name)), content]).encode() + b"\n")
    return whole.hexdigest()


def _hash(descriptor: int) -> str:
    with os.fdopen(descriptor, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
