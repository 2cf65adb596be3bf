"""Bringing what an attempt leaves, its log and its outputs, into a store that may be away."""

import asyncio
import contextlib
import logging
import time
from datetime import timedelta
from pathlib import Path

from obstore.exceptions import BaseError

from iris.activities import outputs
from iris.activities.logship import LogShipper
from iris.store import Store

logger = logging.getLogger(__name__)

#: How long an attempt that is lost with its host's life takes to store what it can, and then to say so.
LAST_WORDS = timedelta(seconds=4)
#: Between two tries: at first, and at most.
RETRY_EVERY = timedelta(seconds=1)
MOST_RETRY_EVERY = timedelta(seconds=30)


class Delivery:
    """What one attempt leaves.

    Args:
        prefix: where in the store the outputs go; empty: there are none.
        gate: how many files of all attempts are on their way at once.
    """

    def __init__(self, store: Store, logs: LogShipper, directory: Path, prefix: str, gate: asyncio.Semaphore) -> None:
        self._store = store
        self._logs = logs
        self._dir = directory
        self._prefix = prefix
        self._gate = gate
        self._outputs_kept = not prefix
        #: Everything is in the store.
        self.complete = False
        self._hurried = asyncio.Event()

    def hurry(self) -> None:
        """No time is left but for `LAST_WORDS`, also for what is on its way."""
        self._hurried.set()

    async def done(self, patience: timedelta) -> bool:
        """Store what is left; nothing is written any more. False: the store has taken nothing for so long."""
        if self.complete:
            return True
        hurried = asyncio.create_task(self._wait_to_be_hurried())
        since, delay, stored = time.monotonic(), RETRY_EVERY, self._logs.stored
        step: asyncio.Task[bool] | None = None
        try:
            while True:
                if self._hurried.is_set() and patience > LAST_WORDS:
                    since, patience = time.monotonic(), LAST_WORDS
                left = since + patience.total_seconds() - time.monotonic()
                if left <= 0:
                    return False
                step = step or asyncio.create_task(self._step())
                waits = {step} if hurried.done() else {step, hurried}
                await asyncio.wait(waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if not step.done():
                    continue
                if step.result():
                    self.complete = True
                    return True
                step = None
                if self._logs.stored > stored:
                    since, delay, stored = time.monotonic(), RETRY_EVERY, self._logs.stored
                if not self._logs.behind:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(asyncio.shield(hurried), min(delay.total_seconds(), left))
                    delay = min(2 * delay, MOST_RETRY_EVERY)
        finally:
            for task in (hurried, step):
                if task is not None:
                    task.cancel()
            await asyncio.gather(*(task for task in (hurried, step) if task is not None), return_exceptions=True)

    async def _wait_to_be_hurried(self) -> bool:
        return await self._hurried.wait()

    async def _step(self) -> bool:
        if not await self._logs.ship(ended=True):
            return False
        if not self._outputs_kept:
            try:
                await outputs.keep(self._store, self._dir, self._prefix, self._gate)
            except (OSError, BaseError) as error:
                logger.warning("outputs below %s could not be stored, trying again: %s", self._prefix, error)
                return False
            self._outputs_kept = True
        return True
