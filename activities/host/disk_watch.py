"""Ends attempts that use too much of their host's disks. `iris.model.disk_limits` decides; this module measures.

Free space is looked at often, which costs nothing. The attempts' directories are read only if an attempt may have exceeded its
limit since the last time, or if a disk is low.
"""

import asyncio
import contextlib
import logging
import os
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

from iris.activities.host.runtimes import engine, job_users, trees
from iris.activities.host.runtimes.base import HostUnable
from iris.activities.host.runtimes.threads import in_thread
from iris.model.disk_limits import Disk, Holding, Measured, in_use, is_due, largest, to_end

logger = logging.getLogger(__name__)

#: The interval between two looks at the free space.
LOOK_INTERVAL = timedelta(seconds=1)
#: Directories in memory, which all users share. They are not on a disk.
_IN_MEMORY = (Path("/dev"), Path("/run"))


class Occupant(NamedTuple):
    """An attempt that may use the disk."""

    #: Its own directory on the host.
    directory: Path
    #: The disk that its job requested, in bytes.
    requested: int
    in_container: bool
    ending: bool


async def watch(
    occupants: Callable[[], Mapping[str, Occupant]], end: Callable[[str, str], None], places: Collection[Path], limit: int
) -> None:
    """Ends attempts that use too much, until this is cancelled.

    Args:
        occupants: returns the host's attempts by their keys.
        end: ends an attempt, for a reason.
        places: the directories in which the attempts' directories are.
        limit: the most bytes that an attempt may use.
    """
    last: Measured | None = None
    while True:
        await asyncio.sleep(LOOK_INTERVAL.total_seconds())
        there = occupants()
        if not there:
            last = None
            continue
        try:
            disks = await asyncio.to_thread(_disks, places)
            if not is_due(disks, last, time.monotonic(), limit):
                continue
            begun = time.monotonic()
            used = await in_thread(partial(_used, there))
        except OSError as error:
            logger.warning("the disk that attempts use cannot be measured: %s", error)
            continue
        now, current = time.monotonic(), occupants()
        found = {key: Holding(used[key], each.requested, each.ending) for key, each in current.items() if key in used}
        last = Measured(now, now - begun, in_use(disks), largest([*found.values()]))
        for key, reason in to_end(found, disks, limit).items():
            logger.warning("attempt %s ends: it %s", key, reason)
            end(key, reason)


def _disks(places: Iterable[Path]) -> dict[int, Disk]:
    """Returns the file systems of the directories."""
    found = {}
    for place in places:
        status = os.statvfs(place)
        # The space that programs can use: without what the system keeps for root.
        free = status.f_frsize * status.f_bavail
        found[place.stat().st_dev] = Disk(status.f_frsize * (status.f_blocks - status.f_bfree) + free, free)
    return found


def _used(occupants: Mapping[str, Occupant], stop: threading.Event) -> dict[str, Counter[int]]:
    """Returns the bytes that the attempts use, by attempt and file system."""
    layers = _container_layers() if any(each.in_container for each in occupants.values()) else {}
    found = {}
    for key, each in occupants.items():
        used: Counter[int] = Counter()
        for place in _places(each.directory):
            used += _below(place, stop)
        if layer := layers.get(key, 0):
            # The engine may be outside of the agent's container. Its directory is usually on the machine's only disk.
            used[each.directory.parent.stat().st_dev] += layer
        found[key] = used
    return found


def _places(directory: Path) -> list[Path]:
    """Returns the attempt's files and directories: its own, and what its user has in the directories of all users."""
    files = job_users.files_of(directory)
    found = [directory] if files == directory else [directory, files]
    uid = None
    with contextlib.suppress(OSError):
        uid = job_users.owner_of(directory)
    for shared in job_users.SHARED if uid is not None else ():
        if not any(shared.is_relative_to(each) for each in _IN_MEMORY):
            with contextlib.suppress(OSError), os.scandir(shared) as entries:
                found += [Path(each.path) for each in entries if each.stat(follow_symlinks=False).st_uid == uid]
    return found


def _below(top: Path, stop: threading.Event) -> Counter[int]:
    """Returns the bytes that a file, or a directory with all below it, takes, by file system.

    A file with several names counts at each of them for its share: a table of the files would be as large as the directory.
    """
    found: Counter[int] = Counter()

    def add(status: os.stat_result) -> None:
        names = 1 if stat.S_ISDIR(status.st_mode) else max(1, status.st_nlink)
        found[status.st_dev] += status.st_blocks * 512 // names

    with contextlib.suppress(OSError):  # a job may be changing it: what was seen counts
        if not top.is_dir() or top.is_symlink():
            add(top.lstat())
            return found
        for visit in trees.visits(top):
            if stop.is_set():  # the agent ends
                break
            for name in () if visit.left else (*visit.names, *visit.folders):
                with contextlib.suppress(OSError):
                    add(os.stat(name, dir_fd=visit.at, follow_symlinks=False))
    return found


def _container_layers() -> dict[str, int]:
    """Returns the bytes that containers have written outside of their attempts' directories, by attempt."""
    found: Counter[str] = Counter()
    try:
        with engine.engine() as docker:
            for each in docker.api.containers(all=True, size=True, filters={"label": [f"{engine.LABEL_MANAGED}=true"]}):
                found[each["Labels"].get(engine.LABEL_KEY, "")] += each.get("SizeRw") or 0
    except HostUnable as error:
        logger.warning("the disk that containers use cannot be measured: %s", error)
    return found
