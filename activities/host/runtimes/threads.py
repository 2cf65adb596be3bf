"""Runs blocking work in a thread and waits for its end, also on cancellation."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Stopped(Exception):
    """The error that work in a thread raises when it stops because `in_thread` was cancelled."""


async def in_thread(work: Callable[[threading.Event], T]) -> T:
    """Runs `work` in a thread and returns its result. A cancellation sets the event and waits for
    `work` to end.

    Raises:
        Exception: the exception that `work` raises.
    """
    stop = threading.Event()
    running = asyncio.ensure_future(asyncio.to_thread(work, stop))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([running])
        running.exception()  # retrieves the error, which no caller wants any more
        raise
