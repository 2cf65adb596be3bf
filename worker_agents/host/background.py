"""Work that an agent does beside its tasks."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine
from typing import Any

logger = logging.getLogger(__name__)


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
                logger.error("a background task of the agent failed", exc_info=fault)
