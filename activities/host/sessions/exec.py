"""Implements `exec_task`, which runs a command beside a task of this host and exchanges its input
and output through the store.

The activity is standalone (it belongs to no workflow): its client starts it directly on the host's
own task queue. It ends when the command or the attempt ends, when its client is silent for too
long, or when it is cancelled. Processes that the command has started and left are killed after a
grace.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from datetime import timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError

from iris.activities.host.runtimes.base import HostFault, JobFault
from iris.activities.host.runtimes.commands import Command
from iris.activities.host.runtimes.container.exec import ContainerCommand
from iris.activities.host.runtimes.process.exec import ProcessCommand
from iris.activities.host.sessions.sessions import (
    CLIENT_GONE,
    HUNG_UP,
    SILENCE,
    AttemptSource,
    beat,
    find,
    is_abandoned,
    needed_no_more,
    runs_still,
    store_fails,
)
from iris.activities.host.sessions.store_stream import StoreStream
from iris.messages.exec import CANNOT, TIMED_OUT, ExecEnd, ExecRequest, Frame, FrameKind
from iris.model.units import format_duration
from iris.storage.object_store import STORE_ERRORS, Store

logger = logging.getLogger(__name__)

#: The delay between SIGHUP and SIGKILL for a command that must end. It is also the time that other
#: processes of a command have to end after its first process has ended.
GRACE = timedelta(seconds=2)
#: How long the activity waits for the end of a command after SIGKILL.
KILL_PATIENCE = timedelta(seconds=15)

#: The reason why a command was ended, and the exit code to report. If the exit code is None, the
#: command's own exit code is reported.
_Ended = tuple[str, int | None]
_INPUTS = (FrameKind.INPUT, FrameKind.END_OF_INPUT)


class Execs:
    """Runs commands beside the tasks of one host.

    Args:
        silence: a client that has sent nothing for this long counts as gone.
        grace: the delay between SIGHUP and SIGKILL for a command that must end.
    """

    def __init__(
        self,
        store: Store,
        tasks: AttemptSource,
        silence: timedelta = SILENCE,
        grace: timedelta = GRACE,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._silence = silence
        self._grace = grace

    @activity.defn
    async def exec_task(self, request: ExecRequest) -> ExecEnd:
        """Runs the command until it ends or must end. Returns its exit code and the reason."""
        running = find(self._tasks, request.job, request.index)
        command: Command
        if running.launch.container:
            command = ContainerCommand(request, running.launch, self._grace)
        else:
            command = ProcessCommand(request, running.launch, self._grace)
        try:
            await command.start()
        except JobFault as error:
            return ExecEnd(exit_code=error.exit_code, reason=str(error))
        except HostFault as error:
            raise ApplicationError(str(error), type=CANNOT, non_retryable=True) from None
        logger.info("%r runs beside attempt %s", request.argv[0], running.key)

        is_running = runs_still(self._tasks, request.job, request.index, running.key)
        stream = StoreStream(self._store, request.folder, writes="out")
        return await _Session(
            request, command, stream, is_running, self._silence, self._grace
        ).run()


class _Session:
    """One command that was started beside a task, and its connection to the client.

    Args:
        is_running: returns True while the attempt beside which the command runs has not ended.
    """

    def __init__(
        self,
        request: ExecRequest,
        command: Command,
        stream: StoreStream,
        is_running: Callable[[], bool],
        silence: timedelta,
        grace: timedelta,
    ) -> None:
        self._request = request
        self._command = command
        self._stream = stream
        self._is_running = is_running
        self._silence = silence
        self._grace = grace.total_seconds()
        self._client_gone = False
        #: The received input, as chunks: the number of each chunk, and the input frames in it.
        self._inputs: asyncio.Queue[tuple[int, list[Frame]]] = asyncio.Queue()

    async def run(self) -> ExecEnd:
        """Waits until the command ends or must end, and stores all its output."""
        writing = asyncio.create_task(self._stream.write())
        others = [asyncio.create_task(each) for each in (self._feed(), beat())]
        running = asyncio.create_task(self._command.run(self._stream.send_in_turn))
        enders = [
            asyncio.create_task(each)
            for each in (self._listen(), self._watch(), self._store_fails(writing))
        ]
        try:
            await asyncio.wait([running, *enders], return_when=asyncio.FIRST_COMPLETED)
            reason, code = "", None
            if not running.done():
                reason, code = next(each.result() for each in enders if each.done())
                status = await self._stop(running)
            else:
                status = running.result()
            self._stream.finish()
            # If the store does not take the rest of the output, the result is returned without it.
            with contextlib.suppress(TimeoutError, *STORE_ERRORS):
                await asyncio.wait_for(writing, self._silence.total_seconds())
            ended = code if code is not None else status if status >= 0 else 128 - status
            return ExecEnd(exit_code=ended, reason=reason, chunks=self._stream.sent)
        finally:
            for each in (running, writing, *others, *enders):
                each.cancel()
            # The cancellation kills all processes of the command.
            await asyncio.gather(running, writing, *others, *enders, return_exceptions=True)
            if self._client_gone or is_abandoned():
                await self._stream.remove()

    async def _stop(self, running: "asyncio.Task[int]") -> int:
        """Sends SIGHUP, waits for the grace, and sends SIGKILL to all processes of the command.
        Returns the command's exit status.

        If the agent may not kill processes in a container, they end with the container.
        """
        await self._command.signal(signal.SIGHUP)
        await asyncio.wait([running], timeout=self._grace)
        self._stream.give_up()  # a client that does not read must not delay the end
        if not running.done():
            await self._command.signal(signal.SIGKILL)
            await asyncio.wait([running], timeout=KILL_PATIENCE.total_seconds())
        if running.done():
            return running.result()
        logger.error("session %s: the command could not be killed", self._request.session)
        return -signal.SIGKILL

    async def _listen(self) -> _Ended:
        """Carries out the client's frames. Returns when the client has disconnected or its frames
        cannot be read.
        """
        try:
            while (frames := await self._stream.receive()) is not None:
                self._inputs.put_nowait(
                    (self._stream.received, [frame for frame in frames if frame.kind in _INPUTS])
                )
                for kind, data in frames:
                    match kind:
                        case FrameKind.SIZE:
                            rows, columns = data.split()
                            await self._command.resize(int(rows), int(columns))
                        case FrameKind.SIGNAL:
                            await self._command.signal(int(data))
                        case FrameKind.HANG_UP:
                            return HUNG_UP, None
        except (ValueError, HostFault, *STORE_ERRORS) as error:
            logger.warning("session %s: %s", self._request.session, error)
            return f"the client's input could not be read: {error}", None
        return HUNG_UP, None

    async def _feed(self) -> None:
        """Passes the input to the command as fast as the command reads it. The queue stays small,
        because a client waits while too many of its chunks are not acknowledged.
        """
        while True:
            chunk, frames = await self._inputs.get()
            for kind, data in frames:
                if kind is FrameKind.INPUT:
                    await self._command.feed(data)
                else:
                    await self._command.end_input()
            self._stream.acknowledge(chunk)

    async def _watch(self) -> _Ended:
        """Waits until the attempt has ended, the client is silent for too long, or the command's
        timeout is over. Returns the reason.
        """
        timeout = self._request.timeout
        try:
            async with asyncio.timeout(timeout.total_seconds() if timeout is not None else None):
                reason = await needed_no_more(self._is_running, self._stream, self._silence)
        except TimeoutError:
            return f"it ran longer than {format_duration(timeout or timedelta())}", TIMED_OUT
        self._client_gone = reason == CLIENT_GONE
        return reason, None

    async def _store_fails(self, writing: "asyncio.Task[None]") -> _Ended:
        """Waits until the command's output cannot be stored. Returns the reason."""
        return await store_fails(writing), None
