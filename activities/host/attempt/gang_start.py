"""Starts the programs of a gang together: a host whose program is prepared waits until all hosts of
the gang have prepared their programs.
"""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from temporalio.client import (
    Client,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
    WorkflowUpdateStage,
)
from temporalio.service import RPCError, RPCStatusCode

from iris.activities.host.attempt.heartbeat import RPC_TIMEOUT
from iris.messages.task import GangStart, RunTask, TaskProgress
from iris.model import names
from iris.model.states import TaskState
from iris.retrying import retry

#: The delay before a call to the service is repeated.
RETRY_DELAY = timedelta(seconds=1)
#: The time limit of one call that waits until the gang's workflow answers whether the program may
#: start. The service itself ends the call after about 20 seconds.
ANSWER_TIMEOUT = timedelta(minutes=1)


def is_member(task: RunTask) -> bool:
    """Returns whether the task belongs to a gang of several tasks."""
    return task.rank is not None and task.rank.num_slices * task.rank.tasks_per_slice > 1


class _Lost(Exception):
    """The service has lost an update that was sent to a workflow, for instance because the service
    was restarted.
    """


def _may_succeed(error: Exception) -> bool:
    if isinstance(error, _Lost):
        return True
    is_gone = isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND
    return (
        isinstance(error, RPCError | WorkflowUpdateRPCTimeoutOrCancelledError)
        and not is_gone
        and not _is_cancelled()
    )


async def wait_for_gang(client: Client, task: RunTask, task_token: bytes) -> bool:
    """Reports that the task's program is prepared, and waits until all tasks of its gang have
    reported this.

    All hosts of an attempt send an update with the same id, so the job's history contains it only
    once. If an agent is killed meanwhile, its successor reports and sends the update again.

    Args:
        task_token: that of the task's activity.

    Returns:
        True if the programs start now; False if the attempt or its job has ended.
    """
    try:
        proof = {names.TASK_TOKEN_METADATA: task_token}
        await _report(client, task, proof)
        return await _ask(client, task, proof)
    except RPCError:  # the job has ended
        return False
    except WorkflowUpdateRPCTimeoutOrCancelledError:  # the client's name for a cancellation
        raise asyncio.CancelledError from None


@retry(_may_succeed, every=RETRY_DELAY)
async def _report(client: Client, task: RunTask, proof: Mapping[str, bytes]) -> None:
    progress = TaskProgress(
        key=task.key, state=TaskState.BUILDING, at=datetime.now(UTC), prepared=True
    )
    await client.get_workflow_handle(task.owner).signal(
        "task_progress", progress, rpc_metadata=proof, rpc_timeout=RPC_TIMEOUT
    )


@retry(_may_succeed, every=RETRY_DELAY)
async def _ask(client: Client, task: RunTask, proof: Mapping[str, bytes]) -> bool:
    asked = await client.get_workflow_handle(task.owner).start_update(
        "start_together",
        GangStart(claim=task.placement_key),
        id=f"start {task.placement_key}",
        wait_for_stage=WorkflowUpdateStage.ACCEPTED,
        result_type=bool,
        rpc_metadata=proof,
        rpc_timeout=ANSWER_TIMEOUT,
    )
    try:
        return bool(await asked.result(rpc_metadata=proof, rpc_timeout=ANSWER_TIMEOUT))
    except WorkflowUpdateFailedError:  # the job has ended meanwhile
        return False
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise _Lost from None
        raise


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
