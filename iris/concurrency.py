"""Runs an async function for many items at a time or beside other work, and pauses until a stop.
Not for workflows.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from datetime import timedelta
from typing import Any, TypeVar

T = TypeVar("T")
U = TypeVar("U")

logger = logging.getLogger(__name__)


async def for_each(items: Iterable[T], do: Callable[[T], Awaitable[U]], *, at_once: int) -> list[U]:
    """Calls `do` with each item, at most `at_once` at a time. Returns the results in the items'
    order.

    Raises:
        Exception: the first exception of a call. The other calls continue.
    """
    gate = asyncio.Semaphore(at_once)

    async def one(item: T) -> U:
        async with gate:
            return await do(item)

    return await asyncio.gather(*(one(item) for item in items))


async def pause(stop: asyncio.Event, time: timedelta) -> None:
    """Waits for this time or until the stop, whichever is first."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), time.total_seconds())


@contextlib.asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Runs the coroutine for the duration of the block."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        for fault in await asyncio.gather(task, return_exceptions=True):
            if isinstance(fault, Exception):
                logger.error("a background task failed", exc_info=fault)
