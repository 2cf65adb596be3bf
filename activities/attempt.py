"""One attempt on this host: the program, its heartbeat, its logs, its end.

The attempt is independent of the worker that took it: it reports by the activity's task token, which lies beside the program in
its directory.
"""

import asyncio
import contextlib
import logging
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from temporalio.client import AsyncActivityCancelledError, AsyncActivityHandle, Client
from temporalio.service import RPCError, RPCStatusCode

from iris import names
from iris.activities.leftovers import AttemptState
from iris.activities.logship import LogShipper
from iris.activities.runtimes.process import CannotStart, Program, start
from iris.faults import FAULTS, Fault, recognise
from iris.jobs import TaskOutcome
from iris.states import TaskState
from iris.store import Store
from iris.units import format_duration
from iris.workflows.messages import Batch, RunTask, TaskProgress, Vacate

logger = logging.getLogger(__name__)

#: Also how long a cancellation may go unseen.
HEARTBEAT_EVERY = timedelta(seconds=2)
#: An attempt that outlives this is announced as RUNNING; shorter ones cost nothing.
ANNOUNCE_AFTER = timedelta(seconds=1)
#: Without contact for this long the attempt is killed, before the server's minute (`policies.HEARTBEAT`) is over and it may be
#: started elsewhere.
FENCE = timedelta(seconds=50)
RPC_TIMEOUT = timedelta(seconds=10)
#: Between looks at the output.
READ_EVERY = timedelta(milliseconds=200)
#: How long the end of an attempt waits for a store that is away.
STORE_PATIENCE = timedelta(seconds=60)
#: How long an attempt that is lost with its host's life takes to store what it can, and then to say so.
LAST_WORDS = timedelta(seconds=4)
#: The name of the fault when it is this host on which an attempt cannot go on.
HOST_FAULT = "host"
RETRY_EVERY = timedelta(seconds=1)


class Attempt:
    """A task's program on this host, from start to accepted outcome.

    Args:
        directory: of this attempt alone; removed at the end.
        env: the complete environment of the program.
        faults: the infrastructure faults that are recognised in the last lines of a program that failed.
    """

    def __init__(
        self,
        client: Client,
        store: Store,
        cluster: str,
        task: RunTask,
        token: bytes,
        directory: Path,
        env: Mapping[str, str],
        faults: Sequence[Fault] = FAULTS,
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._task = task
        self._handle: AsyncActivityHandle = client.get_async_activity_handle(task_token=token)
        self._dir = directory
        self._env = env
        self._faults = faults
        self._started_at = datetime.now(UTC)
        directory.mkdir(parents=True, exist_ok=True)
        self._stdout, self._stderr = directory / "stdout", directory / "stderr"
        self._stdout.touch()
        self._stderr.touch()
        self._logs = LogShipper(store, task.logs, self._stdout, self._stderr)
        # Before there is a program: whoever finds a directory without this file knows that nothing runs.
        (directory / "state.json").write_text(AttemptState.of(task.key, token, self._started_at).model_dump_json())
        self._program: Program | None = None
        self._stopping: asyncio.Task[None] | None = None
        #: Set by whoever ends the attempt before the program does: the outcome it then has.
        self._verdict: TaskOutcome | None = None
        #: The server no longer wants to hear of the attempt.
        self._given_up = False
        #: This life of the host is over: no time is left for more than a word.
        self._lost = False
        #: When the program ended; nothing changes its outcome after that.
        self._finished_at: datetime | None = None
        #: When the last report that arrived was sent, on this machine's monotonic clock; at first, when the attempt was taken.
        self._heard = time.monotonic()

    @property
    def grace(self) -> timedelta:
        """How long the program may take to stop when it is asked to."""
        return self._task.grace

    async def live(self) -> None:
        """Run the program to its end and report; returns when the server has the outcome or does not want it."""
        try:
            outcome = await self._run()
            told = not self._given_up and await report(self._handle, outcome, self._task.key, hurried=lambda: self._lost)
            if not told and not self._lost:  # what was placed on a life of the host dies with it
                await self._free()
        except Exception as error:  # a fault of this host: its disk is full, or the program has deleted what is kept beside it
            logger.exception("attempt %s cannot go on here", self._task.key)
            self._kill()
            outcome = self._outcome(TaskState.WORKER_FAILED, f"the attempt could not go on on this host: {error}")
            outcome = outcome.model_copy(update={"fault": HOST_FAULT})
            if self._program is None:  # it never started, so nobody pays, and the next try waits a little
                outcome = outcome.model_copy(update={"started_at": None, "fault": ""})
            await report(self._handle, outcome, self._task.key, hurried=lambda: self._lost)
        finally:
            shutil.rmtree(self._dir, ignore_errors=True)

    def end(self, state: TaskState, reason: str) -> None:
        """End the program: SIGTERM, the job's grace, SIGKILL. The first reason counts; a program that has ended needs none."""
        if self._finished_at is not None:
            return
        if self._verdict is None:
            self._verdict = TaskOutcome(state=state, reason=reason)
        if self._program is not None and self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(self._program, self._task.grace))

    def give_up(self, reason: str) -> None:
        """The attempt has a successor or is about to: end it at once and tell nobody."""
        logger.warning("attempt %s is killed: %s", self._task.key, reason)
        self._given_up = True
        self._kill()

    def lose(self, reason: str) -> None:
        """This life of the host is over: end the attempt at once, and say so, but only once and soon.

        Whoever has been told to give up the attempt still tells nobody, and an end that was on its way stays what it is.
        """
        self._lost = True
        if self._finished_at is None and self._verdict is None:
            self._verdict = TaskOutcome(state=TaskState.WORKER_FAILED, reason=reason)
        self._kill()

    def _kill(self) -> None:
        if self._program is not None:
            self._program.signal(signal.SIGKILL)

    async def _run(self) -> TaskOutcome:
        if self._task.workdir is None:
            workdir = self._dir / "work"
            workdir.mkdir()
        else:
            workdir = Path(self._task.workdir)
        try:
            self._program = await start(self._task.command, self._env, workdir, self._stdout, self._stderr)
        except CannotStart as error:
            self._logs.say(str(error))
            await self._ship_rest()
            return self._outcome(TaskState.FAILED, str(error), error.exit_code)
        # It may have been ended while it was being started.
        if self._given_up or self._lost:
            self._kill()
        elif self._verdict is not None:
            self.end(self._verdict.state, self._verdict.reason)
        exited = asyncio.create_task(self._program.wait())
        exited.add_done_callback(lambda _: self._finished())
        beside = [asyncio.create_task(work) for work in (self._heartbeat(), self._limit())]
        try:
            while not exited.done():
                await self._logs.ship()
                await asyncio.wait({exited}, timeout=0 if self._logs.behind else READ_EVERY.total_seconds())
            status = await exited
            await self._ship_rest()
        finally:
            for work in beside:
                work.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
        return self._judge(status)

    def _finished(self) -> None:
        self._finished_at = datetime.now(UTC)

    def _judge(self, status: int) -> TaskOutcome:
        """The outcome of a program that ended with this status."""
        if self._verdict is not None:
            return self._outcome(self._verdict.state, self._verdict.reason, status if status >= 0 else 128 - status)
        if status == 0:
            return self._outcome(TaskState.SUCCEEDED, "", 0)
        name = _signal_name(-status) if status < 0 else None
        exit_code, reason = (128 - status, f"killed by {name}") if name else (status, f"exited with code {status}")
        if fault := recognise(self._logs.last_lines, self._faults):
            reason = f"infrastructure fault: {fault.why} ({reason})"
            outcome = self._outcome(TaskState.WORKER_FAILED, reason, exit_code, name)
            return outcome.model_copy(update={"fault": fault.name})
        return self._outcome(TaskState.FAILED, reason, exit_code, name)

    def _outcome(
        self, state: TaskState, reason: str, exit_code: int | None = None, signal_name: str | None = None
    ) -> TaskOutcome:
        return TaskOutcome(
            state=state,
            reason=reason,
            exit_code=exit_code,
            signal=signal_name,
            started_at=self._started_at,
            finished_at=self._finished_at or datetime.now(UTC),
            last_lines=self._logs.last_lines,
        )

    async def _heartbeat(self) -> None:
        """Announce the attempt, then keep it alive on the server; learn there that it is cancelled or given up.

        The time of the last contact is that of the last report's *sending*: the server's minute starts when it arrives.
        """
        await asyncio.sleep(ANNOUNCE_AFTER.total_seconds())
        announcing = asyncio.create_task(self._announce())
        try:
            while (left := self._heard + FENCE.total_seconds() - time.monotonic()) > 0:
                await self._beat(min(RPC_TIMEOUT, timedelta(seconds=left)))
                if self._given_up:
                    return
                await asyncio.sleep(HEARTBEAT_EVERY.total_seconds())
            self.give_up(f"no contact with the server for {format_duration(FENCE)}")
        finally:
            announcing.cancel()

    async def _beat(self, patience: timedelta) -> None:
        details = {
            "state": TaskState.RUNNING,
            "pid": self._program.pid if self._program else None,
            "since": self._started_at.isoformat(),
        }
        sent = time.monotonic()
        try:
            await self._handle.heartbeat(details, rpc_timeout=patience)
            self._heard = sent
        except AsyncActivityCancelledError as error:
            self._heard = sent
            if error.details is None or error.details.cancel_requested:  # else it is paused or reset, which programs cannot be
                self.end(TaskState.KILLED, "cancelled")
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                self.give_up("the server has given it up")
        except Exception:  # whatever it is, it was no contact: the fence must go on counting
            logger.exception("the report of attempt %s failed", self._task.key)

    async def _announce(self) -> None:
        progress = TaskProgress(key=self._task.key, state=TaskState.RUNNING, at=self._started_at)
        # Only for show: the attempt goes on whether its job hears of it or not.
        with contextlib.suppress(RPCError):
            await self._client.get_workflow_handle(self._task.owner).signal("task_progress", progress, rpc_timeout=RPC_TIMEOUT)

    async def _limit(self) -> None:
        if self._task.timeout is not None:
            await asyncio.sleep(self._task.timeout.total_seconds())
            self.end(TaskState.FAILED, f"ran longer than its timeout of {format_duration(self._task.timeout)}")

    @staticmethod
    async def _stop(program: Program, grace: timedelta) -> None:
        program.signal(signal.SIGTERM)
        await asyncio.sleep(grace.total_seconds())
        program.signal(signal.SIGKILL)

    async def _ship_rest(self) -> None:
        """Store what is left of the output. A store that stays away costs the rest of the logs, not the outcome."""
        if self._stopping is not None:
            self._stopping.cancel()
        stored, since = 0, time.monotonic()
        while not await self._logs.ship(ended=True):
            if self._logs.stored > stored:
                stored, since = self._logs.stored, time.monotonic()
            patience = LAST_WORDS if self._lost else STORE_PATIENCE
            if time.monotonic() - since > patience.total_seconds():
                logger.error("the last output of %s could not be stored and is lost", self._task.key)
                return
            await asyncio.sleep(0 if self._logs.behind else RETRY_EVERY.total_seconds())

    async def _free(self) -> None:
        """The job may have been terminated and unable to give its host back. The scheduler finds that out too, but later."""
        scheduler = self._client.get_workflow_handle(names.scheduler_workflow(self._cluster))
        task, host_id = self._task, self._env[names.ENV_HOST_ID]
        vacated = Vacate(key=task.claim or task.key, host_id=host_id, incarnation=task.incarnation)
        with contextlib.suppress(RPCError):
            await scheduler.signal("deliver", Batch(messages=(vacated,)), rpc_timeout=RPC_TIMEOUT)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal: only the first and the last have names
        return f"signal {number}"


async def report(
    handle: AsyncActivityHandle, outcome: TaskOutcome, key: str, *, hurried: Callable[[], bool] = lambda: False
) -> bool:
    """Give the server the outcome, however long that takes; False: it does not want it any more.

    Args:
        hurried: whether one short try is enough; False comes back also when that failed.
    """
    while True:
        try:
            await handle.complete(outcome, rpc_timeout=LAST_WORDS if hurried() else RPC_TIMEOUT)
            return True
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                logger.info("nobody waits for the outcome of %s any more", key)
                return False
            if hurried():
                logger.warning("the outcome of %s could not be reported: %s", key, error)
                return False
            logger.warning("the outcome of %s could not be reported, trying again: %s", key, error)
        await asyncio.sleep(RETRY_EVERY.total_seconds())
