"""Reads what the pages show. Viewers who ask for the same within a moment share one answer, so that
many open pages cost little more than one.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import replace
from typing import Any, TypeVar

from iris.client.client import AsyncIrisClient
from iris.client.jobs.lists import JobFilter, JobPage
from iris.client.jobs.rows import JobRow
from iris.messages.autoscaler import AutoscalerStatus
from iris.messages.scheduler import HostView, Snapshot, Totals
from iris.model.job.status import JobStatus
from iris.model.states import JobState

#: How long an answer is shared, in seconds: a little less than the pause between two updates of an
#: open page.
SHARED_FOR = 1.5
#: The most answers that are kept.
MOST_KEPT = 500
#: How long the numbers of jobs by state are shared, in seconds. The service counts all jobs of its
#: retention period.
COUNTS_SHARED_FOR = 5.0
T = TypeVar("T")


class Reader:
    """Reads from one cluster for all viewers."""

    def __init__(self, client: AsyncIrisClient) -> None:
        self.client = client
        #: The answers by their question, each with the time until which it is shared.
        self._answers: dict[Hashable, tuple[float, asyncio.Future[Any]]] = {}

    async def shared(
        self, question: Hashable, ask: Callable[[], Awaitable[T]], seconds: float = SHARED_FOR
    ) -> T:
        """Returns the answer to the question. Asks only if nobody has lately.

        Args:
            seconds: the time for which the answer is shared.
        """
        now = time.monotonic()
        until, answer = self._answers.get(question, (0.0, None))
        if answer is None or now > until:
            for old in [each for each, (end, _) in self._answers.items() if now > end]:
                del self._answers[old]
            while len(self._answers) >= MOST_KEPT:
                del self._answers[next(iter(self._answers))]
            answer = asyncio.ensure_future(ask())
            self._answers[question] = (now + seconds, answer)
        # The viewer that asked first may go away while others wait.
        result: T = await asyncio.shield(answer)
        return result

    async def snapshot(self) -> Snapshot:
        """Returns the scheduler's counts, pauses and rules.

        Raises:
            Unreachable: no control plane answers.
        """
        return await self.shared("snapshot", self.client.cluster.status)

    async def totals(self) -> Totals:
        """Returns the numbers of gangs by band and reason, and of hosts by group.

        Raises:
            Unreachable: no control plane answers.
        """
        return await self.shared("totals", self.client.cluster.totals)

    async def autoscaler(self) -> AutoscalerStatus:
        """Returns the state of the autoscaler and of its slices.

        Raises:
            Unreachable: no control plane answers.
        """
        return await self.shared("autoscaler", self.client.autoscaler.status)

    async def hosts(self) -> list[HostView]:
        """Returns all hosts, with their free resources and their tasks.

        Raises:
            Unreachable: no control plane answers.
        """
        return await self.shared("hosts", self.client.hosts.list)

    async def jobs(self, wanted: JobFilter, limit: int) -> list[JobRow]:
        """Returns the newest jobs that the filter takes.

        Raises:
            InvalidValue: a user or a tag cannot have this name.
            Unreachable: the service does not answer.
        """
        return await self.shared(
            ("jobs", repr(wanted), limit), lambda: self.client.jobs.list(wanted, limit=limit)
        )

    async def page_of_jobs(self, wanted: JobFilter, limit: int, start: str) -> JobPage:
        """Returns a part of the list of jobs, as `JobsClient.list_page` does.

        Raises:
            InvalidValue: a user or a tag cannot have this name, or `start` is no place in the list.
            Unreachable: the service does not answer.
        """
        return await self.shared(
            ("page of jobs", repr(wanted), limit, start),
            lambda: self.client.jobs.list_page(wanted, limit=limit, start=start),
        )

    async def count_by_state(self, wanted: JobFilter) -> dict[JobState, int]:
        """Returns the number of jobs in each state. Ignores the filter's states and its text.

        Raises:
            InvalidValue: a user or a tag cannot have this name.
            Unreachable: the service does not answer.
        """
        wanted = replace(wanted, states=(), text="", live_only=False)
        return await self.shared(
            ("count by state", repr(wanted)),
            lambda: self.client.jobs.count_by_state(wanted),
            COUNTS_SHARED_FOR,
        )

    async def job_status(self, job: str, run_id: str | None = None) -> JobStatus:
        """Returns the status of the job, or of one of its runs.

        Raises:
            NotFound: there is no such job.
            Unreachable: no control plane answers.
        """
        return await self.shared(
            ("status", job, run_id), lambda: self.client.jobs.status(job, run_id)
        )
