"""Runs one attempt on this host: prepares it, starts its program, ships its logs and outputs, and reports its outcome.

An attempt outlives the agent that started it. Its program runs below a shim (`runtimes.shim`), the agent reports by the
activity's task token, and the attempt's directory holds everything that another agent needs to continue. An agent that finds
such a directory continues the attempt. If the cluster has given the attempt up meanwhile, the agent makes sure that its program
is dead.
"""

import asyncio
import contextlib
import logging
import os
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from temporalio.client import AsyncActivityHandle
from temporalio.service import RPCError

from iris.activities.host import outcome as outcomes
from iris.activities.host import prepare
from iris.activities.host.heartbeat import FENCE, RPC_TIMEOUT, Heartbeat, report
from iris.activities.host.host_context import Workbench
from iris.activities.host.logs import LogShipper
from iris.activities.host.running import Root, Running
from iris.activities.host.runtimes import links
from iris.activities.host.runtimes.base import CannotStart, HostUnable
from iris.activities.host.runtimes.orphans import AttemptState
from iris.activities.host.runtimes.program import Exit, Program
from iris.activities.host.upload import Delivery
from iris.activities.host.usage import Use
from iris.messages.scheduler import Batch, Vacate
from iris.messages.task import RunTask
from iris.model import names
from iris.model.jobs import TaskOutcome
from iris.model.states import TaskState
from iris.model.units import format_duration
from iris.storage.log_format import Stream

logger = logging.getLogger(__name__)

#: Delay between two reads of the output.
READ_EVERY = timedelta(milliseconds=200)
#: How long an agent that takes over waits for programs that it has killed: longer than `Program.kill` takes.
SETTLE = timedelta(seconds=20)
#: How long a finished attempt waits for an unreachable store before its outcome is reported anyway.
STORE_PATIENCE = timedelta(seconds=60)
#: How long the logs and outputs of an attempt wait for the store after its outcome was reported.
KEEP_FOR = timedelta(days=1)


class Attempt:
    """A task's program on this host, from its preparation to the accepted outcome.

    Args:
        directory: belongs to this attempt alone; removed at the end.
        found: True if an earlier agent started the attempt.
    """

    def __init__(self, bench: Workbench, state: AttemptState, directory: Path, *, found: bool = False) -> None:
        self._bench = bench
        self._state = state
        self._dir = directory
        self._found = found
        directory.mkdir(0o700, parents=True, exist_ok=True)
        if not found:
            state.write(directory)  # before the program starts: in a directory without this file, no program runs
        self._handle: AsyncActivityHandle = bench.client.get_async_activity_handle(task_token=state.task_token)
        files = {Stream.BUILD: directory / "build", Stream.STDOUT: directory / "stdout", Stream.STDERR: directory / "stderr"}
        self._logs = LogShipper(bench.store, self.task.logs, files, directory / "shipped.json", taken_over=found)
        self._delivery = Delivery(bench.store, self._logs, directory / "outputs", self.task.outputs, bench.gate)
        self._runtime = bench.runtime(self.task, directory)
        self._program = Program(directory)
        self._heartbeat = Heartbeat(
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
        self._preparing: asyncio.Task[prepare.Built] | None = None
        #: The outcome that was decided when the attempt was ended before its program ended.
        self._verdict = state.verdict
        #: True if the server gave the attempt up: no outcome is reported.
        self._given_up = False
        #: True if its incarnation of the host is over, or the attempt cannot continue on this host.
        self._condemned = False
        #: True if this incarnation of the host is over: only one short report is left to do.
        self._lost = False
        #: True if the program was started.
        self._begun = self._program.launched
        self._peak_memory = 0
        self._running: Running | None = None
        #: How the program ended. Once this is set, nothing changes the outcome.
        self._exit = self._program.exit

    @property
    def task(self) -> RunTask:
        return self._state.task

    @property
    def told(self) -> bool:
        """True if the server has the outcome or does not want it. Then only logs and outputs remain to be stored."""
        return self._state.told

    @property
    def root(self) -> Root | None:
        """The root of the program's process tree; None: the program does not run."""
        if (running := self.running) is None:
            return None
        in_container = bool(running.launch.container)
        pid = running.pid if in_container else running.shim
        return None if pid is None else Root(pid, own=in_container)

    @property
    def running(self) -> Running | None:
        """The running program; None: it has not started yet, or has ended."""
        if self._exit is not None:
            return None
        if self._running is None and (started := self._program.started) is not None:
            with contextlib.suppress(OSError, ValidationError):  # the program has deleted Iris's files beside it
                launch = self._program.launch
                self._running = Running(self.task.key, self.task.attempt, self._dir, launch, started.pid, started.shim)
        return self._running

    async def live(self) -> None:
        """Runs the attempt to its end and reports its outcome.

        Returns when the server has the outcome or does not want it, and nothing is left on the host. After `lose`, it also
        returns if the one short try failed; the directory then stays. A cancellation changes nothing: the program continues to
        run, and another agent can find it.
        """
        if not self.told:
            await self._tell(await self._outcome())
        if self.told:
            await self._clear_away()

    async def settle(self) -> None:
        """Asks the server whether an attempt that was found is still wanted. If it is not, kills everything of it."""
        if not self._over and not self.told:
            await self._heartbeat.beat()
        if self._over:
            with contextlib.suppress(TimeoutError):  # a process that hangs in the kernel cannot be killed
                await asyncio.wait_for(self._end_now(), SETTLE.total_seconds())

    def end(self, state: TaskState, reason: str) -> None:
        """Ends the program: SIGTERM, the job's grace, SIGKILL. Only the first reason counts. Does nothing if it has ended."""
        if not self._has_ended():
            self._decide(TaskOutcome(state=state, reason=reason, host_leaves=state is TaskState.PREEMPTED))
            self._stop(self.task.grace)

    def condemn(self, reason: str) -> None:
        """Ends the attempt at once, because its incarnation of the host is over, and reports it as WORKER_FAILED.

        Does nothing if the program has ended before.
        """
        if not self._has_ended():
            self._decide(TaskOutcome(state=TaskState.WORKER_FAILED, reason=reason))
            self._condemned = True
            self._kill()

    def give_up(self, reason: str) -> None:
        """Ends the attempt at once and reports nothing, because the attempt has a successor or will have one soon."""
        logger.warning("attempt %s is killed: %s", self.task.key, reason)
        self._given_up = True
        self._kill()

    def lose(self, reason: str) -> None:
        """Ends the attempt at once, because this incarnation of the host is over, and makes one short try to report that.

        An attempt that was given up is still not reported. An outcome that was already decided does not change.
        """
        self._lost = True
        self._delivery.hurry()
        self.condemn(reason)

    # -- inside --------------------------------------------------------------------------------------------------------------

    @property
    def _over(self) -> bool:
        """True if the attempt must not continue, in any phase."""
        return self._given_up or self._condemned

    def _has_ended(self) -> bool:
        """Returns True if the program has ended, also if this was not noticed yet. Nothing changes the outcome then."""
        self._exit = self._exit or self._program.exit
        return self._exit is not None

    def _cut_off(self, reason: str) -> None:
        """Gives the attempt up after too long without contact.

        A program that has already ended does no harm: its outcome is reported when there is contact again.
        """
        if not self._has_ended():
            self.give_up(reason)

    def _decide(self, verdict: TaskOutcome) -> None:
        if self._verdict is None:
            self._verdict = verdict
            self._put_down(verdict=verdict)

    def _put_down(self, **changes: object) -> None:
        self._state = self._state.model_copy(update=changes)
        # If the disk is full, another agent may report a different outcome, but it does not run the program again.
        with contextlib.suppress(OSError):
            self._state.write(self._dir)

    def _kill(self) -> None:
        self._stop(timedelta(0))

    def _stop(self, grace: timedelta) -> None:
        if self._preparing is not None:
            self._preparing.cancel()
        if self._begun:
            self._program.stop(grace)

    async def _end_now(self) -> None:
        """Kills the program and returns when no process of the attempt is alive."""
        self._kill()
        if self._begun:
            with contextlib.suppress(OSError):  # its directory is gone, and with it every record of its shim
                await self._program.wait()
        await self._runtime.clear()

    async def _outcome(self) -> TaskOutcome:
        """Runs the attempt and returns its outcome. Its logs and outputs are in the store by then, if the store is reachable."""
        beside = [asyncio.create_task(work) for work in (self._heartbeat.beat_on(), self._limit())]
        try:
            outcome = None if self._program.launched else await self._start()
            if outcome is None:
                self._exit = await self._follow()
                if self._exit.error:
                    self._logs.say(self._exit.error)
            if not await self._delivery.done(STORE_PATIENCE):
                logger.error("the last output of %s is not in the store yet", self.task.key)
            return outcome or outcomes.outcome_of(self._case())
        except Exception as error:  # a fault of this host: its disk is full, or the program has deleted Iris's files beside it
            logger.exception("attempt %s cannot go on here", self.task.key)
            self._condemned = True
            await self._end_now()
            reason = f"the attempt could not go on on this host: {error}"
            if isinstance(error, FileNotFoundError):
                reason = "the attempt could not go on on this host: what is kept of it beside the program was deleted"
            taken = isinstance(error, FileNotFoundError | links.Replaced)
            return outcomes.of_the_host(self._case(), reason, outcomes.LOST_FAULT if taken else outcomes.HOST_FAULT)
        finally:
            for work in beside:
                work.cancel()
            for fault in await asyncio.gather(*beside, return_exceptions=True):
                if isinstance(fault, Exception):
                    logger.error("attempt %s was not looked after", self.task.key, exc_info=fault)

    async def _start(self) -> TaskOutcome | None:
        """Prepares the attempt and starts its program. Returns None, or the outcome if no program was started."""
        if self._found:
            await self._runtime.clear()  # removes what the dead agent was preparing
        self._preparing = asyncio.create_task(prepare.build(self._bench, self.task, self._dir, self._runtime))
        if self._verdict is not None or self._over:
            self._preparing.cancel()
        shipping = asyncio.create_task(self._ship_on())
        try:
            built = await self._preparing
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if me is not None and me.cancelling():  # this agent stops; the attempt itself was not ended
                raise
            return self._not_begun()
        except CannotStart as error:
            self._logs.say(str(error))
            return outcomes.of_the_program(self._case(), str(error), error.exit_code)
        except HostUnable as error:
            self._logs.say(str(error))
            return outcomes.of_the_host(self._case(), str(error), error.fault)
        finally:
            self._preparing = None
            shipping.cancel()
            await asyncio.gather(shipping, return_exceptions=True)
        try:
            if self._over or self._verdict is not None:  # the attempt was ended just before the start
                await self._runtime.clear()
                return self._not_begun()
            if built.ports:
                self._put_down(ports=built.ports)
            self._begun = True
            self._program.start(built.launch, self._heartbeat.lease, built.keep)
        finally:
            for descriptor in built.keep:
                os.close(descriptor)  # the shim has inherited them
        return None

    def _not_begun(self) -> TaskOutcome:
        """Returns the outcome of an attempt whose program never started: by the verdict, if there is one."""
        return outcomes.outcome_of(self._case()) if self._verdict else outcomes.of_the_host(self._case(), "given up")

    async def _follow(self) -> Exit:
        """Ships the program's output until the program has ended, and returns how it ended. Does not wait for the store then.

        Raises:
            OSError: Iris's files beside the program were deleted.
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
            await self._runtime.clear()  # the shim was killed and could not clean up
        return found

    async def _look_after(self) -> None:
        while True:
            if self._heartbeat.state is not TaskState.RUNNING and (started := self._program.started) is not None:
                self._heartbeat.goes_on(TaskState.RUNNING, started.started_at)
            self._program.check()
            await asyncio.sleep(READ_EVERY.total_seconds())

    async def _ship_on(self) -> None:
        while True:
            await self._logs.ship()
            await asyncio.sleep(0 if self._logs.behind else READ_EVERY.total_seconds())

    def _case(self) -> outcomes.Evidence:
        return outcomes.Evidence(
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
            "state": self._heartbeat.state,
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
        """Reports the outcome to the server, unless the attempt was given up."""
        if not self._given_up:
            told = await report(self._handle, outcome, self.task.key, hurried=lambda: self._lost)
            if told is None:
                return  # a later incarnation of this agent reports it
            self._given_up = not told
        self._state = self._state.model_copy(update={"told": True})
        if not self._delivery.complete:  # otherwise the directory is removed next
            self._put_down()
        if self._given_up and not self._lost:  # a placement ends together with its incarnation of the host
            await self._free()

    async def _clear_away(self) -> None:
        """Removes everything that the attempt has left, but not before its logs and outputs are in the store."""
        await self._runtime.clear(swept=self._exit is not None and self._exit.status is not None)
        with contextlib.suppress(FileNotFoundError, links.Replaced):  # files that were deleted or replaced cannot be stored
            if not await self._delivery.done(KEEP_FOR) and self._lost:
                return
        await asyncio.to_thread(shutil.rmtree, self._dir, ignore_errors=True)

    async def _free(self) -> None:
        """Tells the scheduler that the placement is free. A terminated job cannot, and the scheduler notices later."""
        scheduler = self._bench.client.get_workflow_handle(names.scheduler_workflow(self._bench.cluster))
        task = self.task
        vacated = Vacate(key=task.claim or task.key, host_id=self._bench.host.id, incarnation=task.incarnation)
        with contextlib.suppress(RPCError):
            await scheduler.signal("deliver", Batch(messages=(vacated,)), rpc_timeout=RPC_TIMEOUT)
