"""Runs an async function for many items at a time, and pauses until a stop, outside workflows."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


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
