"""Tells the scheduler that a placement is free whose job cannot do so."""

import contextlib

from temporalio.service import RPCError

from iris.activities.host.heartbeat import RPC_TIMEOUT
from iris.activities.host.host_context import HostContext
from iris.messages.scheduler import Batch, Vacate
from iris.messages.task import RunTask
from iris.model import names


async def free_placement(context: HostContext, task: RunTask) -> None:
    """Sends the scheduler a message that the placement is free. A terminated job cannot, and the scheduler notices later."""
    scheduler = context.client.get_workflow_handle(names.scheduler_workflow(context.cluster))
    vacated = Vacate(key=task.placement_key, host_id=context.host.id, incarnation=task.incarnation)
    with contextlib.suppress(RPCError):
        await scheduler.signal("deliver", Batch(messages=(vacated,)), rpc_timeout=RPC_TIMEOUT)
