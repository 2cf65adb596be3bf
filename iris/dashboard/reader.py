"""Reads what the pages show. Viewers who ask for the same within a moment share one answer, so that
many open pages cost little more than one.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from temporalio.service import RPCError, RPCStatusCode

from iris.client.client import AsyncIrisClient
from iris.client.jobs.lists import JobFilter, JobPage
from iris.client.jobs.rows import JobRow
from iris.client.operate.worker_reports import AgentReport, agent_reports
from iris.dashboard.answers import Answers
from iris.messages.autoscaler import AutoscalerStatus
from iris.messages.fleet_views import Holdings, QueueView
from iris.messages.scheduler import HostView, Snapshot, Totals
from iris.model import names
from iris.model.errors import IrisError, Unreachable
from iris.model.job.spec import Band
from iris.model.job.status import JobStatus
from iris.model.slice.status import SliceStatus
from iris.model.states import JobState
from iris.usage.report import UsageReport

if TYPE_CHECKING:
    from iris.client.fleet.simulations import PublishedSimulation
    from iris.simulation.report.stored import StoredReport

#: How long the dashboard caches the cluster's data, in seconds. It is a little less than the pause
#: between two updates of an open page.
SHARED_FOR = 1.5
#: How long the dashboard caches data that is expensive for the service or the scheduler, or that
#: changes slowly, in seconds.
SHARED_LONGER = 5.0
#: How long the dashboard caches sums of the records of use, in seconds. Records are stored every
#: half minute, and one sum needs many of them.
USAGE_SHARED_FOR = 60.0
#: How long the dashboard caches the list of simulations, in seconds. Each simulation in the list is
#: an object in the store.
SIMULATIONS_SHARED_FOR = 15.0
#: The time limit for the data of one part of a page, in seconds. If the data has not arrived by
#: then, the page shows only its other parts.
PATIENCE = 3.0
T = TypeVar("T")


class Part(NamedTuple, Generic[T]):
    """The data of a part of a page, or why it is missing."""

    #: The data; None if its source did not answer.
    value: T | None
    #: Why there is no data; empty if there is.
    problem: str = ""


async def part(asked: Awaitable[T]) -> Part[T]:
    """Returns the answer of one source, or why there is none, so that the rest of the page can be
    shown without it.
    """
    try:
        async with asyncio.timeout(PATIENCE):
            return Part(await asked)
    except TimeoutError:
        return Part(None, f"no answer within {PATIENCE:.0f} s")
    except IrisError as error:
        return Part(None, str(error))


class Reader:
    """Reads the data of one cluster for all viewers of the dashboard.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(
        self, client: AsyncIrisClient, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.client = client
        self._answers = Answers(clock)
        #: Held during a query of the scheduler, so that there is one at a time: the service keeps
        #: only a few queries of a workflow that has not answered yet.
        self._scheduler = asyncio.Lock()
        #: The number of queries that the scheduler has not answered. If it grows while another
        #: query waits for its turn, that query fails at once.
        self._silences = 0
        #: Held while records of use are read, so that many records are not in memory twice.
        self._usage = asyncio.Lock()
        #: Held while a report of a simulation is read, so that not several large reports are in
        #: memory at once.
        self._simulation = asyncio.Lock()

    async def shared(
        self, question: Hashable, ask: Callable[[], Awaitable[T]], fresh: float = SHARED_FOR
    ) -> T:
        """Returns the answer to the question. Asks only if nobody has lately, or if the last answer
        is still awaited.

        Args:
            fresh: how long the answer is shared, in seconds.
        """
        return await self._answers.shared(question, ask, fresh)

    def forget(self) -> None:
        """Forgets all answers, because an action has changed something."""
        self._answers.forget()

    async def state(self, job: str = "") -> Hashable:
        """Returns a value that differs if the cluster has changed: how long the histories of its
        planners are. Whatever starts, waits, ends or closes is a message to one of them. The
        service answers at once, and no workflow runs for it.

        Args:
            job: a job whose own history counts, too.

        Returns:
            None if the service does not answer.
        """
        connection = self.client.connection
        watched = [connection.scheduler, connection.autoscaler]
        if job:
            watched.append(names.job_workflow(connection.record.name, job))

        async def length(workflow: str) -> tuple[str, int]:
            try:
                described = await connection.workflow(workflow).describe()
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    return "", 0
                raise
            return described.run_id, described.history_length

        async def shared(workflow: str) -> tuple[str, int]:
            return await self.shared(("history", workflow), lambda: length(workflow))

        try:
            async with asyncio.timeout(PATIENCE):
                return tuple(await asyncio.gather(*map(shared, watched)))
        except (TimeoutError, RPCError):
            return None

    async def _of_scheduler(
        self, question: Hashable, ask: Callable[[], Awaitable[T]], fresh: float = SHARED_FOR
    ) -> T:
        async def in_turn() -> T:
            silences = self._silences
            async with self._scheduler:
                # Otherwise each question in the line would wait for the whole time limit once more.
                if self._silences != silences:
                    raise Unreachable("the scheduler does not answer")
                try:
                    return await ask()
                except Unreachable:
                    self._silences += 1
                    raise

        return await self.shared(question, in_turn, fresh)

    async def snapshot(self) -> Snapshot:
        """Returns the scheduler's counts, pauses and rules.

        Raises:
            Unreachable: no control plane answers.
        """
        return await self._of_scheduler("snapshot", self.client.cluster.status)

    async def totals(self) -> Totals:
        """Returns the numbers of gangs by band and reason, and of hosts by group.

        Raises:
            Unreachable: no control plane answers.
        """
        return await self._of_scheduler("totals", self.client.cluster.totals)

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
        return await self._of_scheduler("hosts", self.client.hosts.list, SHARED_LONGER)

    async def holdings(self) -> Holdings:
        """Returns what the hosts offer and what runs on them, by group and by user.

        Raises:
            Unreachable: no control plane answers.
        """
        return await self._of_scheduler("holdings", self.client.cluster.holdings)

    async def queue(
        self, band: Band | None, offset: int, limit: int, *, held: bool = False
    ) -> QueueView:
        """Returns a page of the queue, in the order of service.

        Raises:
            Unreachable: no control plane answers.
        """
        return await self._of_scheduler(
            ("queue", band, held, offset, limit),
            lambda: self.client.cluster.queue(band, held=held, offset=offset, limit=limit),
            SHARED_LONGER,
        )

    async def reports(self) -> dict[tuple[str, str], AgentReport]:
        """Returns the last report of each agent, by (host, incarnation).

        Raises:
            Rejected: the service has no list of workers.
            Unreachable: the service does not answer.
        """
        return await self.shared(
            "reports", lambda: agent_reports(self.client.connection), SHARED_LONGER
        )

    async def slice(self, slice_id: str) -> SliceStatus:
        """Returns one slice, also one that has ended.

        Raises:
            NotFound: there is no such slice.
            Unreachable: no control plane answers.
        """
        return await self.shared(
            ("slice", slice_id), lambda: self.client.slices.show(slice_id), SHARED_LONGER
        )

    async def usage(self, by: tuple[str, ...], since: timedelta, user: str = "") -> UsageReport:
        """Returns who used the cluster since then, and what it cost. The records in the store are
        read anew, for one viewer at a time. Pages share what they show of it (`USAGE_SHARED_FOR`).

        Raises:
            InvalidValue: a key is unknown.
            Rejected: the cluster has no store.
            Unreachable, IrisError: the store does not answer.
        """
        async with self._usage:
            return await self.client.cluster.usage(by, since=since, user=user)

    async def simulations(self, limit: int) -> "list[PublishedSimulation]":
        """Returns the newest published reports of simulations.

        Raises:
            Rejected: the cluster has no store.
            Unreachable, IrisError: the store does not answer.
        """
        return await self.shared(
            ("simulations", limit),
            lambda: self.client.simulations.list(limit),
            SIMULATIONS_SHARED_FOR,
        )

    async def simulation(self, name: str) -> "StoredReport":
        """Returns a published report. It is read anew, for one viewer at a time. Pages share what
        they show of it.

        Raises:
            InvalidValue, NotFound: there is no report of this name.
            Rejected: the cluster has no store.
            Unreachable, IrisError: the store does not answer, or the report cannot be read.
        """
        async with self._simulation:
            return await self.client.simulations.show(name)

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

    async def pools(self, limit: int) -> list[JobRow]:
        """Returns the newest live jobs whose tasks are workers of a pool.

        Raises:
            Unreachable: the service does not answer.
        """
        return await self.jobs(JobFilter(live_only=True, pools=True), limit)

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
            SHARED_LONGER,
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
