"""Implements `run_task`, the activity of a host's own task queue, and manages the host's
attempts.
"""

import asyncio
import hashlib
import logging
from datetime import UTC, datetime, timedelta
from functools import partial

from temporalio import activity
from temporalio.exceptions import ApplicationError

from iris.activities.host.attempt.activity import HOST_LEAVES, HOST_REFUSED, TaskActivity
from iris.activities.host.attempt.attempt import Attempt
from iris.activities.host.attempt.heartbeat import report
from iris.activities.host.attempt.host_context import HostContext
from iris.activities.host.attempt.lifecycle import Event, Load
from iris.activities.host.attempt.outcome import of_an_unreadable_record
from iris.activities.host.attempt.prepare import has_attempts
from iris.activities.host.files.caches import is_disk_full
from iris.activities.host.machine import disk_watch
from iris.activities.host.machine.disk_usage import resume
from iris.activities.host.machine.gpus import read_gpu_use
from iris.activities.host.machine.usage import Meter
from iris.activities.host.runtimes.cleanup import leftover_processes, remains, trees
from iris.activities.host.runtimes.cleanup.leftover_processes import AttemptFile
from iris.activities.host.runtimes.cleanup.remains import LostAttempt
from iris.activities.host.runtimes.program import Running
from iris.messages.task import RunTask
from iris.model.host.store_limits import is_possible
from iris.model.job.attempts import TaskOutcome
from iris.tracing.context import received

logger = logging.getLogger(__name__)

#: The interval between two measurements of the resources that attempts use.
MEASURE_INTERVAL = timedelta(seconds=2)
#: The interval between two measurements of the GPUs that attempts use. Each needs a process, which
#: may take a second.
MEASURE_GPUS_INTERVAL = timedelta(seconds=10)
#: How long a stopping agent waits until the server has accepted the outcomes of its programs, after
#: the longest of the grace periods in which these programs may end.
REPORT_TIMEOUT = timedelta(seconds=10)
#: How long a stopping agent waits until cancelled work has ended, such as the pull of an image.
CANCEL_TIMEOUT = timedelta(seconds=5)


class Tasks(TaskActivity):
    """Runs the attempts in one incarnation of a host."""

    def __init__(self, context: HostContext) -> None:
        self._context = context
        self._attempts: dict[str, Attempt] = {}
        self._runs: dict[str, asyncio.Task[None]] = {}
        #: Attempts of an earlier incarnation of this host that are not reported yet.
        self._earlier: list[Attempt] = []
        #: The attempts of earlier agents whose records cannot be read.
        self._lost: list[LostAttempt] = []
        #: The running asyncio tasks that report the attempts in `_lost` to the server.
        self._reports: set[asyncio.Task[Event]] = set()
        #: The reason why this agent takes no new attempts; empty while it takes them.
        self._closed = ""
        #: The attempts that this agent has left to the next one of this incarnation, by key; None
        #: before `hand_over`.
        self._left: dict[str, Attempt] | None = None

    @activity.defn
    async def run_task(self, task: RunTask) -> TaskOutcome:
        """Starts the attempt, or records it for the next agent after `hand_over`. The activity
        completes asynchronously, by its task token, when the program ends.
        """
        if task.incarnation != self._context.host.incarnation:
            # The task's incarnation may be over, or newer than this agent.
            raise _not_taken(
                f"this agent belongs to incarnation {self._context.host.incarnation} of the host,"
                f" and the attempt is for incarnation {task.incarnation}",
                HOST_REFUSED,
            )
        if self._closed:
            raise _not_taken(self._closed, HOST_LEAVES)
        folders = (task.logs, task.outputs, task.checkpoints, task.from_checkpoint)
        if wrong := [name for name in folders if name and not is_possible(name)]:
            # Jobs send only valid names, but a program that reaches the service may send others.
            # The store would not take them, and that would count as a fault of the host.
            raise ApplicationError(
                f"{wrong[0][:100]!r} is not the name of a folder in the store", non_retryable=True
            )
        info, now = activity.info(), datetime.now(UTC)
        taken = self._attempts | (self._left or {})
        if (same := taken.get(task.key)) is not None:
            if same.task_token != info.task_token:
                # The service forgot the activity of this attempt: its database was restored.
                raise _not_taken(
                    f"attempt {task.key} was sent to this host before, and has not ended there",
                    HOST_REFUSED,
                )
        else:
            state = AttemptFile.of(task, info.task_token, now, received.get())
            directory = (
                self._context.attempts_dir / hashlib.sha256(task.key.encode()).hexdigest()[:20]
            )
            try:
                waited = now - info.started_time
                attempt = Attempt(self._context, state, directory, waited=waited)
                if self._left is None:
                    self._run(attempt)
                else:
                    self._left[task.key] = attempt
            except OSError as error:
                trees.remove(directory)
                if is_disk_full(error) and has_attempts(self._context.attempts_dir):
                    raise _not_taken(
                        f"the host's disk is full while other attempts use it ({error.strerror})",
                        HOST_REFUSED,
                    ) from None
                failure = (
                    f"{self._context.attempts_dir} on this host cannot be used:"
                    f" {error.strerror or error}"
                )
                remedy = "free disk space there, then run: iris host uncordon"
                raise ApplicationError(f"{failure}; {remedy}", non_retryable=True) from None
        activity.raise_complete_async()

    async def measure(self) -> None:
        """Measures the resource usage of all attempts at a fixed interval, until this is
        cancelled.
        """
        meter = Meter()
        while True:
            await asyncio.sleep(MEASURE_INTERVAL.total_seconds())
            roots = {
                key: root for key, each in self._attempts.items() if (root := each.root) is not None
            }
            if roots:
                containers, shims = [
                    [root.pid for root in roots.values() if root.own is own]
                    for own in (True, False)
                ]
                used = await asyncio.to_thread(meter.sample, containers, shims)
                self._context.uses.clear()
                self._context.uses.update({key: used[root.pid] for key, root in roots.items()})
                for key, use in self._context.uses.items():
                    if (attempt := self._attempts.get(key)) is not None:
                        attempt.use.measured(use, self._context.gpu_uses)

    async def measure_gpus(self) -> None:
        """Measures the use of the machine's GPUs at a fixed interval, while attempts use them,
        until this is cancelled.

        The driver's program may hang, so this is apart from `measure`.
        """
        while True:
            await asyncio.sleep(MEASURE_GPUS_INTERVAL.total_seconds())
            in_use = any(
                each.use.gpus for each in self._attempts.values() if each.running is not None
            )
            found = await read_gpu_use() if in_use else {}
            self._context.gpu_uses.clear()
            self._context.gpu_uses.update(found)

    async def limit_disk(self) -> None:
        """Ends attempts that use too much of the host's disks, until this is cancelled."""
        context = self._context
        places = {
            context.directory,
            *([context.job_users.directory] if context.job_users is not None else []),
        }

        def end(key: str, reason: str) -> None:
            if (attempt := self._attempts.get(key)) is not None:
                attempt.handle(Event.DISK_LIMIT, reason)

        await disk_watch.watch(
            lambda: {key: each.occupant for key, each in self._attempts.items()},
            end,
            places,
            context.limits.disk,
            make_room=partial(remains.empty_quarantine, context.attempts_dir),
        )

    def loads(self) -> list[Load]:
        """Returns what each attempt on the host does now. Reads the sizes of their logs."""
        return [attempt.load for attempt in self._attempts.values()]

    def running(self, job: str, index: int) -> Running | None:
        """Returns the running attempt of this task of a job, or None if the task does not run
        here.
        """
        found = (
            each.running
            for each in self._attempts.values()
            if (each.task.job, each.task.index) == (job, index)
        )
        return next((running for running in found if running is not None), None)

    async def take_over(self) -> None:
        """Continues the attempts that an earlier agent of this incarnation has left.

        Ends the attempts of other incarnations, and those for which the server does not wait any
        more. So when this agent starts to take work, no program runs here that may also run on
        another host.
        """
        left = await asyncio.to_thread(remains.find, self._context.attempts_dir)
        self._lost = left.lost
        found = [Attempt(self._context, state, at, found=True) for at, state in left.attempts]
        for attempt in found:
            if attempt.task.incarnation != self._context.host.incarnation:
                attempt.handle(
                    Event.INCARNATION_OVER, f"the agent of host {self._context.host.id} died"
                )
        for fault in await asyncio.gather(
            *(attempt.reconcile() for attempt in found), return_exceptions=True
        ):
            # The run of this attempt will report the fault. The other attempts need this agent.
            if isinstance(fault, Exception):
                logger.error("an attempt of an earlier agent could not be examined", exc_info=fault)
        mine = [
            attempt
            for attempt in found
            if attempt.task.incarnation == self._context.host.incarnation
        ]
        self._earlier = [attempt for attempt in found if attempt not in mine]
        if found:
            logger.warning(
                "an earlier agent left %d attempt(s), %d of them of this incarnation",
                len(found),
                len(mine),
            )
        for attempt in mine:
            self._run(attempt)
        # The earlier agent may have died while it measured their use of the disk.
        await asyncio.gather(
            *(asyncio.to_thread(resume, attempt.task.key, attempt.occupant) for attempt in mine)
        )

    def report_lost(self) -> None:
        """Reports as lost the attempts of an earlier incarnation and the attempts whose records
        cannot be read.

        Must be called after this incarnation is registered. Otherwise their jobs might be placed on
        the dead incarnation again.
        """
        for attempt in self._earlier:
            self._run(attempt)
        for lost in self._lost:
            outcome = of_an_unreadable_record(
                self._context.host.id, lost.directory, datetime.now(UTC)
            )
            handle = self._context.client.get_async_activity_handle(task_token=lost.token)
            reporting = asyncio.create_task(report(handle, outcome, self._context.logger(logger)))
            self._reports.add(reporting)
            reporting.add_done_callback(self._reported)
        self._earlier, self._lost = [], []

    async def preempt_all(self, reason: str) -> None:
        """Refuses new attempts, ends the running ones, reports them as preempted, and waits until
        all are reported.
        """
        self._closed = reason
        keys = set(self._attempts)
        for attempt in self._attempts.values():
            attempt.handle(Event.PREEMPT, reason)
        ending = {
            key: attempt.task.grace
            for key, attempt in self._attempts.items()
            if not attempt.settled
        }
        if ending:
            # The wait is limited, because the server may be unreachable. It then learns of the end
            # from the missing heartbeats.
            timeout = max(ending.values()) + REPORT_TIMEOUT
            await asyncio.wait([self._runs[key] for key in ending], timeout=timeout.total_seconds())
            # Some processes may have escaped from their shim.
            await asyncio.to_thread(leftover_processes.kill, keys)
        await self._cancel_runs()

    async def hand_over(self) -> None:
        """Leaves the running attempts, and those that still arrive, to the next agent, which must
        take over before their leases end.
        """
        self._left = dict(self._attempts)
        await self._cancel_runs()

    async def kill_all(self, reason: str) -> None:
        """Refuses new attempts, kills the running attempts and tries to report each of them once,
        because the cluster has given this incarnation up.

        With the report, the attempts' jobs need not wait until the heartbeats time out.
        """
        self._closed = reason
        keys = set(self._attempts)
        for attempt in self._attempts.values():
            attempt.handle(Event.HOST_OVER, f"host {self._context.host.id}: {reason}")
        await asyncio.gather(*self._runs.values(), return_exceptions=True)
        await self._cancel_runs()
        if keys:
            # Some processes may have escaped from their shim.
            await asyncio.to_thread(leftover_processes.kill, keys)

    def _run(self, attempt: Attempt) -> None:
        key = attempt.task.key
        self._attempts[key] = attempt
        self._runs[key] = asyncio.create_task(attempt.run())
        self._runs[key].add_done_callback(partial(self._ended, attempt))

    async def _cancel_runs(self) -> None:
        runs = [*self._runs.values(), *self._reports]
        for run in runs:
            run.cancel()
        if runs:
            await asyncio.wait(runs, timeout=CANCEL_TIMEOUT.total_seconds())

    def _ended(self, attempt: Attempt, run: asyncio.Task[None]) -> None:
        self._attempts.pop(attempt.task.key, None)
        self._runs.pop(attempt.task.key, None)
        if not run.cancelled() and (error := run.exception()) is not None:
            log = self._context.logger(logger, attempt.task)
            log.error("the attempt ended with a fault of the agent", exc_info=error)

    def _reported(self, reporting: asyncio.Task[Event]) -> None:
        self._reports.discard(reporting)
        if not reporting.cancelled() and (error := reporting.exception()) is not None:
            self._context.logger(logger).error(
                "a lost attempt could not be reported", exc_info=error
            )


def _not_taken(reason: str, kind: str) -> ApplicationError:
    return ApplicationError(f"refused the task: {reason}", type=kind, non_retryable=True)
