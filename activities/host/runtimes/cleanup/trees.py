"""Visits and removes directory trees of a job, which may have any depth and any links.

The functions of `os` and `shutil` call themselves for each level, so a job could make them fail
with a RecursionError.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Visit(NamedTuple):
    """A visit to a directory. Each directory is visited twice: before and after the directories in
    it.
    """

    #: The names of the directories from the top to this directory. The list changes after the
    #: visit.
    steps: Sequence[str]
    #: The sorted names of the directories in this directory.
    folders: list[str]
    #: The sorted names of the entries that are not directories, including links to directories.
    names: list[str]
    #: A descriptor of the directory, valid during this visit only.
    at: int
    #: True in the second visit, after all directories in this directory.
    left: bool


class _Level(NamedTuple):
    folders: list[str]
    names: list[str]
    #: The directories that are not visited yet; the last one is visited next.
    waiting: list[str]
    status: os.stat_result


def visits(top: int | Path, *, widen: bool = False) -> Iterator[Visit]:
    """Visits a directory and all directories below it, in the order of their names. Follows no
    link, and needs two descriptors at any depth. Skips directories that disappear or cannot be
    opened.

    Args:
        top: the directory, open or as a path, which must not be a link.
        widen: gives an agent that is not root all rights to its own directories first.

    Raises:
        OSError: a directory cannot be read, or was moved during the visit.
    """
    at = os.open(".", _FOLDER, dir_fd=top) if isinstance(top, int) else os.open(top, _FOLDER)
    steps: list[str] = []
    try:
        levels = [_look(at)]
        yield Visit(steps, levels[-1].folders, levels[-1].names, at, left=False)
        while levels:
            here = levels[-1]
            if here.waiting:
                name = here.waiting.pop()
                below = _open(name, at, widen=widen)
                if below is None:
                    continue
                os.close(at)
                at = below
                steps.append(name)
                levels.append(_look(at))
                yield Visit(steps, levels[-1].folders, levels[-1].names, at, left=False)
                continue
            yield Visit(steps, here.folders, here.names, at, left=True)
            levels.pop()
            if levels:
                above = os.open("..", _FOLDER, dir_fd=at)
                os.close(at)
                at = above
                if not os.path.samestat(os.fstat(at), levels[-1].status):
                    raise OSError(errno.ESTALE, "a directory was moved while it was read")
                steps.pop()
    finally:
        os.close(at)


def remove(path: Path) -> bool:
    """Removes a directory tree, a file or a link. Raises nothing. Returns True if nothing is left
    at this path.
    """
    with contextlib.suppress(OSError):
        if path.is_symlink() or not path.is_dir():
            path.unlink()
            return True
        top = _open(str(path), None, widen=True)
        if top is not None:
            with contextlib.suppress(OSError):
                try:
                    _empty(top)
                finally:
                    os.close(top)
        path.rmdir()
    return not os.path.lexists(path)


def _empty(top: int) -> None:
    for visit in visits(top, widen=True):
        for name in visit.folders if visit.left else visit.names:
            with contextlib.suppress(OSError):
                (os.rmdir if visit.left else os.unlink)(name, dir_fd=visit.at)


def _look(at: int) -> _Level:
    folders: list[str] = []
    names: list[str] = []
    with os.scandir(at) as entries:
        for entry in entries:
            (folders if entry.is_dir(follow_symlinks=False) else names).append(entry.name)
    folders.sort()
    return _Level(folders, sorted(names), folders[::-1], os.fstat(at))


def _open(name: str, at: int | None, *, widen: bool) -> int | None:
    """Returns a descriptor of the directory; None if it is not a directory or cannot be opened."""
    with contextlib.suppress(OSError):
        if widen and os.geteuid() != 0 and not stat.S_ISLNK(os.lstat(name, dir_fd=at).st_mode):
            os.chmod(name, 0o700, dir_fd=at)
        return os.open(name, _FOLDER, dir_fd=at)
    return None
