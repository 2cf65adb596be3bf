"""`exec_task`: a command beside a task of this host, talked to through the store.

It is an activity by itself, of no workflow: its client starts it on the host's own queue, so there is one hop. It ends with its
command, with the attempt, when its client is silent for too long, or when it is cancelled; and all that the command has started
ends with it.
"""

import asyncio
import contextlib
import logging
import math
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Protocol

from temporalio import activity
from temporalio.exceptions import ApplicationError

from iris import names
from iris.activities.runtimes.base import CannotStart, HostUnable, Launch
from iris.activities.runtimes.commands import Command
from iris.activities.runtimes.exec_container import ContainerCommand
from iris.activities.runtimes.exec_process import ProcessCommand
from iris.activities.talk import Talk
from iris.execs import CANNOT, NOT_RUNNING, TIMED_OUT, ExecEnd, ExecRequest, Frame, Kind
from iris.store import STORE_ERRORS, Store
from iris.units import format_duration

logger = logging.getLogger(__name__)

#: A client says something every ten seconds at least; one that has been silent for so long is gone.
SILENCE = timedelta(seconds=60)
#: Between SIGHUP and SIGKILL.
GRACE = timedelta(seconds=2)
#: So long after SIGKILL something is given up that does not end.
KILL_PATIENCE = timedelta(seconds=15)
#: Between looks whether the attempt, the client and the time are still there; also how often the server is told that this lives.
LOOK_EVERY = timedelta(milliseconds=500)

#: Why a command was ended, and the exit code that this has; None: its own.
_Ended = tuple[str, int | None]
_INPUTS = (Kind.INPUT, Kind.END_OF_INPUT)


class Running(Protocol):
    """An attempt whose program runs on this host."""

    @property
    def key(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def directory(self) -> Path: ...
    @property
    def launch(self) -> Launch: ...
    @property
    def pid(self) -> int | None:
        """Of the program, on this host; None: its engine does not say."""


class Attempts(Protocol):
    """Who knows what runs here."""

    def running(self, job: str, index: int) -> Running | None: ...


def find(tasks: Attempts, job: str, index: int) -> Running:
    """The attempt of the task that runs here.

    Raises:
        ApplicationError: there is none.
    """
    running = tasks.running(job, index)
    if running is None:
        what = f"task {names.task_id(job, index)} does not run on this host"
        raise ApplicationError(f"{what}: it is still being set up, or has just ended", type=NOT_RUNNING, non_retryable=True)
    return running


class Execs:
    """The commands that run beside the tasks of one host.

    Args:
        silence: after so long without a word the client is gone.
        grace: between SIGHUP and SIGKILL.
    """

    def __init__(self, store: Store, tasks: Attempts, silence: timedelta = SILENCE, grace: timedelta = GRACE) -> None:
        self._store = store
        self._tasks = tasks
        self._silence = silence
        self._grace = grace

    @activity.defn
    async def exec_task(self, request: ExecRequest) -> ExecEnd:
        """Run the command to its end."""
        running = find(self._tasks, request.job, request.index)
        command: Command
        if running.launch.container:
            command = ContainerCommand(request, running.launch)
        else:
            command = ProcessCommand(request, running.launch)
        try:
            await command.start()
        except CannotStart as error:
            return ExecEnd(exit_code=error.exit_code, reason=str(error))
        except HostUnable as error:
            raise ApplicationError(str(error), type=CANNOT, non_retryable=True) from None
        logger.info("beside %s runs %r", running.key, request.argv[0])

        def goes_on() -> bool:
            now = self._tasks.running(request.job, request.index)
            return now is not None and now.key == running.key

        talk = Talk(self._store, request.session, says="out")
        return await _Session(request, command, talk, goes_on, self._silence, self._grace).live()


class _Session:
    """A command that has been started, and its client.

    Args:
        goes_on: whether the attempt does beside which it runs.
    """

    def __init__(
        self,
        request: ExecRequest,
        command: Command,
        talk: Talk,
        goes_on: Callable[[], bool],
        silence: timedelta,
        grace: timedelta,
    ) -> None:
        self._request = request
        self._command = command
        self._talk = talk
        self._goes_on = goes_on
        self._silence = silence.total_seconds()
        self._grace = grace.total_seconds()
        self._abandoned = False
        #: The number of each chunk that was heard, and what of it is input.
        self._inputs: asyncio.Queue[tuple[int, list[Frame]]] = asyncio.Queue()

    async def live(self) -> ExecEnd:
        """See the command to its end, and bring all that it has printed to the store."""
        speaking = asyncio.create_task(self._talk.speak())
        others = [asyncio.create_task(each) for each in (self._feed(), _beat())]
        running = asyncio.create_task(self._command.run(self._talk.say_in_turn))
        enders = [asyncio.create_task(each) for each in (self._listen(), self._watch(), self._store_fails(speaking))]
        try:
            await asyncio.wait([running, *enders], return_when=asyncio.FIRST_COMPLETED)
            reason, code = "", None
            if not running.done():
                reason, code = next(each.result() for each in enders if each.done())
                status = await self._stop(running)
            else:
                status = running.result()
            self._talk.finish()
            with contextlib.suppress(TimeoutError, *STORE_ERRORS):  # what it comes to is told all the same
                await asyncio.wait_for(speaking, self._silence)
            ended = code if code is not None else status if status >= 0 else 128 - status
            return ExecEnd(exit_code=ended, reason=reason, chunks=self._talk.said)
        finally:
            for each in (running, speaking, *others, *enders):
                each.cancel()
            # A command that is cancelled ends at once, with all that it has started.
            await asyncio.gather(running, speaking, *others, *enders, return_exceptions=True)
            if self._abandoned:
                await self._talk.remove()

    async def _stop(self, running: "asyncio.Task[int]") -> int:
        """SIGHUP, a moment, SIGKILL to all of it; its exit status.

        What runs in a container an agent without the right to kill it has to leave; it ends with the container.
        """
        await self._command.signal(signal.SIGHUP)
        await asyncio.wait([running], timeout=self._grace)
        self._talk.give_up()  # whoever does not read does not hold up the end
        if not running.done():
            await self._command.signal(signal.SIGKILL)
            await asyncio.wait([running], timeout=KILL_PATIENCE.total_seconds())
        if running.done():
            return running.result()
        logger.error("session %s: the command could not be killed", self._request.session)
        return -signal.SIGKILL

    async def _listen(self) -> _Ended:
        """Do what the client says; ends when it wants the command no more."""
        try:
            while (frames := await self._talk.hear()) is not None:
                self._inputs.put_nowait((self._talk.heard, [frame for frame in frames if frame.kind in _INPUTS]))
                for kind, data in frames:
                    match kind:
                        case Kind.SIZE:
                            rows, columns = data.split()
                            await self._command.resize(int(rows), int(columns))
                        case Kind.SIGNAL:
                            await self._command.signal(int(data))
                        case Kind.HANG_UP:
                            return "its client has hung up", None
        except (ValueError, HostUnable, *STORE_ERRORS) as error:
            logger.warning("session %s: %s", self._request.session, error)
            return f"what its client says could not be heard: {error}", None
        return "its client has hung up", None

    async def _feed(self) -> None:
        """Give the command its input as it takes it; what is in the queue is bounded by what the client may be ahead."""
        while True:
            chunk, frames = await self._inputs.get()
            for kind, data in frames:
                if kind is Kind.INPUT:
                    await self._command.feed(data)
                else:
                    await self._command.end_input()
            self._talk.took(chunk)

    async def _watch(self) -> _Ended:
        """Ends when the attempt has, when nothing is heard of the client, or when the time is over."""
        deadline = monotonic() + self._request.timeout.total_seconds() if self._request.timeout is not None else math.inf
        while True:
            if not self._goes_on():
                return "the task's attempt has ended", None
            if monotonic() - self._talk.heard_at > self._silence:
                self._abandoned = True
                return "nothing was heard of its client", None
            if (left := deadline - monotonic()) <= 0:
                return f"it ran longer than {format_duration(self._request.timeout or timedelta())}", TIMED_OUT
            await asyncio.sleep(min(left, LOOK_EVERY.total_seconds()))

    async def _store_fails(self, speaking: "asyncio.Task[None]") -> _Ended:
        """Ends when what the command prints cannot be stored."""
        await asyncio.wait([speaking])
        return f"what it prints could not be stored: {speaking.exception()}", None


async def _beat() -> None:
    """Tell the server that this lives: its answers bring cancellations."""
    while True:
        activity.heartbeat()
        await asyncio.sleep(LOOK_EVERY.total_seconds())
