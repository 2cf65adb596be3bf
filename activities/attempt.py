"""One attempt on this host: prepared, started, followed to its end, its logs and outputs brought into the store, its end told.

The attempt depends on nobody's life but its own. Its program runs below a shim (`runtimes.shim`), it reports by the activity's
task token, and whatever an agent needs to go on with it lies in its directory: so an agent that finds one goes on where its
predecessor died, or, when the cluster has given the attempt up meanwhile, makes sure that it is dead.
"""

import asyncio
import contextlib
import logging
import os
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError
from temporalio.client import AsyncActivityHandle
from temporalio.service import RPCError

from iris import names
from iris.activities import building, judgement
from iris.activities.delivery import Delivery
from iris.activities.leftovers import KILL_WAIT, AttemptState
from iris.activities.logship import LogShipper
from iris.activities.pulse import FENCE, RPC_TIMEOUT, Pulse, report
from iris.activities.runtimes.base import CannotStart, HostUnable, Launch
from iris.activities.runtimes.program import Exit, Program
from iris.activities.use import Use
from iris.activities.workbench import Workbench
from iris.jobs import TaskOutcome
from iris.logs import Stream
from iris.states import TaskState
from iris.units import format_duration
from iris.workflows.messages import Batch, RunTask, Vacate

logger = logging.getLogger(__name__)

#: Between looks at the output.
READ_EVERY = timedelta(milliseconds=200)
#: How long the end of an attempt waits for a store that is away, before it is reported all the same.
STORE_PATIENCE = timedelta(seconds=60)
#: How long logs and outputs of an attempt whose end is known wait for the store after that.
KEEP_FOR = timedelta(days=1)


class Running(NamedTuple):
    """What runs of an attempt, for whoever wants to look at it or join it."""

    key: str
    attempt: int
    directory: Path
    launch: Launch
    #: Of the program, on the host; None: its container's engine does not say.
    pid: int | None
    shim: int


class Root(NamedTuple):
    """A process below which a program runs, or which is its first itself."""

    pid: int
    own: bool


class Attempt:
    """A task's program on this host, from the preparations to the accepted outcome.

    Args:
        directory: of this attempt alone; removed at the end.
        found: an earlier agent has begun it.
    """

    def __init__(self, bench: Workbench, state: AttemptState, directory: Path, *, found: bool = False) -> None:
        self._bench = bench
        self._state = state
        self._dir = directory
        self._found = found
        directory.mkdir(0o700, parents=True, exist_ok=True)
        if not found:
            # Before there is a program: whoever finds a directory without this file knows that nothing runs.
            state.write(directory)
        self._handle: AsyncActivityHandle = bench.client.get_async_activity_handle(task_token=state.task_token)
        files = {Stream.BUILD: directory / "build", Stream.STDOUT: directory / "stdout", Stream.STDERR: directory / "stderr"}
        self._logs = LogShipper(bench.store, self.task.logs, files, directory / "shipped.json", taken_over=found)
        self._delivery = Delivery(bench.store, self._logs, directory / "outputs", self.task.outputs, bench.gate)
        self._runtime = bench.runtime(self.task, directory)
        self._program = Program(directory)
        self._pulse = Pulse(
            bench.client,
            self._handle,
            self.task,
            details=self._details,
            alive_until=lambda lease: self._program.keep_until(lease) if self._program.launched else None,
            cancelled=lambda: self.end(TaskState.KILLED, "cancelled"),
            given_up=self.give_up,
            cut_off=self._cut_off,
            heard=self._program.lease - FENCE.total_seconds() if found else None,
        )
        self._preparing: asyncio.Task[building.Built] | None = None
        #: Set by whoever ends the attempt before the program does: the outcome it then has.
        self._verdict = state.verdict
        #: The server no longer wants to hear of the attempt.
        self._given_up = False
        #: Its life of the host is over.
        self._condemned = False
        #: This life of the host is over: no time is left for more than a word.
        self._lost = False
        #: There is or was a program.
        self._begun = self._program.launched
        self._peak_memory = 0
        self._running: Running | None = None
        #: How the program ended; nothing changes its outcome after that.
        self._exit = self._program.exit

    @property
    def task(self) -> RunTask:
        return self._state.task

    @property
    def told(self) -> bool:
        """The server knows how it ended, or does not want to: only its logs and outputs are still on their way."""
        return self._state.told

    @property
    def root(self) -> Root | None:
        """Below which process its program runs; None: it does not."""
        if (running := self.running) is None:
            return None
        in_container = bool(running.launch.container)
        pid = running.pid if in_container else running.shim
        return None if pid is None else Root(pid, own=in_container)

    @property
    def running(self) -> Running | None:
        """What of it runs; None: nothing yet, or no more."""
        if self._exit is not None:
            return None
        if self._running is None and (started := self._program.started) is not None:
            with contextlib.suppress(OSError, ValidationError):  # it has deleted what is kept beside it
                launch = self._program.launch
                self._running = Running(self.task.key, self.task.attempt, self._dir, launch, started.pid, started.shim)
        return self._running

    async def live(self) -> None:
        """See it to its end and report that; returns when the server has the outcome or does not want it, and nothing is left.

        A cancellation leaves everything as it is: the program runs on, for another agent to find.
        """
        if not self.told:
            await self._tell(await self._outcome())
        if self.told:
            await self._clear_away()

    async def settle(self) -> None:
        """For an attempt that was found: hear whether it is still wanted. If it is not, nothing of it runs afterwards."""
        if not self._over and not self.told:
            await self._pulse.beat()
        if self._over:
            self._kill()
            if self._program.launched:
                with contextlib.suppress(TimeoutError):  # what hangs in the kernel hangs
                    await asyncio.wait_for(self._program.wait(), KILL_WAIT.total_seconds())
            await self._runtime.clear()

    def end(self, state: TaskState, reason: str) -> None:
        """End the program: SIGTERM, the job's grace, SIGKILL. The first reason counts; a program that has ended needs none."""
        if not self._has_ended():
            self._decide(TaskOutcome(state=state, reason=reason, host_leaves=state is TaskState.PREEMPTED))
            self._stop(self.task.grace)

    def condemn(self, reason: str) -> None:
        """It belongs to a life of the host that is over: end it at once, and say so unless it has ended before."""
        if not self._has_ended():
            self._decide(TaskOutcome(state=TaskState.WORKER_FAILED, reason=reason))
            self._condemned = True
            self._kill()

    def give_up(self, reason: str) -> None:
        """The attempt has a successor or is about to: end it at once and tell nobody."""
        logger.warning("attempt %s is killed: %s", self.task.key, reason)
        self._given_up = True
        self._kill()

    def lose(self, reason: str) -> None:
        """This life of the host is over: end the attempt at once, and say so, but only once and soon.

        Whoever has been told to give up the attempt still tells nobody, and an end that was on its way stays what it is.
        """
        self._lost = True
        self._delivery.hurry()
        self.condemn(reason)

    # -- inside --------------------------------------------------------------------------------------------------------------

    @property
    def _over(self) -> bool:
        """It is not to run on, whatever it is at."""
        return self._given_up or self._condemned

    def _has_ended(self) -> bool:
        """Whether its program has, though nobody may have looked yet: nothing changes its outcome then."""
        self._exit = self._exit or self._program.exit
        return self._exit is not None

    def _cut_off(self, reason: str) -> None:
        """There has been no contact for too long. A program that has ended does no harm: its end is told when there is."""
        if not self._has_ended():
            self.give_up(reason)

    def _decide(self, verdict: TaskOutcome) -> None:
        if self._verdict is None:
            self._verdict = verdict
            self._put_down(verdict=verdict)

    def _put_down(self, **changes: object) -> None:
        self._state = self._state.model_copy(update=changes)
        with contextlib.suppress(OSError):  # a full disk: another agent may then say something else of it, but not run it
            self._state.write(self._dir)

    def _kill(self) -> None:
        self._stop(timedelta(0))

    def _stop(self, grace: timedelta) -> None:
        if self._preparing is not None:
            self._preparing.cancel()
        if self._program.launched:
            self._program.stop(grace)

    async def _outcome(self) -> TaskOutcome:
        """What it comes to, in the end; its logs and outputs are in the store by then, if the store takes them in time."""
        beside = [asyncio.create_task(work) for work in (self._pulse.beat_on(), self._limit())]
        try:
            outcome = None if self._program.launched else await self._start()
            if outcome is None:
                self._exit = await self._follow()
                if self._exit.error:
                    self._logs.say(self._exit.error)
            if not await self._delivery.done(STORE_PATIENCE):
                logger.error("the last output of %s is not in the store yet", self.task.key)
            return outcome or judgement.judge(self._case())
        except Exception as error:  # a fault of this host: its disk is full, or the program has deleted what is kept beside it
            logger.exception("attempt %s cannot go on here", self.task.key)
            self._condemned = True
            await self.settle()
            reason = f"the attempt could not go on on this host: {error}"
            deleted = isinstance(error, FileNotFoundError)
            return judgement.of_the_host(self._case(), reason, judgement.LOST_FAULT if deleted else judgement.HOST_FAULT)
        finally:
            for work in beside:
                work.cancel()
            for fault in await asyncio.gather(*beside, return_exceptions=True):
                if isinstance(fault, Exception):
                    logger.error("attempt %s was not looked after", self.task.key, exc_info=fault)

    async def _start(self) -> TaskOutcome | None:
        """Prepare it and have its program started; or what it comes to without one."""
        if self._found:
            await self._runtime.clear()  # what the dead agent was preparing
        self._preparing = asyncio.create_task(building.build(self._bench, self.task, self._dir, self._runtime))
        if self._verdict is not None or self._over:
            self._preparing.cancel()
        shipping = asyncio.create_task(self._ship_on())
        try:
            built = await self._preparing
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if me is not None and me.cancelling():  # it is this agent that leaves
                raise
            return self._not_begun()
        except CannotStart as error:
            self._logs.say(str(error))
            return judgement.of_the_program(self._case(), str(error), error.exit_code)
        except HostUnable as error:
            self._logs.say(str(error))
            return judgement.of_the_host(self._case(), str(error), error.fault)
        finally:
            self._preparing = None
            shipping.cancel()
            await asyncio.gather(shipping, return_exceptions=True)
        try:
            if self._over or self._verdict is not None:  # it was ended in the last moment
                await self._runtime.clear()
                return self._not_begun()
            if built.ports:
                self._put_down(ports=built.ports)
            self._begun = True
            self._program.start(built.launch, self._pulse.lease, built.keep)
        finally:
            for descriptor in built.keep:
                os.close(descriptor)  # the shim has them
        return None

    def _not_begun(self) -> TaskOutcome:
        """Of what has not begun: whoever ended it may have said how."""
        return judgement.judge(self._case()) if self._verdict else judgement.of_the_host(self._case(), "given up")

    async def _follow(self) -> Exit:
        """Ship what it writes until it has ended; its end does not wait for the store.

        Raises:
            OSError: what is kept of it beside the program was deleted.
        """
        ended = asyncio.create_task(self._program.wait())
        beside = [asyncio.create_task(work) for work in (self._ship_on(), self._look_after())]
        try:
            await asyncio.wait({ended, *beside}, return_when=asyncio.FIRST_COMPLETED)
            for work in beside:
                if work.done() and not ended.done():
                    work.result()
            self._exit = found = await ended
        finally:
            ended.cancel()
            for work in beside:
                work.cancel()
            await asyncio.gather(ended, *beside, return_exceptions=True)
        if found.status is None:
            await self._runtime.clear()  # its shim is gone and could not
        return found

    async def _look_after(self) -> None:
        while True:
            if self._pulse.state is not TaskState.RUNNING and (started := self._program.started) is not None:
                self._pulse.goes_on(TaskState.RUNNING, started.started_at)
            if not self._program.launched:
                raise FileNotFoundError("what is kept of it beside the program was deleted")
            await asyncio.sleep(READ_EVERY.total_seconds())

    async def _ship_on(self) -> None:
        while True:
            await self._logs.ship()
            await asyncio.sleep(0 if self._logs.behind else READ_EVERY.total_seconds())

    def _case(self) -> judgement.Case:
        return judgement.Case(
            taken_at=self._state.taken_at,
            now=datetime.now(UTC),
            begun=self._begun,
            started=self._program.started,
            exit=self._exit,
            verdict=self._verdict,
            memory_limit=self.task.resources.memory_bytes,
            last_lines=self._logs.last_lines,
            faults=self._bench.faults,
        )

    def _details(self) -> Mapping[str, Any]:
        started = self._program.started
        told = {
            "task": self.task.index,
            "state": self._pulse.state,
            "since": (started.started_at if started else self._state.taken_at).isoformat(),
        }
        if started is None:
            return told
        return {**told, "pid": started.pid, "ports": self._state.ports, **self._use()}

    def _use(self) -> Mapping[str, Any]:
        use = self._bench.uses.get(self.task.key, Use())
        self._peak_memory = max(self._peak_memory, use.memory_bytes)
        return {**use._asdict(), "peak_memory_bytes": self._peak_memory}

    async def _limit(self) -> None:
        if self.task.timeout is not None:
            left = self._state.taken_at + self.task.timeout - datetime.now(UTC)
            await asyncio.sleep(left.total_seconds())
            self.end(TaskState.FAILED, f"ran longer than its timeout of {format_duration(self.task.timeout)}")

    async def _tell(self, outcome: TaskOutcome) -> None:
        """Give the server the outcome, if it wants it."""
        if not self._given_up:
            told = await report(self._handle, outcome, self.task.key, hurried=lambda: self._lost)
            if told is None:
                return  # another life of this agent will say it
            self._given_up = not told
        self._state = self._state.model_copy(update={"told": True})
        if not self._delivery.complete:  # else its directory is about to go
            self._put_down()
        if self._given_up and not self._lost:  # what was placed on a life of the host dies with it
            await self._free()

    async def _clear_away(self) -> None:
        """Remove it, with everything that it has left; but not before its logs and outputs are in the store."""
        await self._runtime.clear(swept=self._exit is not None and self._exit.status is not None)
        with contextlib.suppress(FileNotFoundError):  # of what somebody has deleted nothing can be delivered any more
            if not await self._delivery.done(KEEP_FOR) and self._lost:
                return
        await asyncio.to_thread(shutil.rmtree, self._dir, ignore_errors=True)

    async def _free(self) -> None:
        """The job may have been terminated and unable to give its host back. The scheduler finds that out too, but later."""
        scheduler = self._bench.client.get_workflow_handle(names.scheduler_workflow(self._bench.cluster))
        task = self.task
        vacated = Vacate(key=task.claim or task.key, host_id=self._bench.host.id, incarnation=task.incarnation)
        with contextlib.suppress(RPCError):
            await scheduler.signal("deliver", Batch(messages=(vacated,)), rpc_timeout=RPC_TIMEOUT)
