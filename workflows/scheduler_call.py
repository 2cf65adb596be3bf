"""Sends messages from workflows to the scheduler and the autoscaler, and protects releases from
cancellation.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import FailureError, is_cancelled_exception

from iris.activities.control.outbox import Outbox
from iris.messages.scheduler import Answer, Envelope, Message
from iris.model import names
from iris.model.slice.status import SliceFacts
from iris.workflows import policies
from iris.workflows.patient_call import until_done
from iris.workflows.signals import send_signal

T = TypeVar("T")


async def exchange(cluster: str, message: Message, *, patient: bool = False) -> Answer:
    """Sends one message to the scheduler and returns its answer.

    The first try is a local activity, which adds one event to the history. If that fails, a normal
    activity tries until it succeeds.

    Args:
        patient: as in `Envelope`.

    Raises:
        asyncio.CancelledError: the workflow was cancelled meanwhile. It is unknown whether the
            scheduler got the message.
    """
    envelope = Envelope(message=message, patient=patient)
    try:
        return await workflow.execute_local_activity_method(
            Outbox.exchange,
            envelope,
            start_to_close_timeout=policies.EXCHANGE_QUICK,
            retry_policy=policies.ONCE,
        )
    except FailureError as error:
        # Not only ActivityError: in a replay, the timeout of a local activity is read from a marker
        # in the history, and raised without an ActivityError around it.
        if is_cancelled_exception(error):
            raise asyncio.CancelledError from error
    summary = f"{message.kind} (the scheduler was slow to answer)"
    return await until_done(
        Outbox.exchange,
        envelope,
        cluster=cluster,
        timeout=policies.EXCHANGE_PATIENT,
        summary=summary,
    )


async def signal_autoscaler(cluster: str, facts: SliceFacts) -> None:
    """Signals a slice's facts to the autoscaler. If none is running, the next autoscaler queries
    the slice when it starts.
    """
    autoscaler = workflow.get_external_workflow_handle(names.autoscaler_workflow(cluster))
    if not await send_signal(autoscaler, "slice_changed", facts):
        workflow.logger.info(
            "no autoscaler runs that could receive that slice %s is %s", facts.id, facts.state
        )


async def uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Finishes the work even if the workflow is cancelled meanwhile, and raises the cancellation
    afterwards.

    Temporal delivers a cancellation once, to the call that the workflow awaits at that time.
    Without this function, it could interrupt the release of hosts.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
