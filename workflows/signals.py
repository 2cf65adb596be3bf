"""Signals from one workflow to another."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError


async def send_signal(
    receiver: workflow.ExternalWorkflowHandle[Any], signal: str, *payload: object
) -> bool:
    """Signals another workflow. Returns False if that workflow has ended or never existed.

    A cancellation interrupts the wait for the service's answer, but not the signal itself. If the
    signal were cancelled and the cancellation and the answer arrived in the same workflow task, the
    SDK's core would reject the cancelled signal as nondeterministic in every replay. The workflow
    would never continue.
    """
    sending = receiver.signal(signal, args=payload)
    try:
        await until_answered(sending)
    except ApplicationError:
        return False
    return True


async def until_answered(sending: Awaitable[None]) -> None:
    """Waits for the answer to a signal. A cancellation interrupts the wait. An error that the
    service returns after that is ignored.
    """
    answer = asyncio.ensure_future(sending)
    answer.add_done_callback(lambda done: done.cancelled() or done.exception())
    await asyncio.shield(answer)
