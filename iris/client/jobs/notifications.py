"""Looks up whether the webhooks of a job were called at its end."""

import asyncio
from enum import StrEnum

from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError
from temporalio.service import RPCError, RPCStatusCode

from iris.client.connect.rpc import Connection
from iris.model.frozen import Frozen
from iris.model.job.notifications import notification_workflow, shown_webhook
from iris.model.job.spec import JobSpec


class NotificationState(StrEnum):
    """The state of one webhook call at the end of a job."""

    #: The webhook is not called yet, because the job has not ended. It is never called for a job
    #: whose workflow was terminated.
    PENDING = "PENDING"
    #: The webhook is being called. A call that fails is repeated.
    SENDING = "SENDING"
    SENT = "SENT"
    FAILED = "FAILED"


class NotificationRow(Frozen):
    """One webhook call at the end of a job, as a list shows it."""

    #: The webhook's address without its path. The path is left out because it may contain a secret.
    url: str
    state: NotificationState
    #: The reason why the call failed, or why the last attempt of a call that is repeated failed.
    #: Empty if no failure is known.
    reason: str = ""

    def __str__(self) -> str:
        shown = "sent at the end" if self.state is NotificationState.PENDING else self.state.lower()
        return (
            f"{self.url}"
            f" ({shown}{': ' * bool(self.reason)}{self.reason.removeprefix(f'{self.url} ')})"
        )


async def notifications_of(
    connection: Connection, spec: JobSpec, run_id: str
) -> list[NotificationRow]:
    """Returns the calls of a job's webhooks. Asks only the service.

    Args:
        run_id: the first run of the job.

    Raises:
        Unreachable: the service does not answer.
    """
    ids = [
        notification_workflow(connection.record.name, spec.id, run_id, index)
        for index in range(len(spec.notify))
    ]
    with connection.rpc_errors():
        found = await asyncio.gather(*(_state(connection, each) for each in ids))
    return [
        NotificationRow(url=shown_webhook(url), state=state, reason=reason)
        for url, (state, reason) in zip(spec.notify, found, strict=True)
    ]


async def _state(connection: Connection, workflow_id: str) -> tuple[NotificationState, str]:
    handle = connection.workflow(workflow_id)
    try:
        described = await handle.describe()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return NotificationState.PENDING, ""
    if described.status is WorkflowExecutionStatus.COMPLETED:
        return NotificationState.SENT, ""
    if described.status is WorkflowExecutionStatus.RUNNING:
        failures = [
            each.last_failure.message for each in described.raw_description.pending_activities
        ]
        return NotificationState.SENDING, next(filter(None, failures), "")
    try:
        await handle.result()
    except WorkflowFailureError as error:
        return NotificationState.FAILED, _root(error)
    return NotificationState.SENT, ""


def _root(error: BaseException) -> str:
    """Returns the message of the error's first cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    return getattr(error, "message", None) or str(error)
