"""Ends the workflow tasks of the planners that a dead control plane had begun.

The service waits for a begun workflow task until its timeout (`PLANNER_TASK`), and gives the
planner to no other worker. The timeout is long, because a slow machine must be able to finish a
replay within it. A control plane that starts therefore looks for tasks that were begun before: it
has begun none itself. It reports a task that is still under way after `LOST_AFTER` as failed. The
service then schedules the task anew at once.
"""

import asyncio
import logging
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import PendingWorkflowTaskState, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import ApplicationFailureInfo, Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    GetWorkflowExecutionHistoryReverseRequest,
    RespondWorkflowTaskFailedRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from iris.model.frozen import Frozen

logger = logging.getLogger(__name__)

#: The age from which a workflow task of the scheduler or the autoscaler counts as lost, when a
#: control plane starts. A scheduling pass takes at most a second. A replay can take longer: if
#: another live control plane is replaying, its task counts as lost, and the replay is repeated.
LOST_AFTER = timedelta(seconds=4)
LOOK_EVERY = 0.1
CAUSE = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_WORKFLOW_WORKER_UNHANDLED_FAILURE


class BegunTask(Frozen):
    """A workflow task that a worker has begun and not ended.

    Args:
        attempt: counts the tries at the same task, from 1.
    """

    workflow_id: str
    run_id: str
    attempt: int
    began_at: datetime


async def end_lost_tasks(
    client: Client, workflow_ids: Iterable[str], lost_after: timedelta = LOST_AFTER
) -> None:
    """Ends the workflow tasks that are under way and that no living process seems to handle.

    Returns when none of these tasks is under way any more, after `lost_after` at the latest. The
    caller must not have begun a task of these workflows itself.

    Args:
        lost_after: the age from which a task counts as lost.

    Raises:
        RPCError: the Temporal service does not answer.
    """
    await asyncio.gather(*(_end_lost_task(client, each, lost_after) for each in workflow_ids))


async def _end_lost_task(client: Client, workflow_id: str, lost_after: timedelta) -> None:
    first = task = await _begun_task(client, workflow_id)
    if first is None:
        return
    # The clocks of the service and of this machine may differ.
    age = min(max(datetime.now(UTC) - first.began_at, timedelta()), lost_after)
    until = asyncio.get_running_loop().time() + (lost_after - age).total_seconds()
    while task == first:
        if asyncio.get_running_loop().time() >= until:
            await _fail(client, first)
            return
        await asyncio.sleep(LOOK_EVERY)
        task = await _begun_task(client, workflow_id)


async def _begun_task(client: Client, workflow_id: str) -> BegunTask | None:
    """Returns the workflow's task that is under way; None if there is none."""
    try:
        described = await client.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise
    task = described.raw_description.pending_workflow_task
    if task.state != PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_STARTED:
        return None
    return BegunTask(
        workflow_id=workflow_id,
        run_id=described.run_id,
        attempt=task.attempt,
        began_at=task.started_time.ToDatetime(UTC),
    )


async def _fail(client: Client, task: BegunTask) -> None:
    """Reports the task to the service as failed. If the service does not accept that, the task ends
    by its timeout.
    """
    service, namespace = client.workflow_service, client.namespace
    try:
        described = await service.describe_namespace(DescribeNamespaceRequest(namespace=namespace))
        history = await service.get_workflow_execution_history_reverse(
            GetWorkflowExecutionHistoryReverseRequest(
                namespace=namespace,
                execution=WorkflowExecution(workflow_id=task.workflow_id, run_id=task.run_id),
                maximum_page_size=1,
            )
        )
        token = task_token(described.namespace_info.id, task, history.history.events[0])
        await service.respond_workflow_task_failed(
            RespondWorkflowTaskFailedRequest(
                namespace=namespace,
                task_token=token,
                cause=CAUSE,
                failure=Failure(
                    message="the control plane that began this task has died",
                    application_failure_info=ApplicationFailureInfo(type="LostTask"),
                ),
                identity=client.identity,
            )
        )
    except RPCError as error:
        logger.warning(
            "the task of %s that began at %s may be lost, and ends by its timeout: %s",
            task.workflow_id,
            task.began_at,
            error,
        )
    else:
        logger.info("ended the lost task of %s that began at %s", task.workflow_id, task.began_at)


def task_token(namespace_id: str, task: BegunTask, last: HistoryEvent) -> bytes:
    """Returns the token by which the service knows a workflow task.

    The token is a message of the service (`temporal.server.api.token.v1.Task`) as protobuf: the ids
    of namespace, workflow and run (fields 1 to 3), the event that scheduled the task (4), the
    attempt (5) and the version of the history (11).

    Args:
        last: the last event of the history. The service writes the events of a repeated task, and
            of a task that only delivers an update, when the task has ended. Until then, the task
            has the next number.
    """
    scheduled = last.workflow_task_started_event_attributes.scheduled_event_id or last.event_id + 1
    texts = (namespace_id, task.workflow_id, task.run_id)
    numbers = {4: scheduled, 5: task.attempt, 11: last.version}
    return b"".join(
        [
            *(
                bytes([field << 3 | 2]) + _varint(len(text.encode())) + text.encode()
                for field, text in enumerate(texts, start=1)
            ),
            *(bytes([field << 3]) + _varint(number) for field, number in numbers.items()),
        ]
    )


def _varint(number: int) -> bytes:
    """Returns a number as protobuf encodes it: seven bits in each byte, the lowest first."""
    low, high = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(high) if high else bytes([low])
