"""Work that blocks, done in a thread, and never left alone there."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Stopped(Exception):
    """The work in a thread was asked to stop, and did."""


async def in_thread(work: Callable[[threading.Event], T]) -> T:
    """What `work` returns, done in a thread. A cancellation sets its event and waits for it: it never goes on unseen.

    Raises:
        Exception: what `work` raises.
    """
    stop = threading.Event()
    running = asyncio.ensure_future(asyncio.to_thread(work, stop))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([running])
        running.exception()  # it ended somehow; nobody waits for that any more
        raise
