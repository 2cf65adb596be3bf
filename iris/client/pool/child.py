"""The process in which a worker runs calls. The worker replaces it when a call has ended it."""

import asyncio
import contextlib
import signal
import socket
import struct
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

from iris.client.pool import frames
from iris.model.errors import IrisError

#: The file name of the script that the child process runs, in the directory of the pool's files.
SCRIPT = "executor.py"
#: How long the worker reads the last answers of a child process that has ended, in seconds.
_LAST_ANSWERS = 1.0


class Crashed(IrisError):
    """The child process ended during a call."""


class Child:
    """A process that runs calls. It starts with the first batch.

    Args:
        python: the interpreter of the process.
        directory: the directory of the pool's files.
    """

    def __init__(self, python: str, directory: Path) -> None:
        self._command = (python, str(directory / SCRIPT))
        self._process: Process | None = None
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def run(self, batch: bytes, calls: int, stopped: asyncio.Event) -> AsyncIterator[bytes]:
        """Yields the answers to the calls. Ends early if the batch takes too long, or when
        `stopped` is set.

        Args:
            batch: the function and the calls, joined by `frames.join`.

        Raises:
            Crashed: a call has ended the process.
        """
        complete = False
        try:
            process, reader, writer = await self._started()
            async with _tasks(process.wait(), stopped.wait()) as (ended, stopping):
                with contextlib.suppress(ConnectionError):  # the process has ended
                    writer.write(struct.pack(frames.LENGTH, len(batch)) + batch)
                    await writer.drain()
                for _ in range(calls):
                    answer = await _answer(reader, ended, stopping)
                    if not answer:
                        break
                    yield answer
                complete = not stopped.is_set()
        finally:
            if not complete:  # its other answers would be taken for those of the next batch
                await self.close()

    async def close(self) -> None:
        """Kills the process."""
        process, streams = self._process, self._streams
        self._process = self._streams = None
        if streams is not None:
            streams[1].close()
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _started(self) -> tuple[Process, asyncio.StreamReader, asyncio.StreamWriter]:
        if self._process is None or self._process.returncode is not None or self._streams is None:
            await self.close()
            ours, theirs = socket.socketpair()
            with theirs:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command,
                    str(theirs.fileno()),
                    pass_fds=(theirs.fileno(),),
                    stdin=asyncio.subprocess.DEVNULL,
                )
            self._streams = await asyncio.open_connection(sock=ours)
        return self._process, *self._streams


@contextlib.asynccontextmanager
async def _tasks(*coroutines: Coroutine[Any, Any, Any]) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Yields tasks that run the coroutines. Cancels them at the end of the block."""
    tasks = [asyncio.create_task(each) for each in coroutines]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()


async def _answer(
    reader: asyncio.StreamReader, ended: asyncio.Task[int], stopping: asyncio.Task[bool]
) -> bytes:
    """Returns the next answer. An empty answer means that the process will not run the remaining
    calls.

    Raises:
        Crashed: the process has ended without an answer.
    """
    async with _tasks(_read(reader)) as (reading,):
        await asyncio.wait((reading, ended, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not reading.done() and ended.done():
            await asyncio.wait((reading,), timeout=_LAST_ANSWERS)
        if reading.done():
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                answer: bytes = await reading
                return answer
        if stopping.done():
            return b""
        raise Crashed(_end(await ended))


async def _read(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(frames.LENGTH, await reader.readexactly(struct.calcsize(frames.LENGTH)))
    return await reader.readexactly(size)


def _end(code: int) -> str:
    return (
        f"the process of the call was killed by {signal.Signals(-code).name}"
        if code < 0
        else f"the call exited with code {code}"
    )
