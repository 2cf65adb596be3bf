"""Implements `run_task`, the activity that every host serves on a task queue of its own."""

import asyncio
import hashlib
import logging
import shutil
from datetime import UTC, datetime, timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError

from iris.activities.host.attempt import Attempt
from iris.activities.host.heartbeat import HEARTBEAT_EVERY
from iris.activities.host.host_context import Workbench
from iris.activities.host.running import Running
from iris.activities.host.runtimes import orphans
from iris.activities.host.runtimes.orphans import AttemptState
from iris.activities.host.usage import Meter
from iris.messages.task import RunTask
from iris.model.jobs import TaskOutcome
from iris.model.states import TaskState

logger = logging.getLogger(__name__)

#: The type of the error with which a host refuses an attempt.
HOST_REFUSED = "HostRefused"
#: How long a stopping agent waits, after the longest grace of its programs, for the server to accept their outcomes.
CLOSE_PATIENCE = timedelta(seconds=10)
#: How long a stopping agent waits for cancelled work to end, such as the pull of an image.
LEAVE_PATIENCE = timedelta(seconds=5)


class Tasks:
    """The attempts in one incarnation of a host."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._attempts: dict[str, Attempt] = {}
        self._lives: dict[str, asyncio.Task[None]] = {}
        #: Attempts of an earlier incarnation of this host that are not reported yet.
        self._dead: list[Attempt] = []
        self._closed = ""

    @activity.defn
    async def run_task(self, task: RunTask) -> TaskOutcome:
        """Starts the attempt. The activity completes asynchronously, by its task token, when the program ends."""
        if task.incarnation != self._bench.host.incarnation:
            raise self._refusal(f"incarnation {task.incarnation} of this host is over")
        if self._closed:
            raise self._refusal(self._closed)
        if task.key not in self._attempts:
            state = AttemptState.of(task, activity.info().task_token, datetime.now(UTC))
            directory = self._bench.attempts_dir / hashlib.sha256(task.key.encode()).hexdigest()[:20]
            try:
                self._begin(Attempt(self._bench, state, directory))
            except OSError as error:
                shutil.rmtree(directory, ignore_errors=True)
                where = f"{self._bench.attempts_dir} on this host cannot be used: {error.strerror or error}"
                raise ApplicationError(f"{where}; make room there, then: iris host uncordon", non_retryable=True) from None
        activity.raise_complete_async()

    async def measure(self) -> None:
        """Measures the resource usage of all attempts at a fixed interval, until this is cancelled."""
        meter = Meter()
        while True:
            await asyncio.sleep(HEARTBEAT_EVERY.total_seconds())
            roots = {key: root for key, each in self._attempts.items() if (root := each.root) is not None}
            if roots:
                containers, shims = [[root.pid for root in roots.values() if root.own is own] for own in (True, False)]
                used = await asyncio.to_thread(meter.sample, containers, shims)
                self._bench.uses.clear()
                self._bench.uses.update({key: used[root.pid] for key, root in roots.items()})

    def running(self, job: str, index: int) -> Running | None:
        """Returns the running attempt of this task of a job, or None if the task does not run here."""
        found = (each.running for each in self._attempts.values() if (each.task.job, each.task.index) == (job, index))
        return next((running for running in found if running is not None), None)

    async def take_over(self) -> None:
        """Continues the attempts that an earlier agent of this incarnation has left.

        Ends attempts of other incarnations and attempts that are not wanted any more. So when this agent starts to take work,
        nothing is left running here that may also run elsewhere.
        """
        found = [Attempt(self._bench, state, at, found=True) for at, state in orphans.find(self._bench.attempts_dir)]
        for attempt in found:
            if attempt.task.incarnation != self._bench.host.incarnation:
                attempt.condemn(f"the agent of host {self._bench.host.id} died")
        await asyncio.gather(*(attempt.settle() for attempt in found))
        mine = [attempt for attempt in found if attempt.task.incarnation == self._bench.host.incarnation]
        self._dead = [attempt for attempt in found if attempt not in mine]
        if found:
            logger.warning("an earlier agent has left %d attempt(s), of which %d are of this life", len(found), len(mine))
        for attempt in mine:
            self._begin(attempt)

    def bury(self) -> None:
        """Reports the attempts of an earlier incarnation as lost.

        Must be called after this incarnation is registered, so that their jobs are not placed on the dead incarnation again.
        """
        for attempt in self._dead:
            self._begin(attempt)
        self._dead = []

    async def close(self, reason: str) -> None:
        """Refuses new attempts, ends the running ones, reports them as preempted, and waits until all are reported."""
        self._closed = reason
        keys = set(self._attempts)
        for attempt in self._attempts.values():
            attempt.end(TaskState.PREEMPTED, reason)
        ending = {key: attempt.task.grace for key, attempt in self._attempts.items() if not attempt.told}
        if ending:
            # Does not wait longer for an unreachable server: it also notices that the attempts' heartbeats have stopped.
            patience = max(ending.values()) + CLOSE_PATIENCE
            await asyncio.wait([self._lives[key] for key in ending], timeout=patience.total_seconds())
            await asyncio.to_thread(orphans.kill, keys)  # processes that have escaped from their shim
        await self._drop_lives()

    async def leave(self, reason: str) -> None:
        """Refuses new attempts and leaves the running ones to the next agent, which must take over before their leases end."""
        self._closed = reason
        await self._drop_lives()

    async def abandon(self, reason: str) -> None:
        """Refuses new attempts, kills the running ones and reports each once: the cluster has given this incarnation up.

        The report is certain, so the attempts' jobs need not wait until the heartbeats time out.
        """
        self._closed = reason
        keys = set(self._attempts)
        for attempt in self._attempts.values():
            attempt.lose(f"host {self._bench.host.id}: {reason}")
        await asyncio.gather(*self._lives.values(), return_exceptions=True)
        if keys:
            await asyncio.to_thread(orphans.kill, keys)  # processes that have escaped from their shim

    def _begin(self, attempt: Attempt) -> None:
        key = attempt.task.key
        self._attempts[key] = attempt
        self._lives[key] = asyncio.create_task(attempt.live(), name=key)
        self._lives[key].add_done_callback(self._ended)

    async def _drop_lives(self) -> None:
        lives = list(self._lives.values())
        for life in lives:
            life.cancel()
        if lives:
            await asyncio.wait(lives, timeout=LEAVE_PATIENCE.total_seconds())

    def _ended(self, life: asyncio.Task[None]) -> None:
        key = life.get_name()
        self._attempts.pop(key, None)
        self._lives.pop(key, None)
        if not life.cancelled() and (error := life.exception()) is not None:
            logger.error("attempt %s ended with a fault of the agent", key, exc_info=error)

    def _refusal(self, reason: str) -> ApplicationError:
        return ApplicationError(f"refused the task: {reason}", type=HOST_REFUSED, non_retryable=True)
