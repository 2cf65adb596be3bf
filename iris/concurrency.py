"""Runs an async function for many items at a time, outside workflows."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
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
