"""Uploads the log, the checkpoint and the outputs of an attempt to the store, and tries again while
the store is unreachable.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from obstore.exceptions import BaseError

from iris.activities.host.files import outputs
from iris.activities.host.files.checkpoints import End, Saver
from iris.activities.host.files.logs import LogShipper
from iris.activities.host.runtimes.cleanup import links
from iris.activities.host.runtimes.process.job_users import files_of, owner_of
from iris.model.host.store_limits import left_out_reason
from iris.storage.object_store import Store

logger = logging.getLogger(__name__)

#: The time that an attempt has to store its files when the cluster has given its host up, so that
#: the job learns the outcome soon. The report of the outcome has the same limit.
HURRIED_TIMEOUT = timedelta(seconds=4)
#: The first delay between two tries to upload the files. Each delay is twice the previous one.
FIRST_RETRY_DELAY = timedelta(seconds=1)
#: The longest delay between two tries to upload the files.
LAST_RETRY_DELAY = timedelta(seconds=30)


class Delivery:
    """Uploads the log, the checkpoint and the outputs of one attempt.

    Args:
        directory: the directory of the attempt.
        prefix: the folder of the outputs in the store; if it is empty, no outputs are stored.
        gate: limits the number of output files that all attempts upload at once.
        limit: the most bytes of outputs to store.
        saver: saves the checkpoint; None if there is no checkpoint.
        end: returns when the program ended and whether its files are complete; None if no program
            was started.
    """

    def __init__(
        self,
        store: Store,
        logs: LogShipper,
        directory: Path,
        prefix: str,
        gate: asyncio.Semaphore,
        limit: int,
        saver: Saver | None = None,
        end: Callable[[], End | None] = lambda: None,
    ) -> None:
        self._store = store
        self._saver, self._end, self._saved = saver, end, saver is None
        self._logs = logs
        self._dir = directory
        self._prefix = prefix
        self._gate = gate
        self._limit = limit
        self._outputs_stored = not prefix
        #: The sentence about output files that were not stored; empty if all were stored, or none
        #: has been uploaded yet.
        self.left_out = ""
        #: True if the log, the checkpoint and the outputs are in the store.
        self.complete = False
        self._hurried = asyncio.Event()

    def hurry(self) -> None:
        """Limits the time to `HURRIED_TIMEOUT`, also for a running call of `done`."""
        self._hurried.set()

    async def done(self, patience: timedelta) -> bool:
        """Stores all files of an attempt that has ended. Returns False if the store accepted
        nothing for the time `patience`.
        """
        if self.complete:
            return True
        hurried = asyncio.create_task(self._wait_to_be_hurried())
        since, delay, stored = time.monotonic(), FIRST_RETRY_DELAY, self._logs.stored
        saved = 0
        step: asyncio.Task[bool] | None = None
        try:
            while True:
                if self._hurried.is_set() and patience > HURRIED_TIMEOUT:
                    since, delay, patience = time.monotonic(), FIRST_RETRY_DELAY, HURRIED_TIMEOUT
                if (
                    self._saver is not None
                    and self._saver.progress > saved
                    and not self._hurried.is_set()
                ):
                    since, saved = time.monotonic(), self._saver.progress
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
                    since, delay, stored = time.monotonic(), FIRST_RETRY_DELAY, self._logs.stored
                if not self._logs.behind:
                    pause = min(delay.total_seconds(), left)
                    if hurried.done():  # waiting for `hurried` would return at once
                        await asyncio.sleep(pause)
                    else:
                        await asyncio.wait({hurried}, timeout=pause)
                    delay = min(2 * delay, LAST_RETRY_DELAY)
        finally:
            for task in (hurried, step):
                if task is not None:
                    task.cancel()
            await asyncio.gather(
                *(task for task in (hurried, step) if task is not None), return_exceptions=True
            )

    async def _wait_to_be_hurried(self) -> bool:
        return await self._hurried.wait()

    async def _step(self) -> bool:
        if not await self._logs.ship(ended=True):
            return False
        if self._saver is not None and not self._saved:
            if not await self._saver.finish(self._end()):
                await self._logs.ship(ended=True)
                return False
            self._saved = True
            if self._logs.said and not await self._logs.ship(ended=True):
                return False
        if not self._outputs_stored:
            try:
                files = files_of(self._dir)
                # An agent that died may have removed the files before.
                owner = owner_of(self._dir) if files.exists() else None
                outputs_dir = files / "outputs"
                kept = await outputs.keep(
                    self._store,
                    outputs_dir,
                    self._prefix,
                    self._gate,
                    owner=owner,
                    limit=self._limit,
                )
            except links.Replaced:
                self._outputs_stored = True
                self._logs.say(
                    "outputs are not stored: outputs is not a directory, or is a link to one"
                )
                return await self._logs.ship(ended=True)
            except (OSError, BaseError) as error:
                logger.warning(
                    "outputs below %s could not be stored, trying again: %s", self._prefix, error
                )
                return False
            self._outputs_stored = True
            self.left_out = left_out_reason(
                kept.left_out, kept.left_out_bytes, self._limit, kept.unreadable
            )
            if self.left_out:
                self._logs.say(self.left_out)
                return await self._logs.ship(ended=True)
        return True
