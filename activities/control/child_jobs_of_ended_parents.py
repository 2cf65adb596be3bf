"""Cancels running jobs whose parent has ended without success and has not cancelled them."""

import logging

from temporalio import activity
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
)
from temporalio.service import RPCError

from iris.activities.control.service import AWAY, first_run
from iris.model import names
from iris.model.job.children import Parent, parent_in

logger = logging.getLogger(__name__)


class Ancestors:
    """Finds out whether the ancestors of jobs ended without success. Asks the service only once
    about each ancestor.
    """

    def __init__(self, client: Client, cluster: str) -> None:
        self._client = client
        self._cluster = cluster
        #: For each (job, run id) that an earlier call of `unsuccessful` looked up: the nearest of
        #: this job and its ancestors that has ended without success; empty if there is none.
        self._known: dict[tuple[str, str], str] = {}

    async def unsuccessful(self, parent: Parent) -> str:
        """Returns the nearest ancestor that has ended without success, or an empty text.

        The children of a job that has succeeded belong to that job's own parent from then on.

        Raises:
            RPCError: the service does not answer, or does not know the job any more.
        """
        key = parent.job, parent.run_id
        if key not in self._known:
            self._known[key] = await self._unsuccessful(parent)
        return self._known[key]

    async def describe(self, parent: Parent) -> WorkflowExecutionDescription:
        """Returns the latest run of the parent's workflow, not that of a later job of its name.

        Raises:
            RPCError: the service does not answer, or does not know the job any more.
        """
        workflow_id = names.job_workflow(self._cluster, parent.job)
        found = await self._client.get_workflow_handle(workflow_id).describe()
        if first_run(found) == parent.run_id:
            return found
        return await self._client.get_workflow_handle(workflow_id, run_id=parent.run_id).describe()

    async def _unsuccessful(self, parent: Parent) -> str:
        found = await self.describe(parent)
        match found.status:
            case WorkflowExecutionStatus.RUNNING | WorkflowExecutionStatus.CONTINUED_AS_NEW:
                return ""
            case WorkflowExecutionStatus.COMPLETED:
                above = parent_in(await found.memo())
                return await self.unsuccessful(above) if above is not None else ""
        return f"job {parent.job}"


async def cancel_orphans(client: Client, cluster: str) -> None:
    """Requests the cancellation of jobs whose parent could not request it: the parent was
    terminated or has succeeded before its own parent failed, or the job is not registered with its
    parent.

    Raises:
        RPCError: the service does not answer.
    """
    ancestors = Ancestors(client, cluster)
    children = (
        f"{names.own_workflows(cluster, names.KIND_JOB)} AND {names.SA_PARENT} IS NOT NULL AND"
        " ExecutionStatus = 'Running'"
    )
    async for child in client.list_workflows(children):
        activity.heartbeat()
        try:
            parent = parent_in(await child.memo())
        except Exception as error:  # a codec may raise anything
            logger.error("the memo of workflow %s cannot be read: %s", child.id, error)
            continue
        if parent is None:
            continue
        try:
            if ended := await ancestors.unsuccessful(parent):
                await _cancel(client, child, ended)
        except RPCError as error:
            if error.status in AWAY:
                raise
            logger.info("workflow %s is not cancelled: %s", child.id, error)


async def _cancel(client: Client, child: WorkflowExecution, ended: str) -> None:
    handle = client.get_workflow_handle(child.id, run_id=child.run_id)
    await handle.cancel(reason=f"{ended}, to which it belongs, has ended without success")
