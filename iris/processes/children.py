"""Child processes of a supervisor. They start again after they die, and end when the supervisor has
ended.
"""

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

from iris.concurrency import pause
from iris.model.errors import IrisError
from iris.model.frozen import Frozen

logger = logging.getLogger(__name__)


class Restarts(Frozen):
    """The delay before a dead child process starts again. It doubles with each early death in a
    row.
    """

    delay: timedelta = timedelta(seconds=1)
    max_delay: timedelta = timedelta(seconds=30)
    #: If a child process ends sooner than this after its start, the delay before the next start
    #: doubles.
    soon: timedelta = timedelta(seconds=10)

    def after(self, lived: timedelta, before: timedelta) -> timedelta:
        """Returns the delay before the next start.

        Args:
            lived: how long the child ran.
            before: the previous delay; zero if there was no delay before.
        """
        if lived >= self.soon or not before:
            return self.delay
        return min(2 * before, self.max_delay)


#: The delays before a part of a cluster, such as its control plane, is started again.
RESTARTS = Restarts()


class Child:
    """One child process of a supervisor.

    Args:
        log: the file that gets its output. None to write to the output of the supervisor, as is
            usual in a container.
        umask: the umask of the child; -1 for the supervisor's umask.
        directory: the child's working directory; None for the supervisor's directory.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path | None,
        *,
        umask: int = -1,
        directory: Path | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._umask = umask
        self._dir = directory
        self._command = command
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> asyncio.subprocess.Process:
        """Starts the process."""
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
                umask=self._umask,
                cwd=self._dir,
            )
        return self.process

    async def keep(
        self,
        stop: asyncio.Event,
        started: Callable[["Child"], None] = lambda _: None,
        *,
        restarts: Restarts = RESTARTS,
        tries: int | None = None,
    ) -> None:
        """Keeps the process running until `stop` is set: starts it, and starts it again after each
        death. Does not end it. A process that has ended in order, as in a restart, is followed
        by the next one at once.

        Args:
            started: called after each start.
            tries: the early deaths in a row after which `keep` gives up; None for no limit. There
                is no limit either after the child process has once run longer.

        Raises:
            IrisError: the child process died early that many times.
        """
        delay = timedelta()
        while not stop.is_set():
            began, in_order = time.monotonic(), False
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
                in_order = process.returncode == 0
            lived = timedelta(seconds=time.monotonic() - began)
            delay = (
                timedelta() if in_order and lived >= restarts.soon else restarts.after(lived, delay)
            )
            tries = None if lived >= restarts.soon or tries is None else tries - 1
            if tries == 0:
                raise IrisError(f"{self.name} {ending}; no start has succeeded")
            logger.warning(
                "%s %s, and is started again in %g s", self.name, ending, delay.total_seconds()
            )
            await pause(stop, delay)

    async def stop(self, patience: timedelta) -> None:
        """Ends the process: SIGTERM, and SIGKILL after `patience`."""
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
        """Returns the last lines of its log; empty if it has no log."""
        with contextlib.suppress(OSError):
            log = self.log.read_text(errors="replace") if self.log is not None else ""
            return "\n".join(log.splitlines()[-count:])
        return ""


async def _ended(process: asyncio.subprocess.Process, stop: asyncio.Event) -> bool:
    """Waits until the process ends or `stop` is set; returns whether the process ended first."""
    waits = [asyncio.ensure_future(process.wait()), asyncio.ensure_future(stop.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    return process.returncode is not None and not stop.is_set()


def _die_with_parent() -> None:
    """Makes the kernel send SIGTERM to this process when the supervisor dies. Runs between fork and
    exec.

    Works only on Linux. On other systems, the cluster's record names the remaining processes.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG, linux/prctl.h
