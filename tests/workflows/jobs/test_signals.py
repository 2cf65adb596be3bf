"""Signals from one workflow to another."""

import asyncio
import gc
from typing import Any

import pytest

from iris.workflows.signals import until_answered


async def test_an_error_that_comes_after_the_wait_was_cancelled_is_in_no_log() -> None:
    """The log of a control plane would have a traceback of each signal that a cancelled workflow
    has left behind.
    """
    logged: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: logged.append(context))
    answer = loop.create_future()
    waiting = asyncio.create_task(until_answered(answer))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    answer.set_exception(RuntimeError("there is no such workflow"))
    del answer
    for _ in range(3):
        await asyncio.sleep(0)
    gc.collect()

    assert logged == []
