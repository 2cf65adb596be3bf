"""What viewers share of the answers of the cluster."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import cast

import pytest
from temporalio.service import RPCError, RPCStatusCode

from iris.client.client import AsyncIrisClient
from iris.dashboard.reader import SHARED_FOR, Reader
from iris.model.errors import Unreachable
from tests.harness import time_skipping_cluster


class Asked:
    """A reader with a clock of its own, and a question that counts how often it is asked."""

    def __init__(self) -> None:
        self.now = 0.0
        self.times = 0
        self.answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._reader = Reader(cast(AsyncIrisClient, None), lambda: self.now)

    async def _ask(self) -> int:
        self.times += 1
        return await self.answer

    async def shared(self) -> int:
        return await self._reader.shared("the question", self._ask, 10)


async def test_an_answer_is_shared_from_its_arrival_on() -> None:
    """Sharing matters most when answers take longer than they are shared."""
    asked = Asked()
    first = asyncio.ensure_future(asked.shared())
    await asyncio.sleep(0)
    asked.now = 100
    asked.answer.set_result(7)
    assert await first == 7
    asked.now = 109
    assert await asked.shared() == 7
    assert asked.times == 1
    asked.now = 111
    assert await asked.shared() == 7
    assert asked.times == 2


async def test_an_error_is_shared_for_a_moment_only() -> None:
    """Else a page would show for a minute that the store was away for a second."""
    asked = Asked()
    asked.answer.set_exception(Unreachable("away"))
    for at, times in ((0, 1), (SHARED_FOR / 2, 1), (SHARED_FOR * 2, 2)):
        asked.now = at
        with pytest.raises(Unreachable):
            await asked.shared()
        assert asked.times == times


async def test_the_state_of_a_cluster_changes_with_its_jobs_only() -> None:
    """Open pages are rendered again when it changes."""
    async with time_skipping_cluster() as cluster:
        now = 0.0
        reader = Reader(cluster.users, lambda: now)
        await cluster.join()
        await cluster.until(cluster.nothing_held)
        states = []
        for act in (None, None, "first", None, "second"):
            if act is not None:
                await cluster.end(await cluster.submit(act))
            now += 10
            states.append((await reader.state(), await reader.state("ada/first")))

    idle, still, first, after, second = states
    assert idle == still
    assert None not in (*idle, *first)
    assert len({idle[0], first[0], second[0]}) == 3
    assert first == after
    assert idle[1] != first[1]


async def test_a_service_that_is_away_has_no_state() -> None:
    """Then a page is rendered, and shows the problem."""

    async def describe() -> None:
        raise RPCError("away", RPCStatusCode.UNAVAILABLE, b"")

    workflow = SimpleNamespace(describe=describe)
    connection = SimpleNamespace(scheduler="s", autoscaler="a", workflow=lambda _: workflow)
    client = cast(AsyncIrisClient, SimpleNamespace(connection=connection))

    assert await Reader(client).state() is None


async def test_who_waited_in_line_for_a_silent_scheduler_does_not_wait_for_it_again() -> None:
    """The questions of one page stand in line. Each would keep the next page waiting for as long as
    a question may take.
    """
    begun, silent = asyncio.Event(), asyncio.Event()
    asked: list[str] = []

    def asks(question: str) -> Callable[[], Awaitable[None]]:
        async def ask() -> None:
            asked.append(question)
            begun.set()
            await silent.wait()
            raise Unreachable("away")

        return ask

    questions = {name: asks(name) for name in ("status", "totals", "holdings")}
    client = cast(AsyncIrisClient, SimpleNamespace(cluster=SimpleNamespace(**questions)))
    reader = Reader(client)
    waiting = [
        asyncio.ensure_future(each()) for each in (reader.snapshot, reader.totals, reader.holdings)
    ]
    await begun.wait()
    silent.set()

    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(each) for each in ends] == [Unreachable] * 3
    assert asked == ["status"]
