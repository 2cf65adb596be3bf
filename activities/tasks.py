"""`run_task`, the activity that every host serves on a queue of its own."""

import asyncio
import hashlib
import logging
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from iris.activities import leftovers
from iris.activities.attempt import Attempt, report
from iris.activities.environment import attempt_env, base_env
from iris.faults import FAULTS, Fault
from iris.hosts import Host
from iris.jobs import TaskOutcome
from iris.states import TaskState
from iris.store import Store
from iris.workflows.messages import RunTask

logger = logging.getLogger(__name__)

#: The type of the error with which a host refuses an attempt.
HOST_REFUSED = "HostRefused"
#: How long a stopping agent waits, beyond the longest grace of its programs, for their outcomes to be accepted.
CLOSE_PATIENCE = timedelta(seconds=10)

Leftovers = list[tuple[Path, leftovers.AttemptState]]


class Tasks:
    """The attempts on one incarnation of one host.

    Args:
        directory: where attempts have their directories; of this host alone.
        faults: what in a failed program's last lines shows that this host or its surroundings failed it.
    """

    def __init__(
        self, client: Client, store: Store, cluster: str, host: Host, directory: Path, faults: Sequence[Fault] = FAULTS
    ) -> None:
        self._client = client
        self._store = store
        self._cluster = cluster
        self._host = host
        self._attempts_dir = directory / "attempts"
        self._faults = faults
        self._env = base_env()
        self._attempts: dict[str, Attempt] = {}
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._closed = ""

    @activity.defn
    async def run_task(self, task: RunTask) -> TaskOutcome:
        """Start the attempt. The activity itself completes when the program does, by its task token."""
        if task.incarnation != self._host.incarnation:
            raise self._refusal(f"incarnation {task.incarnation} of this host is over")
        if self._closed:
            raise self._refusal(self._closed)
        if task.key not in self._attempts:
            env = attempt_env(task, self._env, self._cluster, self._host)
            directory = self._attempts_dir / hashlib.sha256(task.key.encode()).hexdigest()[:20]
            token = activity.info().task_token
            attempt = Attempt(self._client, self._store, self._cluster, task, token, directory, env, self._faults)
            self._attempts[task.key] = attempt
            life = asyncio.create_task(attempt.live(), name=task.key)
            self._lives[task.key] = life
            life.add_done_callback(self._ended)
        activity.raise_complete_async()

    def kill_leftovers(self) -> Leftovers:
        """What an earlier agent of this host left behind, its processes killed: before this one takes any work."""
        left = leftovers.find(self._attempts_dir)
        if left:
            killed = leftovers.kill({state.key for _, state in left})
            logger.warning("an earlier agent left %d attempt(s) behind; %d process(es) killed", len(left), killed)
        return left

    async def report_leftovers(self, left: Leftovers) -> None:
        """Report them lost: once this agent is known, so that their jobs are not sent to the dead one again."""
        for directory, state in left:
            outcome = TaskOutcome(
                state=TaskState.WORKER_FAILED,
                reason=f"the agent of host {self._host.id} died",
                started_at=state.started_at,
                finished_at=datetime.now(UTC),
            )
            await report(self._client.get_async_activity_handle(task_token=state.task_token), outcome, state.key)
            shutil.rmtree(directory, ignore_errors=True)

    async def close(self, reason: str) -> None:
        """Take no more; end what runs, report it as preempted, and wait until all is reported."""
        self._closed = reason
        keys = set(self._attempts)
        for attempt in self._attempts.values():
            attempt.end(TaskState.PREEMPTED, reason)
        if self._lives:
            # A server that is away is not waited for: the attempts' heartbeats have ended, and that says it too.
            patience = max((attempt.grace for attempt in self._attempts.values()), default=timedelta(0)) + CLOSE_PATIENCE
            await asyncio.wait(self._lives.values(), timeout=patience.total_seconds())
            leftovers.kill(keys)  # what has left its program's process group

    async def abandon(self, reason: str) -> None:
        """Take no more; kill what runs, and then say once that it is dead: the cluster has given this incarnation up.

        That their host knows it for certain spares the attempts' jobs the wait for their heartbeats to run out.
        """
        self._closed = reason
        keys = set(self._attempts)
        for attempt in self._attempts.values():
            attempt.lose(f"host {self._host.id}: {reason}")
        if keys:
            leftovers.kill(keys)  # what has left its program's process group, before anybody is told
        await asyncio.gather(*self._lives.values(), return_exceptions=True)
        if keys:
            leftovers.kill(keys)  # what was being started

    def _ended(self, life: asyncio.Task[None]) -> None:
        key = life.get_name()
        self._attempts.pop(key, None)
        self._lives.pop(key, None)
        if not life.cancelled() and (error := life.exception()) is not None:
            logger.error("attempt %s ended with a fault of the agent", key, exc_info=error)

    def _refusal(self, reason: str) -> ApplicationError:
        return ApplicationError(f"refused the task: {reason}", type=HOST_REFUSED, non_retryable=True)
