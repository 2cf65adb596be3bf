"""Records the resource use of one attempt over time: as a series in the store, beside the attempt's
log, and as the idleness of its GPUs.

The agent's measurements arrive every few seconds. They are stored once a minute and at the end,
each time as one object that replaces the one before. Neither the program nor its outcome waits for
the store. The same series is in a file in the attempt's directory, with which another agent goes
on: of a killed agent, only the last minute is missing.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from iris.activities.host.machine.usage import Use
from iris.activities.host.runtimes.cleanup import links
from iris.activities.host.runtimes.cleanup.leftover_processes import AttemptFile
from iris.model import store_paths
from iris.model.host.gpus import GpuUse
from iris.model.host.idle_gpus import IdleReport, IdleWatch
from iris.model.units import MIB
from iris.storage.object_store import STORE_ERRORS, Store
from iris.usage.series import Series, sample

logger = logging.getLogger(__name__)

#: The interval between two writes of the attempt's resource usage into the store.
STORE_INTERVAL = timedelta(minutes=1)
#: How long an attempt whose outcome is reported waits for its last resource usage to be stored,
#: before the host removes the attempt.
LAST_STORE_TIMEOUT = timedelta(seconds=10)
#: The size limit of the file in which an earlier agent stored its measurements of the attempt, in
#: bytes. A larger file is not read.
_MOST = MIB


class _File(BaseModel):
    """The content of the file `use.json` in the attempt's directory: the measurements of the
    resource use so far. An agent that continues the attempt reads the file.
    """

    series: Series = Series()
    idle: IdleWatch = IdleWatch()


class UseRecorder:
    """Records the resource use of one attempt.

    Args:
        directory: the directory of the attempt.
        on_idle: called with the report when the GPUs have been idle for as long as the job's
            `stop_idle` says, and with None when they are used again.
        found: True if an earlier agent took the attempt.
    """

    def __init__(
        self,
        store: Store,
        record: AttemptFile,
        directory: Path,
        on_idle: Callable[[IdleReport | None], object],
        *,
        found: bool,
    ) -> None:
        self._store = store
        self._object = store_paths.attempt_use(record.task.logs)
        self._rule = record.task.stop_idle
        self._path = directory / "use.json"
        self._on_idle = on_idle
        self._known = _read(self._path) if found else _File()
        #: The UUIDs of the attempt's GPUs.
        self.gpus = record.gpus
        #: The latest measurement, in the form in which the heartbeats send it; empty before the
        #: first measurement.
        self.latest: Mapping[str, Any] = {}
        self._peak_memory = 0
        #: The time of the last measurement, by the monotonic clock and by the wall clock; None
        #: before the first measurement.
        self._last: tuple[float, float] | None = None
        self._reported: IdleReport | None = None
        self._storing: asyncio.Task[None] | None = None

    @property
    def series(self) -> Series:
        return self._known.series

    def measured(self, use: Use, gpus: Mapping[str, GpuUse]) -> None:
        """Records a measurement. The first one only begins the time of the second one, so the
        series of a program that runs for a few seconds stays empty.

        Args:
            gpus: the use of this machine's GPUs by UUID, as far as it is known.
        """
        now, wall = time.monotonic(), time.time()
        own = [gpus[uuid] for uuid in self.gpus if uuid in gpus]
        if len(own) < len(self.gpus):
            own = []
        percent = sum(each.percent for each in own) / len(own) if own else None
        memory = sum(each.memory_bytes for each in own) if own else None
        self._peak_memory = max(self._peak_memory, use.memory_bytes)
        of_gpus = {} if not own else {"gpu_percent": percent, "gpu_memory_bytes": memory}
        self.latest = {**use._asdict(), "peak_memory_bytes": self._peak_memory, **of_gpus}
        before, self._last = self._last, (now, wall)
        if before is not None and now > before[0]:
            in_use = sum(each.in_use for each in own) if own else None
            values = sample(
                *(now - before[0], use.cpu_percent, use.memory_bytes, percent, memory, in_use)
            )
            series = self.series.with_sample(before[1], wall, values)
            if own and series.gpu_memory_total is None:
                total = sum(each.memory_total for each in own)
                series = series.model_copy(update={"gpu_memory_total": total})
            self._known.series = series
        if own:
            self._watch_idleness(wall, max(each.percent for each in own))

    async def store_on(self) -> None:
        """Stores the series at a fixed interval, until this is cancelled. Never fails."""
        while True:
            await asyncio.sleep(STORE_INTERVAL.total_seconds())
            # The disk may be full, or the program may have deleted the directory.
            with contextlib.suppress(OSError):
                links.write(self._path, self._known.model_dump_json())
            await self._put()

    def finish(self) -> None:
        """Begins to store the series of a program that has ended, and returns at once."""
        self._storing = asyncio.create_task(self._put())

    async def stored(self) -> None:
        """Waits until the series of the ended program is stored, or the store takes too long."""
        if self._storing is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._storing, LAST_STORE_TIMEOUT.total_seconds())

    def _watch_idleness(self, now: float, busiest_percent: float) -> None:
        if self._rule is None:
            return
        self._known.idle = self._known.idle.with_use(now, busiest_percent, self._rule)
        report = self._known.idle.report(self._rule)
        if (report is None) != (self._reported is None):
            self._reported = report
            self._on_idle(report)

    async def _put(self) -> None:
        if not self.series.points:
            return
        try:
            await self._store.put(self._object, self.series.model_dump_json().encode())
        except STORE_ERRORS as error:
            logger.warning("%s could not be stored: %s", self._object, error)


def _read(path: Path) -> _File:
    """Returns what an earlier agent has recorded."""
    with contextlib.suppress(OSError, ValidationError):
        return _File.model_validate_json(links.read(path, _MOST))
    return _File()
