"""What viewers share of the answers of the cluster."""

import asyncio
from typing import cast

import pytest

from iris.client.client import AsyncIrisClient
from iris.dashboard.reader import SHARED_FOR, Reader
from iris.model.errors import Unreachable


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
