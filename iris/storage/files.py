"""Writes small files atomically, and makes files and directories private to their user."""

import errno
import logging
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: The operating system's errors for a full disk, a used-up quota and a file that is too large.
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
logger = logging.getLogger(__name__)

#: The permission bits of the group and of all other users of the machine.
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class CannotWrite(OSError):
    """Raised if a local file cannot be written. The attribute `filename` is always set."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Adds the file's name to errors that occur in this context. Errors of a full disk lack it.

    Raises:
        CannotWrite: the file cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise CannotWrite(error.errno, error.strerror, str(path)) from None


def is_full(error: OSError) -> bool:
    """Returns whether the error means that the disk or the quota is full, or the file too large."""
    return error.errno in _FULL


def write_whole(path: Path, text: str, mode: int | None = None) -> None:
    """Writes the file atomically: a reader gets the old or the new text, never a part. There must
    be only one writer at a time.

    Args:
        mode: the file's mode from its creation; None for the mode that the umask of the process
            gives.

    Raises:
        CannotWrite: the disk is full, or the directory does not exist.
    """
    draft = path.with_name(f".{path.name}.new")
    with writing(path):
        if mode is not None:
            draft.touch(mode)
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)


def make_private(directory: Path) -> None:
    """Creates the directory and missing parents with mode 0700. Removes other users' permissions
    from an existing directory.

    A sticky directory such as `/tmp` is shared on purpose and stays unchanged.

    Raises:
        OSError: the directory cannot be created.
    """
    missing = [directory] if not directory.is_dir() else []
    while missing and not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for each in reversed(missing):
        each.mkdir(0o700, exist_ok=True)
    mode = directory.stat().st_mode
    if not mode & stat.S_ISVTX:
        _close(directory, mode)


def make_private_tree(directory: Path) -> None:
    """Makes the directory and everything below it private.

    If a directory is private already, its contents are skipped, because other users cannot reach
    them.

    Raises:
        OSError: the directory cannot be created or read.
    """
    was_open = directory.exists() and open_to_others(directory)
    make_private(directory)
    for path in directory.iterdir() if was_open else ():
        with suppress(FileNotFoundError):
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode):
                make_private_tree(path)
            elif stat.S_ISREG(mode):
                _close(path, mode)


def open_to_others(path: Path) -> bool:
    """Returns whether other users of the machine have any right to the file or directory.

    Raises:
        OSError: the file or directory is missing or cannot be read.
    """
    return bool(path.stat().st_mode & _OTHERS)


def private_file(path: Path) -> Path:
    """Creates the file if needed, with mode 0600 regardless of the process' umask, and returns its
    path.

    Raises:
        OSError: the file cannot be created.
    """
    path.touch(0o600)
    _close(path, path.stat().st_mode)
    return path


def _close(path: Path, mode: int) -> None:
    if mode & _OTHERS:
        try:
            path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
        except PermissionError:
            logger.warning(
                "%s is accessible to other users (%s) and cannot be changed: it belongs to another"
                " user",
                path,
                stat.filemode(mode),
            )
