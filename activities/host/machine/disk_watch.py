"""Ends attempts that use too much of their host's disks. `iris.model.host.disk_limits` decides.

The free space is read often, because that is cheap. The attempts' directories are read only if an
attempt may have exceeded its limit since the last time, or if a disk is low.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path

from iris.activities.host.machine.disk_usage import Occupant, measure
from iris.activities.host.runtimes.threads import in_thread
from iris.model.host.disk_limits import Disk, Holding, Measured, in_use, is_due, largest, to_end

logger = logging.getLogger(__name__)

#: The interval between two reads of the free disk space.
LOOK_INTERVAL = timedelta(seconds=1)


async def watch(
    occupants: Callable[[], Mapping[str, Occupant]],
    end: Callable[[str, str], None],
    places: Collection[Path],
    limit: int,
    *,
    make_room: Callable[[], bool] = lambda: False,
) -> None:
    """Ends attempts that use too much disk space, until this is cancelled.

    Args:
        occupants: returns the host's attempts by their keys.
        end: ends the attempt with the given key, for the given reason.
        places: the directories that contain the attempts' directories.
        limit: the most bytes that an attempt may use.
        make_room: removes files that are not needed. It is called while a disk is low, before an
            attempt ends for that, and returns True if it removed something.
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
            if any(disk.low for disk in disks.values()) and await asyncio.to_thread(make_room):
                continue
            if not is_due(disks, last, time.monotonic(), limit):
                continue
            begun = time.monotonic()
            used = await in_thread(partial(measure, there))
            now, current = time.monotonic(), occupants()
            # The free space is read again, because an attempt may have ended meanwhile.
            disks = await asyncio.to_thread(_disks, places)
        except OSError as error:
            logger.warning("the disk that attempts use cannot be measured: %s", error)
            continue
        found = {
            key: Holding(used[key].used, each.requested, each.ending, used[key].complete)
            for key, each in current.items()
            if key in used
        }
        last = Measured(now, now - begun, in_use(disks), largest([*found.values()]))
        for key, reason in to_end(found, disks, limit).items():
            logger.warning("attempt %s ends: it %s", key, reason)
            end(key, reason)


def _disks(places: Iterable[Path]) -> dict[int, Disk]:
    """Returns the file systems of the directories."""
    found = {}
    for place in places:
        status = os.statvfs(place)
        # `f_bavail` does not include the space that the system keeps for root.
        free = status.f_frsize * status.f_bavail
        found[place.stat().st_dev] = Disk(
            status.f_frsize * (status.f_blocks - status.f_bfree) + free, free
        )
    return found
