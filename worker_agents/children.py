"""Processes that a supervisor keeps: started again when they die, and gone when the supervisor is."""

import asyncio
import contextlib
import ctypes
import logging
import signal
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO

from pydantic import BaseModel, ConfigDict

from iris.errors import IrisError

logger = logging.getLogger(__name__)


class Restarts(BaseModel):
    """How long a child that died stays dead: doubled with each death in a row that followed soon upon the start."""

    model_config = ConfigDict(frozen=True)

    delay: timedelta = timedelta(seconds=1)
    max_delay: timedelta = timedelta(seconds=30)
    #: A child that lived less than this has died soon.
    soon: timedelta = timedelta(seconds=10)

    def after(self, lived: timedelta, before: timedelta) -> timedelta:
        """The delay after a life of such a length, when the one before was this; zero: there was none."""
        if lived >= self.soon or not before:
            return self.delay
        return min(2 * before, self.max_delay)


class Child:
    """One process.

    Args:
        log: what it says is added to this file; None: it speaks where its supervisor does, as is usual in a container.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path | None) -> None:
        self.name = name
        self.log = log
        self._command = command
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> asyncio.subprocess.Process:
        """Start the process."""
        with contextlib.ExitStack() as stack:
            log: BinaryIO | None = None
            if self.log is not None:
                self.log.parent.mkdir(parents=True, exist_ok=True)
                log = stack.enter_context(self.log.open("ab"))
            self.process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        return self.process

    async def keep(
        self, stop: asyncio.Event, restarts: Restarts, started: Callable[["Child"], None], *, tries: int | None = None
    ) -> None:
        """Start it unless it runs, and start it again whenever it dies, until the stop; it runs on then. `started` is told each
        time.

        Args:
            tries: how many of its first lives may end soon. One that has lived longer once is never given up.

        Raises:
            IrisError: so many have.
        """
        delay = timedelta()
        while not stop.is_set():
            began = time.monotonic()
            try:
                process = self.process
                if process is None or process.returncode is not None:
                    process = await self.start()
            except OSError as error:
                ending = f"could not be started: {error}"
            else:
                started(self)
                if not await _ended(process, stop):
                    return
                ending = f"ended with status {process.returncode}"
            lived = timedelta(seconds=time.monotonic() - began)
            delay = restarts.after(lived, delay)
            tries = None if lived >= restarts.soon or tries is None else tries - 1
            if tries == 0:
                raise IrisError(f"{self.name} {ending}, as each time before")
            logger.warning("%s %s, and is started again in %g s", self.name, ending, delay.total_seconds())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), delay.total_seconds())

    async def stop(self, patience: timedelta) -> None:
        """End the process: kindly, and after so long for good."""
        if self.process is None or self.process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        try:
            await asyncio.wait_for(self.process.wait(), patience.total_seconds())
        except TimeoutError:
            logger.warning("%s did not stop within %s and is killed", self.name, patience)
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()

    def last_lines(self, count: int = 15) -> str:
        """The end of its log; nothing, when it has none."""
        with contextlib.suppress(OSError):
            said = self.log.read_text(errors="replace") if self.log is not None else ""
            return "\n".join(said.splitlines()[-count:])
        return ""


async def _ended(process: asyncio.subprocess.Process, stop: asyncio.Event) -> bool:
    """Wait until the process has ended, or the stop; whether the process has."""
    waits = [asyncio.ensure_future(process.wait()), asyncio.ensure_future(stop.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    return process.returncode is not None and not stop.is_set()


def _die_with_parent() -> None:
    """Between fork and exec: the kernel sends SIGTERM when the supervisor is gone. Elsewhere than on Linux the record helps."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG, linux/prctl.h
