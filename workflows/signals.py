"""Signals from one workflow to another."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError


async def send_signal(
    receiver: workflow.ExternalWorkflowHandle[Any], signal: str, *payload: object
) -> bool:
    """Signals another workflow. Returns False if it has ended or never was.

    A cancellation interrupts the wait for the service's answer, and not the signal itself.

    If both came in one workflow task, the SDK would cancel a signal that is answered already. Its
    core refuses that as nondeterministic, in each replay again, so the workflow would never
    continue.
    """
    sending = receiver.signal(signal, args=payload)
    try:
        await until_answered(sending)
    except ApplicationError:
        return False
    return True


async def until_answered(sending: Awaitable[None]) -> None:
    """Waits for the answer. A cancellation interrupts the wait; an error that the service answers
    afterwards is ignored.
    """
    answer = asyncio.ensure_future(sending)
    answer.add_done_callback(lambda done: done.cancelled() or done.exception())
    await asyncio.shield(answer)
