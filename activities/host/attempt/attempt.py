"""Runs one attempt on this host: prepares it, starts its program, ships its logs and outputs, and
reports its outcome.

An attempt outlives the agent that started it. Its program runs below a shim (`runtimes.shim`), the
agent reports by the activity's task token, and the attempt's directory holds everything that
another agent needs to continue. An agent that finds such a directory continues the attempt. If the
cluster has given the attempt up meanwhile, the agent makes sure that its program is dead.

The rules are in `lifecycle.py`: it decides what an event changes, and this module performs the
effects.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from temporalio.client import AsyncActivityHandle

from iris.activities.host.attempt import outcome as outcomes
from iris.activities.host.attempt import prepare
from iris.activities.host.attempt.gang_start import is_member, wait_for_gang
from iris.activities.host.attempt.heartbeat import Heartbeat, free_placement, handed_out, report
from iris.activities.host.attempt.host_context import HostContext, uploads
from iris.activities.host.attempt.lifecycle import (
    STARTED,
    Effect,
    Event,
    Lifecycle,
    Load,
    State,
    restore,
    step,
)
from iris.activities.host.attempt.use import UseRecorder
from iris.activities.host.files.caches import DISK_FAULT, size_of
from iris.activities.host.files.checkpoints import End, end_of
from iris.activities.host.machine.disk_usage import Occupant
from iris.activities.host.runtimes.base import HostFault, JobFault
from iris.activities.host.runtimes.cleanup import links
from iris.activities.host.runtimes.cleanup.leftover_processes import AttemptFile
from iris.activities.host.runtimes.process import job_users
from iris.activities.host.runtimes.program import Exit, FirstEnd, Program, Root, Running
from iris.messages.task import RunTask
from iris.model.host import exit_codes
from iris.model.host.idle_gpus import IdleReport, idle_text
from iris.model.job.attempts import TaskOutcome
from iris.model.job.secrets import LEAST_MASKED
from iris.model.states import TaskState
from iris.model.units import format_duration

logger = logging.getLogger(__name__)

#: The interval between two reads of the program's output.
READ_INTERVAL = timedelta(milliseconds=200)
#: When a program has ended by itself and left other processes, these may run for this long before
#: the log and the status mention them.
TELL_AFTER = timedelta(seconds=1)
#: How long an agent waits for the end of a program that an earlier agent started and that this
#: agent killed. It is longer than `Program.kill` takes.
KILL_TIMEOUT = timedelta(seconds=20)
#: How long a finished attempt waits for a store that does not answer, before its outcome is
#: reported without the uploads.
UPLOAD_TIMEOUT = timedelta(seconds=60)
#: How long the host keeps the logs and outputs of a reported attempt that could not be stored.
KEEP_UNSTORED_FOR = timedelta(days=1)


class Attempt:
    """A task's program on this host, from its preparation to the accepted outcome.

    Args:
        directory: the directory of this attempt alone, which is removed at the end.
        found: True if an earlier agent took the attempt.
        waited: the time since the server handed out the attempt, by the clocks of server and host.
    """

    def __init__(
        self,
        context: HostContext,
        record: AttemptFile,
        directory: Path,
        *,
        found: bool = False,
        waited: timedelta = timedelta(0),
    ) -> None:
        self._context = context
        self._record = record
        self._dir = directory
        self._found = found
        self._log = context.logger(logger, record.task)
        directory.mkdir(0o700, parents=True, exist_ok=True)
        if not found:
            # The record is written before the program starts, so no program runs in a directory
            # without a record.
            record.write(directory)
        self._handle: AsyncActivityHandle = context.client.get_async_activity_handle(
            task_token=record.task_token
        )
        self._runtime = context.runtime(self.task, directory)
        self._program = Program(directory)
        self._heartbeat = self._new_heartbeat(waited)
        if not found:
            # The next agent needs the lease, too, even if it comes before the first heartbeat.
            self._program.keep_until(self._heartbeat.lease)
        self._preparing: asyncio.Task[prepare.Built] | None = None
        self._running: Running | None = None
        #: True if the log says already that the program ended and left other processes.
        self._told_of_rest = False
        #: How the program ended; None if it has not ended as far as this agent knows.
        self._exit: Exit | None = self._program.exit
        self._lifecycle: Lifecycle = restore(
            launched=self._program.launched,
            ended=self._exit is not None,
            outcome=record.verdict,
            settled=record.told,
        )
        self._logs, self._saver, self._delivery = uploads(
            context, self.task, directory, self._program_end, found=found
        )
        #: Records the resource use of the program.
        self.use = UseRecorder(context.store, record, directory, self._gpus_are_idle, found=found)
        if not self.settled:
            context.claims.append(self.task.placement_key)

    @property
    def task(self) -> RunTask:
        return self._record.task

    @property
    def task_token(self) -> bytes:
        """The token of the activity that the attempt completes."""
        return self._record.task_token

    @property
    def settled(self) -> bool:
        """True if no report of the outcome is left to make (`State.SETTLED`). Then only logs and
        outputs remain to be stored.
        """
        return self._lifecycle.state is State.SETTLED

    @property
    def load(self) -> Load:
        """The attempt as the metrics of its host show it."""
        lease = self._heartbeat.lease if self._lifecycle.state in STARTED else None
        return Load(self._lifecycle.state, lease, self._logs.backlog)

    @property
    def occupant(self) -> Occupant:
        """The attempt as the watch of the host's disk sees it."""
        live = (State.PREPARING, State.RUNNING)
        return Occupant(
            self._dir,
            self.task.resources.disk_bytes,
            in_container=bool(self._context.image_of(self.task)),
            ending=self._lifecycle.state not in (*live, State.STOPPING),
            told_to_end=lambda: self._lifecycle.state not in live,
        )

    @property
    def root(self) -> Root | None:
        """The root of the program's process tree; None if the program does not run."""
        if (running := self.running) is None:
            return None
        in_container = bool(running.launch.container)
        pid = running.pid if in_container else running.shim
        return None if pid is None else Root(pid, own=in_container)

    @property
    def running(self) -> Running | None:
        """The running program; None if it has not started yet, or has ended."""
        if self._lifecycle.state not in STARTED:
            return None
        if self._running is None and (started := self._program.started) is not None:
            # The program has deleted Iris's files beside it.
            with contextlib.suppress(OSError, ValidationError):
                launch = self._program.launch
                self._running = Running(
                    self.task.key, self.task.attempt, self._dir, launch, started.pid, started.shim
                )
        return self._running

    def handle(self, event: Event, reason: str = "") -> tuple[Effect, ...]:
        """Applies an event to the attempt and performs its effects, except REPORT and
        FREE_PLACEMENT, which `run` performs.

        Returns:
            The effects of the event.
        """
        if self._lifecycle.state in STARTED and (found := self._program.exit) is not None:
            self._exit = found
            self._step(Event.ENDED)
        self._look_for_first_end()
        return self._step(event, reason)

    async def run(self) -> None:
        """Runs the attempt to its end and reports its outcome.

        Returns when no report of the outcome is left to make, and nothing is left on the host.
        After HOST_OVER, it also returns if the one short try to report failed; the directory then
        stays. After a cancellation the program continues to run, and another agent can find the
        attempt.
        """
        if not self.settled:
            try:
                outcome = await self._outcome()
                effects = self.handle(Event.UPLOADED)
                if Effect.REPORT in effects:
                    answer = await report(
                        self._handle, outcome, self._log, hurried=lambda: self._lifecycle.hurried
                    )
                    effects = self.handle(answer)
            finally:
                self._context.claims.remove(self.task.placement_key)
            if (
                Effect.FREE_PLACEMENT in effects
                and self.task.placement_key not in self._context.claims
            ):
                await free_placement(self._context, self.task)
        if self.settled:
            await self._clear_away()
            self._program.close()

    async def reconcile(self) -> None:
        """Asks the server whether it still waits for an attempt that an earlier agent started. If
        it does not, kills all processes of the attempt.
        """
        if self._lifecycle.state in (State.PREPARING, State.RUNNING, State.STOPPING, State.ENDED):
            await self._heartbeat.beat()
        if self._lifecycle.state in (State.CANCELLED, State.KILLING, State.DROPPING, State.DROPPED):
            # The wait is limited, because a process that hangs in the kernel cannot be killed.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wait_until_dead(), KILL_TIMEOUT.total_seconds())

    # -- inside ------------------------------------------------------------------------------------

    def _new_heartbeat(self, waited: timedelta) -> Heartbeat:
        lease = self.task.contact.lease
        return Heartbeat(
            self._context.client,
            self._handle,
            self.task,
            self._record.task_token,
            self._log,
            details=self._details,
            running=lambda: len(self._context.uses),
            renew_lease=self._program.keep_until,
            on_event=self.handle,
            last_contact=self._program.lease - lease if self._found else handed_out(waited, lease),
        )

    def _program_end(self) -> End | None:
        """Returns the end of the program, or None if no program was started."""
        if not self._lifecycle.launched:
            return None
        return end_of(self._exit, told_to_stop=self._lifecycle.outcome is not None)

    def _step(self, event: Event, reason: str = "") -> tuple[Effect, ...]:
        self._lifecycle, effects = step(self._lifecycle, event, reason)
        level = logging.WARNING if event in (Event.GIVEN_UP, Event.CONTACT_LOST) else logging.DEBUG
        self._log.log(
            level,
            "the attempt is %s after %s%s",
            self._lifecycle.state,
            event,
            f": {reason}" if reason else "",
        )
        for effect in effects:
            match effect:
                case Effect.HURRY:
                    self._delivery.hurry()
                case Effect.RECORD_OUTCOME:
                    self._write(verdict=self._lifecycle.outcome)
                case Effect.CANCEL_PREPARATION:
                    if self._preparing is not None:
                        self._preparing.cancel()
                case Effect.STOP_PROGRAM:
                    self._program.stop(self.task.grace)
                case Effect.KILL_PROGRAM:
                    self._program.stop(timedelta(0))
                case Effect.RECORD_SETTLED:
                    if not self._delivery.complete:  # if complete, the directory is removed next
                        self._write(told=True)
        return effects

    def _write(self, **changes: object) -> None:
        """Changes the record in the attempt's directory, for the next agent."""
        self._record = self._record.model_copy(update=changes)
        # If the disk is full, another agent may report a different outcome, but it does not run the
        # program again.
        with contextlib.suppress(OSError):
            self._record.write(self._dir)

    async def _wait_until_dead(self) -> None:
        """Waits until no process of the attempt is alive. An order to kill them was sent before."""
        if self._lifecycle.launched:
            # If the directory is gone, the record of the shim is gone, too.
            with contextlib.suppress(OSError):
                await self._program.wait()
        await self._runtime.clear()
        self._step(Event.ENDED)

    async def _outcome(self) -> TaskOutcome:
        """Runs the attempt, stores its logs and outputs if the store is reachable, and returns its
        outcome.
        """
        beside = [asyncio.create_task(self._heartbeat.beat_on())]
        if self.task.timeout is not None:
            beside.append(asyncio.create_task(self._limit(self.task.timeout)))
        try:
            outcome = None if self._program.launched else await self._start()
            if outcome is None:
                self._exit = await self._follow()
                if self._exit.error:
                    self._logs.say(self._exit.error)
                self.use.finish()
            self._step(Event.ENDED)
            if not await self._delivery.done(UPLOAD_TIMEOUT):
                self._log.error("the end of the attempt's log is not in the store yet")
            await self._context.check_devices(self.task, self._exit)
            return outcome or outcomes.outcome_of(self._evidence())
        except Exception as error:
            return await self._stop_after(error)
        finally:
            for work in beside:
                work.cancel()
            for fault in await asyncio.gather(*beside, return_exceptions=True):
                if isinstance(fault, Exception):
                    self._log.error(
                        "the heartbeats or the timeout of the attempt failed", exc_info=fault
                    )

    async def _stop_after(self, error: Exception) -> TaskOutcome:
        """Kills the program of an attempt that cannot continue on this host, because the disk is
        full or the program has deleted Iris's files beside it.
        """
        self._log.exception("the attempt cannot continue on this host")
        self.handle(Event.HOST_FAILED)
        await self._wait_until_dead()
        return outcomes.of_a_failure(self._evidence(), error, launched=self._program.launched)

    async def _start(self) -> TaskOutcome | None:
        """Prepares the attempt and starts its program. Returns None, or the outcome if no program
        was started.
        """
        if self._found:
            await self._runtime.clear()  # removes what the dead agent was preparing
        free = shutil.disk_usage(self._dir).free
        try:
            built = await self._prepared()
        except JobFault as error:
            self._logs.say(str(error))
            return outcomes.of_the_program(self._evidence(), str(error), error.exit_code)
        except HostFault as error:
            self._logs.say(str(error))
            return await self._after_host_fault(error, free)
        if built is None:
            return self._not_started()
        try:
            if self._lifecycle.state is not State.PREPARING:  # ended just before the start
                await self._runtime.clear()
                return self._not_started()
            self._start_program(built)
        finally:
            for descriptor in built.keep:
                os.close(descriptor)  # the shim has inherited them
        return None

    async def _prepared(self) -> prepare.Built | None:
        """Prepares the attempt, and ships the output of the set-up meanwhile. Returns None if the
        attempt was ended.
        """
        listeners = prepare.Listeners(self._logs.say, self._heartbeat.prepares)
        self._preparing = asyncio.create_task(self._prepare(listeners))
        if self._lifecycle.state is not State.PREPARING:
            self._preparing.cancel()
        shipping = asyncio.create_task(self._ship_on())
        try:
            return await self._preparing
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if me is not None and me.cancelling():  # the agent stops, and the attempt goes on
                raise
            return None
        finally:
            self._preparing = None
            shipping.cancel()
            await asyncio.gather(shipping, return_exceptions=True)

    def _start_program(self, built: prepare.Built) -> None:
        if built.ports or built.gpus:
            self._write(ports=built.ports, gpus=built.gpus)
            self.use.gpus = built.gpus
        secrets = {name: value.get_secret_value() for name, value in built.secrets.items()}
        for name in (name for name, value in secrets.items() if len(value) < LEAST_MASKED):
            self._logs.say(
                f"the value of secret {name} is shorter than {LEAST_MASKED} characters: the log"
                " does not mask it"
            )
        self._saver.watch()
        self._step(Event.STARTED)
        launch = built.launch.model_copy(update={"grace": self.task.grace.total_seconds()})
        self._program.start(launch, self._heartbeat.lease, built.keep, secrets)

    async def _after_host_fault(self, error: HostFault, free: int) -> TaskOutcome:
        """Returns the outcome of an attempt that this host could not prepare.

        Args:
            free: the free space of the disk before the preparation, in bytes.
        """
        size = await asyncio.to_thread(
            lambda: sum(map(size_of, {self._dir, job_users.files_of(self._dir)}))
        )
        full = error.fault == DISK_FAULT
        filled = full and 2 * size > free
        others = full and not filled and prepare.has_attempts(self._dir.parent, besides=self._dir)
        return outcomes.of_a_host_fault(
            self._evidence(), error, filled=filled, others_filled=others
        )

    async def _prepare(self, listeners: prepare.Listeners) -> prepare.Built:
        """Prepares the attempt, and waits for the other hosts of its gang."""
        built = await prepare.build(
            *(self._context, self.task, self._dir, self._runtime, listeners),
            trace=self._record.trace,
        )
        try:
            if is_member(self.task) and not await wait_for_gang(
                self._context.client, self.task, self._record.task_token
            ):
                # This or a later heartbeat gets the reason why the attempt ends. The event for that
                # cancels the preparation.
                await self._heartbeat.beat()
                await asyncio.Event().wait()
        except BaseException:
            for descriptor in built.keep:
                os.close(descriptor)
            raise
        return built

    def _not_started(self) -> TaskOutcome:
        """Returns the outcome of an attempt that was ended before its program started."""
        evidence = self._evidence()
        return (
            outcomes.outcome_of(evidence)
            if evidence.decided
            else outcomes.of_the_host(evidence, "given up")
        )

    async def _follow(self) -> Exit:
        """Ships the program's output until the program has ended, and returns its end. Does not
        wait until the store has all output.
        """
        self._look_for_first_end()  # an earlier agent may have started the program
        ended = asyncio.create_task(self._program.wait())
        beside = [
            asyncio.create_task(work)
            for work in (
                *(self._ship_on(), self._watch_program()),
                *(self._saver.save_on(), self.use.store_on()),
            )
        ]
        try:
            await asyncio.wait({ended, *beside}, return_when=asyncio.FIRST_COMPLETED)
            for work in beside:
                if work.done() and not ended.done():
                    work.result()
            found = await ended
        finally:
            ended.cancel()
            for work in beside:
                work.cancel()
            await asyncio.gather(ended, *beside, return_exceptions=True)
        if found.status is None:
            await self._runtime.clear()  # the shim was killed and could not clean up
        return found

    async def _watch_program(self) -> None:
        while True:
            await asyncio.sleep(READ_INTERVAL.total_seconds())
            if (
                self._heartbeat.state is not TaskState.RUNNING
                and (started := self._program.started) is not None
            ):
                self._heartbeat.moved_to(TaskState.RUNNING, started.started_at)
            self._program.check()
            if (first := self._look_for_first_end()) is not None and not self._told_of_rest:
                self._tell_of_rest(first)

    def _look_for_first_end(self) -> FirstEnd | None:
        """Returns the end of the program's first process, if it ended by itself and other processes
        may be left.
        """
        if self._lifecycle.state not in STARTED or (first := self._program.first_end()) is None:
            return None
        if self._lifecycle.state is State.RUNNING and not self._lifecycle.exited:
            self._step(Event.FIRST_ENDED)
            if first.status != 0:
                self._saver.program_failed()
        return first

    def _tell_of_rest(self, first: FirstEnd) -> None:
        """Writes to the log and the status that the attempt still waits for processes of the
        program. Most of these processes end at once, so this is not done before `TELL_AFTER`.
        """
        if time.time() - first.at < TELL_AFTER.total_seconds():
            return
        self._told_of_rest = True
        end, grace = exit_codes.explain(first.status).reason, format_duration(self.task.grace)
        left = f"the program {end}, and processes that it has started still run"
        self._logs.say(f"{left}: they have {grace} to end (--grace), then SIGTERM and SIGKILL")
        self._heartbeat.prepares(left)

    async def _ship_on(self) -> None:
        while True:
            # The pause is before the first read, so that all output of a program that ends at once
            # is shipped together at the end.
            await asyncio.sleep(0 if self._logs.behind else READ_INTERVAL.total_seconds())
            await self._logs.ship()

    def _gpus_are_idle(self, report: IdleReport | None) -> None:
        """Reports to the job that the GPUs have become idle, or are used again."""
        doing = ""
        if report is not None and self.task.stop_idle is not None:
            self._logs.say(doing := idle_text(self.task.stop_idle, report))
        self._heartbeat.is_idle(report, doing)

    def _evidence(self) -> outcomes.Evidence:
        return outcomes.Evidence(
            taken_at=self._record.taken_at,
            now=datetime.now(UTC),
            launched=self._lifecycle.launched,
            started=self._program.started,
            exit=self._exit,
            decided=self._lifecycle.outcome,
            memory_limit=self.task.resources.memory_bytes,
            last_lines=self._logs.last_lines,
            faults=self._context.faults,
            device_fault=self._context.device_fault(self.task),
            left_out=self._delivery.left_out,
            final=self.task.call is not None and prepare.is_final(self._dir),
        )

    def _details(self) -> Mapping[str, Any]:
        started = self._program.started
        details = {
            "task": self.task.index,
            "state": self._heartbeat.state,
            "since": (started.started_at if started else self._record.taken_at).isoformat(),
        }
        if started is None:
            return details
        ports = {"pid": started.pid, "ports": self._record.ports}
        return {**details, **ports, **self.use.latest}

    async def _limit(self, timeout: timedelta) -> None:
        await asyncio.sleep((self._record.taken_at + timeout - datetime.now(UTC)).total_seconds())
        self.handle(Event.TIMEOUT, f"ran longer than its timeout of {format_duration(timeout)}")

    async def _clear_away(self) -> None:
        """Removes the attempt's processes and files from the host. The files stay until the logs
        and outputs are in the store.
        """
        await self._runtime.clear(swept=self._exit is not None and self._exit.status is not None)
        if not self._lifecycle.hurried:
            await self.use.stored()
        # Files that were deleted or replaced cannot be stored.
        with contextlib.suppress(FileNotFoundError, links.Replaced):
            if not await self._delivery.done(KEEP_UNSTORED_FOR) and self._lifecycle.hurried:
                return
        await asyncio.to_thread(job_users.remove, self._dir)
