"""`run_task`, the activity that every host serves on a queue of its own."""

import asyncio
import hashlib
import logging
import shutil
from datetime import UTC, datetime, timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError

from iris.activities import leftovers
from iris.activities.attempt import Attempt, Running
from iris.activities.leftovers import AttemptState
from iris.activities.pulse import HEARTBEAT_EVERY
from iris.activities.use import Meter
from iris.activities.workbench import Workbench
from iris.jobs import TaskOutcome
from iris.states import TaskState
from iris.workflows.messages import RunTask

logger = logging.getLogger(__name__)

#: The type of the error with which a host refuses an attempt.
HOST_REFUSED = "HostRefused"
#: How long a stopping agent waits, beyond the longest grace of its programs, for their outcomes to be accepted.
CLOSE_PATIENCE = timedelta(seconds=10)
#: How long it waits for what is under way to be let go, an image that is being pulled for instance.
LEAVE_PATIENCE = timedelta(seconds=5)


class Tasks:
    """The attempts in one life of one host."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._attempts: dict[str, Attempt] = {}
        self._lives: dict[str, asyncio.Task[None]] = {}
        #: Those of an earlier life of this host that wait to be reported.
        self._dead: list[Attempt] = []
        self._closed = ""

    @activity.defn
    async def run_task(self, task: RunTask) -> TaskOutcome:
        """Start the attempt. The activity itself completes when the program does, by its task token."""
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
        """Measure again and again what the attempts use, all in one look, until this is cancelled."""
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
        """What runs here of this task of a job."""
        found = (each.running for each in self._attempts.values() if (each.task.job, each.task.index) == (job, index))
        return next((running for running in found if running is not None), None)

    async def take_over(self) -> None:
        """Go on with what an earlier agent of this life of the host has left, and end what is of another life, or not wanted any
        more: before this one takes any work, nothing is left running that may be run elsewhere."""
        found = [Attempt(self._bench, state, at, found=True) for at, state in leftovers.find(self._bench.attempts_dir)]
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
        """Report those of an earlier life lost: once this agent is known, so that their jobs are not sent to the dead one."""
        for attempt in self._dead:
            self._begin(attempt)
        self._dead = []

    async def close(self, reason: str) -> None:
        """Take no more; end what runs, report it as preempted, and wait until all is reported."""
        self._closed = reason
        keys = set(self._attempts)
        for attempt in self._attempts.values():
            attempt.end(TaskState.PREEMPTED, reason)
        ending = {key: attempt.task.grace for key, attempt in self._attempts.items() if not attempt.told}
        if ending:
            # A server that is away is not waited for: the attempts' heartbeats have ended, and that says it too.
            patience = max(ending.values()) + CLOSE_PATIENCE
            await asyncio.wait([self._lives[key] for key in ending], timeout=patience.total_seconds())
            await asyncio.to_thread(leftovers.kill, keys)  # what hides from its shim
        await self._drop_lives()

    async def leave(self, reason: str) -> None:
        """Take no more, and let everything run on for the next agent, which has as long as a lost contact may last."""
        self._closed = reason
        await self._drop_lives()

    async def abandon(self, reason: str) -> None:
        """Take no more; kill what runs, and then say once that it is dead: the cluster has given this incarnation up.

        That their host knows it for certain spares the attempts' jobs the wait for their heartbeats to run out.
        """
        self._closed = reason
        keys = set(self._attempts)
        for attempt in self._attempts.values():
            attempt.lose(f"host {self._bench.host.id}: {reason}")
        await asyncio.gather(*self._lives.values(), return_exceptions=True)
        if keys:
            await asyncio.to_thread(leftovers.kill, keys)  # what hides from its shim

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
