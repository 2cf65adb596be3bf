"""Reads what the pages show. Viewers who ask for the same within a moment share one answer, so that
many open pages cost little more than one.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

from iris.client.client import AsyncIrisClient
from iris.client.jobs.lists import JobFilter
from iris.client.jobs.rows import JobRow
from iris.messages.autoscaler import AutoscalerStatus
from iris.messages.scheduler import HostView, Snapshot, Totals

#: How long an answer is shared, in seconds: a little less than the pause between two updates of an
#: open page.
SHARED_FOR = 1.5
#: The most answers that are kept.
MOST_KEPT = 500
T = TypeVar("T")


class Reader:
    """Reads from one cluster for all viewers."""

    def __init__(self, client: AsyncIrisClient) -> None:
        self.client = client
        #: The answers by their question, each with the time at which it was asked for.
        self._answers: dict[Hashable, tuple[float, asyncio.Future[Any]]] = {}

    async def shared(self, question: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        """Returns the answer to the question. Asks only if nobody has lately."""
        now = time.monotonic()
        asked_at, answer = self._answers.get(question, (0.0, None))
        if answer is None or now - asked_at > SHARED_FOR:
            for old in [each for each, (at, _) in self._answers.items() if now - at > SHARED_FOR]:
                del self._answers[old]
            while len(self._answers) >= MOST_KEPT:
                del self._answers[next(iter(self._answers))]
            answer = asyncio.ensure_future(ask())
            self._answers[question] = (now, answer)
        # The viewer that asked first may go away while others wait.
        result: T = await asyncio.shield(answer)
        return result

    def forget(self) -> None:
        """Forgets all answers, because an action has changed something."""
        self._answers.clear()

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
