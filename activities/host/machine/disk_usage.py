"""Measures the disk space that attempts use, even if their programs change files meanwhile.

A program that moves its directories while they are read can hide their contents. So if an attempt
has changed its directories, they are read again while its processes are stopped. A program that
runs as the agent's own user is not stopped, because such a program could end the agent.
"""

import contextlib
import logging
import math
import os
import signal
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from iris.activities.host.runtimes.base import HostFault
from iris.activities.host.runtimes.cleanup import trees
from iris.activities.host.runtimes.container import engine
from iris.activities.host.runtimes.process import job_users

logger = logging.getLogger(__name__)

#: The maximum number of reads of an attempt's directories before its processes are stopped for a
#: further read. Most programs seldom change their directories, so a read without a stop usually
#: succeeds.
TRIES = 2
#: The longest time for which the processes of an attempt are stopped, so that its directories do
#: not change while they are read, in seconds. After a longer time, other tasks of its job might
#: count its task as lost.
MOST_STOPPED = 30.0
#: The delays before each further try to continue the stopped processes, in seconds. A try fails
#: while the container engine restarts, or if the machine can start no process.
RESUME_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0)
#: The system records a change with the time of its last clock tick. So the recorded time may be too
#: early by this much, in nanoseconds.
TICK_NS = 10_000_000
#: Directories in memory, which all users share. They are not on a disk.
_IN_MEMORY = (Path("/dev"), Path("/run"))


class Occupant(NamedTuple):
    """An attempt whose files may use the disk."""

    #: The attempt's own directory on the host.
    directory: Path
    #: The disk space that the attempt's job requested, in bytes.
    requested: int
    in_container: bool
    #: True if no program will start, or if the program is being killed or has ended; False during
    #: its grace period. Its processes are then not paused while its directories are read.
    ending: bool
    #: Returns True if the program has been told to end. The program is then no longer stopped for a
    #: read of its directories, because a stopped program cannot use its grace period.
    told_to_end: Callable[[], bool]


class Usage(NamedTuple):
    """The disk space that an attempt uses."""

    #: The used bytes, by the device number of the file system.
    used: Counter[int]
    #: False if the program changed its directories during the read, or the read took too long. The
    #: attempt may then use more than `used`.
    complete: bool


def measure(occupants: Mapping[str, Occupant], stop: threading.Event) -> dict[str, Usage]:
    """Returns the disk space that the attempts use, by their keys.

    Args:
        stop: ends the measurement early.
    """
    layers = _container_layers() if any(each.in_container for each in occupants.values()) else {}
    found = {}
    for key, each in occupants.items():
        found[key] = usage = _usage(key, each, stop)
        if layer := layers.get(key, 0):
            # The engine may be outside of the agent's container. Its directory is usually on the
            # machine's only disk.
            usage.used[each.directory.parent.stat().st_dev] += layer
    return found


def resume(key: str, occupant: Occupant) -> None:
    """Continues an attempt that an agent has stopped. Does nothing if it runs."""
    uid = None
    if not occupant.in_container:
        try:
            uid = job_users.owner_of(occupant.directory)
        except OSError:  # its files are gone, and so is its user
            return
        if uid is None:
            return
    _resume(key, uid)


def _resume(key: str, uid: int | None) -> None:
    """Continues the processes of the attempt's user; if `uid` is None, those of its containers."""
    for pause in (*RESUME_PAUSES, None):
        problem = _try_to_resume(key, uid)
        if not problem:
            return
        if pause is None:
            logger.error("the processes of attempt %s may still be stopped; %s", key, problem)
        else:
            time.sleep(pause)


def _try_to_resume(key: str, uid: int | None) -> str:
    """Tries to continue the attempt. Returns the remedy if the attempt may still be stopped."""
    if uid is not None:
        return "" if job_users.signal_all(uid, signal.SIGCONT) else f"run pkill -CONT -U {uid}"
    try:
        engine.pause(key, paused=False)
    except HostFault as error:
        return f"run docker unpause: {error}"
    return ""


def _usage(key: str, occupant: Occupant, stop: threading.Event) -> Usage:
    looks = [look := _look(occupant, stop.is_set)]
    while not look.complete and len(looks) < TRIES:
        looks.append(look := _look(occupant, stop.is_set))
    if look.complete or occupant.ending or stop.is_set():
        return look
    uid = None
    try:
        if not occupant.in_container and (uid := job_users.owner_of(occupant.directory)) is None:
            return _largest(looks)
    except OSError:  # the attempt is over
        return _largest(looks)
    if occupant.told_to_end():
        return _largest(looks)
    try:
        if not _stop(key, uid):
            return _largest(looks)
        look = _look(
            occupant,
            lambda: stop.is_set() or occupant.told_to_end(),
            time.monotonic() + MOST_STOPPED,
        )
        return _largest([*looks, look]) if occupant.told_to_end() else look
    finally:
        _resume(key, uid)  # even after an error, which does not show whether it was stopped


def _largest(looks: Sequence[Usage]) -> Usage:
    """Returns the largest measured usage of an attempt that cannot be stopped."""
    return max(looks, key=lambda each: each.used.total())._replace(complete=True)


def _stop(key: str, uid: int | None) -> bool:
    """Stops the processes of the attempt's user, or those of its containers. Returns False if that
    is not possible.
    """
    if uid is not None:
        return job_users.signal_all(uid, signal.SIGSTOP)
    try:
        return engine.pause(key, paused=True)
    except HostFault as error:
        logger.warning("attempt %s cannot be stopped to measure its disk: %s", key, error)
        return False


def _look(occupant: Occupant, over: Callable[[], bool], deadline: float = math.inf) -> Usage:
    """Reads the attempt's directories once.

    Args:
        over: returns True if the caller does not need the result any more.
        deadline: the time at which to give up, on the monotonic clock. If it is finite, the attempt
            is stopped, so it changes nothing.
    """
    since = time.time_ns() - TICK_NS
    used: Counter[int] = Counter()
    unchanged = True
    for place, is_jobs in _places(occupant.directory):
        unchanged &= _add(place, used, since, deadline, over, is_jobs=is_jobs)
    return Usage(used, unchanged if deadline == math.inf else time.monotonic() <= deadline)


def _places(directory: Path) -> list[tuple[Path, bool]]:
    """Returns the attempt's directories, and the files and directories of its user in the
    directories that all users share.

    Returns:
        Pairs of a path and whether the job can move it.
    """
    files = job_users.files_of(directory)
    found = [(each, False) for each in dict.fromkeys((directory, files))]
    uid = None
    with contextlib.suppress(OSError):
        uid = job_users.owner_of(directory)
    for shared in job_users.SHARED if uid is not None else ():
        if not any(shared.is_relative_to(each) for each in _IN_MEMORY):
            with contextlib.suppress(OSError), os.scandir(shared) as entries:
                found += [
                    (Path(each.path), True)
                    for each in entries
                    if each.stat(follow_symlinks=False).st_uid == uid
                ]
    return found


def _add(
    top: Path,
    used: Counter[int],
    since: float,
    deadline: float,
    over: Callable[[], bool],
    *,
    is_jobs: bool,
) -> bool:
    """Adds the disk usage of a file or of a directory tree to `used`.

    A file with several hard links counts at each of them for its share. To count it only once, a
    table of all files would be needed, which might be as large as the directory.

    Args:
        since: the time at which the measurement began, in nanoseconds.
        is_jobs: True if the job can change the top directory itself, and not only the directories
            below it.

    Returns:
        False if the job changed a directory since then. A file that the job moves out of a
        directory before that is read leaves such a change in the directory.
    """

    def add(status: os.stat_result) -> None:
        names = 1 if stat.S_ISDIR(status.st_mode) else max(1, status.st_nlink)
        used[status.st_dev] += status.st_blocks * 512 // names

    complete, expected = True, 1
    try:
        if not top.is_dir() or top.is_symlink():
            add(top.lstat())
            return True
        for visit in trees.visits(top):
            if over() or time.monotonic() > deadline:
                return False
            if visit.steps or is_jobs:
                complete &= os.fstat(visit.at).st_ctime_ns < since
            if visit.left:
                continue
            expected += len(visit.folders) - 1
            for name in (*visit.names, *visit.folders):
                with contextlib.suppress(OSError):
                    add(os.stat(name, dir_fd=visit.at, follow_symlinks=False))
    except OSError:  # a directory was moved or removed; the files that were seen count
        return False
    return complete and not expected


def _container_layers() -> dict[str, int]:
    """Returns the bytes that containers have written outside of their attempts' directories, by
    attempt.
    """
    found: Counter[str] = Counter()
    try:
        with engine.engine() as docker:
            for each in docker.api.containers(
                all=True, size=True, filters={"label": [f"{engine.LABEL_MANAGED}=true"]}
            ):
                found[each["Labels"].get(engine.LABEL_KEY, "")] += each.get("SizeRw") or 0
    except HostFault as error:
        logger.warning("the disk that containers use cannot be measured: %s", error)
    return found
