"""Finds live jobs whose parent has ended without success and has not cancelled them, and cancels them."""

import logging
from collections.abc import Iterable

from temporalio import activity
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus
from temporalio.service import RPCError

from iris.activities.control.service import AWAY
from iris.model import names
from iris.model.children import Parent, parent_in

logger = logging.getLogger(__name__)


async def cancel_orphans(client: Client, cluster: str, live: Iterable[WorkflowExecution]) -> None:
    """Requests the cancellation of jobs whose parent could not do it: it was terminated, or left them to a job above it.

    A job that has succeeded leaves its children to the job that it belongs to itself.

    Args:
        live: workflows of live jobs that belong to others.

    Raises:
        RPCError: the service does not answer.
    """
    known: dict[Parent, str] = {}
    for child in live:
        activity.heartbeat()
        try:
            parent = parent_in(await child.memo())
        except Exception as error:  # a codec may raise anything
            logger.error("the memo of workflow %s cannot be read: %s", child.id, error)
            continue
        if parent is None:
            continue
        try:
            if parent not in known:
                known[parent] = await _unsuccessful_above(client, cluster, parent)
            if ended := known[parent]:
                handle = client.get_workflow_handle(child.id, run_id=child.run_id)
                await handle.cancel(reason=f"{ended}, to which it belongs, has ended without success")
        except RPCError as error:
            if error.status in AWAY:
                raise
            logger.info("workflow %s is not cancelled: %s", child.id, error)


async def _unsuccessful_above(client: Client, cluster: str, parent: Parent) -> str:
    """Returns the nearest job above that has ended without success; empty: none has."""
    workflow_id = names.job_workflow(cluster, parent.job)
    found = await client.get_workflow_handle(workflow_id).describe()
    if (found.raw_description.workflow_execution_info.first_run_id or found.run_id) != parent.run_id:
        found = await client.get_workflow_handle(workflow_id, run_id=parent.run_id).describe()  # a later job has the name
    match found.status:
        case WorkflowExecutionStatus.RUNNING | WorkflowExecutionStatus.CONTINUED_AS_NEW:
            return ""
        case WorkflowExecutionStatus.COMPLETED:
            above = parent_in(await found.memo())
            return await _unsuccessful_above(client, cluster, above) if above is not None else ""
    return f"job {parent.job}"
