"""Atomic writes of small files, and files and directories that only this user can read."""

import errno
import logging
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: The system's errors for a disk, a quota or a file that is full.
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
logger = logging.getLogger(__name__)

#: The permission bits of other users of the machine.
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class CannotWrite(OSError):
    """A local file cannot be written. Its `filename` is always known."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Names the file in errors that occur within: those of a full disk do not.

    Raises:
        CannotWrite: the file cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise CannotWrite(error.errno, error.strerror, str(path)) from None


def is_full(error: OSError) -> bool:
    """Returns whether the disk or the quota is full, or the file too large."""
    return error.errno in _FULL


def write_whole(path: Path, text: str, mode: int | None = None) -> None:
    """Writes the file atomically: a reader gets the old or the new text, never a part. Only one
    writer at a time is allowed.

    Args:
        mode: the file's mode from the first byte on; None: as the process' umask allows.

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
    """Makes the directory and all that is below it private.

    It skips the contents of a directory that is private already, because other users cannot reach
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
        OSError: it is missing, or cannot be looked at.
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
