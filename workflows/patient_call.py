"""Executes activities that must succeed, however long a service does not answer."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import FailureError, is_cancelled_exception

from iris.model import names
from iris.workflows import policies

P = TypeVar("P")
R = TypeVar("R")


async def until_done(
    activity: Callable[[Any, P], Awaitable[R]],
    argument: P,
    *,
    cluster: str,
    timeout: timedelta | None = None,
    summary: str | None = None,
) -> R:
    """Executes an activity of the control plane until it succeeds, and returns its result.

    Such activities have a task queue of their own: while a service does not answer, each workflow
    that needs the service has one.

    Args:
        timeout: the limit of one attempt, from its start. Without one, the activity takes as long
            as it needs, and sends heartbeats.
        summary: the text beside the activity in Temporal's Web UI.

    Raises:
        asyncio.CancelledError: the workflow was cancelled meanwhile. It is unknown whether the
            activity did its work.
    """
    try:
        return await workflow.execute_activity_method(
            activity,
            argument,
            task_queue=names.patient_queue(cluster),
            start_to_close_timeout=timeout or policies.NO_TIMEOUT,
            heartbeat_timeout=None if timeout else policies.HEARTBEAT,
            retry_policy=policies.UNTIL_DONE,
            summary=summary,
        )
    except FailureError as error:
        if is_cancelled_exception(error):
            raise asyncio.CancelledError from error
        raise
