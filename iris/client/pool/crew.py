"""Keeps a pool's workers: the jobs whose tasks they are. Replaces those that have ended for want of calls."""

import asyncio
import contextlib
from collections.abc import Callable
from datetime import timedelta

from iris.client.jobs import JobsClient
from iris.client.pool.errors import PoolBroken
from iris.client.views import Submitted
from iris.model.errors import IrisError, NameTaken, NotFound, Unreachable
from iris.model.jobs import JobSpec
from iris.model.states import ENDED, JobState
from iris.retrying import retry

#: How often a pool with waiting calls counts its workers. The end of a job is noticed at once.
COUNT_INTERVAL = timedelta(seconds=10)
SUBMIT_INTERVAL = timedelta(seconds=1)


class Crew:
    """The workers of one pool.

    Args:
        spec: the pool's first job; later ones have a number after its name.
        key: of this pool and no other one.
        broken: called when the workers cannot run.
    """

    def __init__(self, jobs: JobsClient, spec: JobSpec, key: str, wanted: int, broken: Callable[[IrisError], None]) -> None:
        self._jobs = jobs
        self._spec = spec
        self._key = key
        self.wanted = wanted
        self._broken = broken
        self._made = 0
        self._watched: dict[str, asyncio.Task[None]] = {}
        self._counting = asyncio.Lock()

    @property
    def jobs(self) -> list[str]:
        """The ids of the jobs that have not ended."""
        return list(self._watched)

    async def start(self) -> None:
        """Starts a job for all workers.

        Raises:
            Rejected: a live job has the name.
            InvalidValue: the workers demand more of their hosts than the scheduler can represent.
            Unreachable: the service does not answer.
        """
        await self._start(self.wanted)

    async def top_up(self) -> None:
        """Starts a job for the workers that are missing. Does nothing while no control plane answers."""
        async with self._counting:
            with contextlib.suppress(Unreachable):
                if (missing := self.wanted - await self.live()) > 0:
                    await self._start(missing)

    async def live(self) -> int:
        """Returns how many workers run, or wait for a host.

        Raises:
            Unreachable: no control plane answers.
        """
        count = 0
        for job in self.jobs:
            with contextlib.suppress(NotFound):
                count += sum(task.state not in ENDED for task in (await self._jobs.status(job)).tasks)
        return count

    async def cancel(self, reason: str) -> None:
        """Cancels the jobs."""

        @retry(Unreachable, every=SUBMIT_INTERVAL)
        async def cancel(job: str) -> None:
            with contextlib.suppress(NotFound):
                await self._jobs.cancel(job, reason)

        jobs = self.jobs
        for watching in self._watched.values():
            watching.cancel()
        self._watched.clear()
        await asyncio.gather(*(cancel(job) for job in jobs))

    async def _start(self, workers: int) -> None:
        while True:
            name = self._spec.name if self._made == 0 else f"{self._spec.name}-{self._made + 1}"
            spec = self._spec.model_copy(update={"name": name, "replicas": workers})
            try:  # once, also if the service does not answer after it has accepted the job
                submitted = await self._jobs.submit_once(spec, key=f"{self._key}/{self._made}")
            except NameTaken:  # the user has chosen the first name only
                if self._made == 0:
                    raise
                self._made += 1
                continue
            self._made += 1
            return self._watch(submitted.job)

    def _watch(self, job: Submitted) -> None:
        self._watched[job.id] = asyncio.create_task(self._until_ended(job))

    async def _until_ended(self, job: Submitted) -> None:
        try:
            status = await self._jobs.wait(job.id, job.run_id)
        except IrisError as error:
            self._broken(PoolBroken(f"the workers of the pool are lost: {error}"))
            return
        except Exception as error:  # whatever it is, the calls would wait for ever
            self._broken(PoolBroken.of(error))
            return
        del self._watched[job.id]
        if status.state is not JobState.SUCCEEDED:  # else they had no calls, or were too many
            self._broken(PoolBroken(f"the workers of the pool have ended: {job.id} {status.state}: {status.reason}"))
