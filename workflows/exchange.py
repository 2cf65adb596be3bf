"""The workflows' side of the exchange with the planners, and the guard around giving things back."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ApplicationError, FailureError, is_cancelled_exception

from iris import names
from iris.activities.outbox import Outbox
from iris.slices import SliceFacts
from iris.workflows import policies
from iris.workflows.messages import Answer, Envelope, Message

T = TypeVar("T")


async def exchange(cluster: str, message: Message) -> Answer:
    """Say one thing to the scheduler and hear its answer.

    Quickly, as a local activity, which costs one event; and if that does not get through, patiently, as a normal one.

    Raises:
        asyncio.CancelledError: the workflow was cancelled meanwhile; whether the scheduler got the message is not known.
    """
    envelope = Envelope(message=message)
    try:
        return await workflow.execute_local_activity_method(
            Outbox.exchange,
            envelope,
            start_to_close_timeout=policies.EXCHANGE_QUICK,
            retry_policy=policies.ONCE,
        )
    except FailureError as error:
        # Not only ActivityError: on replay a local activity's timeout comes bare, as the marker in the history has it.
        if is_cancelled_exception(error):
            raise asyncio.CancelledError from error
    try:
        return await workflow.execute_activity_method(
            Outbox.exchange,
            envelope,
            task_queue=names.control_queue(cluster),
            start_to_close_timeout=policies.EXCHANGE_PATIENT,
            retry_policy=policies.UNTIL_DONE,
            summary=f"{message.kind} (the scheduler was slow to answer)",
        )
    except FailureError as error:
        if is_cancelled_exception(error):
            raise asyncio.CancelledError from error
        raise


async def tell_autoscaler(cluster: str, facts: SliceFacts) -> None:
    """Let the autoscaler know where a slice is; one that is not there asks when it comes."""
    autoscaler = workflow.get_external_workflow_handle(names.autoscaler_workflow(cluster))
    try:
        await autoscaler.signal("slice_changed", facts)
    except ApplicationError:
        workflow.logger.info("no autoscaler to tell that slice %s is %s", facts.id, facts.state)


async def uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Finish the work even if the workflow is cancelled meanwhile; the cancellation is passed on afterwards.

    Temporal delivers a cancellation once, at whatever is awaited then; unguarded, it would hit the very hand-over that matters.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
