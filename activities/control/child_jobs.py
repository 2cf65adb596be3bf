"""Cancels the jobs that belong to a job that did not succeed."""

from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from iris.activities.control.job_tasks import each_workflow
from iris.messages.job import EndedParent
from iris.model import names


class ChildJobs:
    """Activities for jobs that belong to other jobs."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn
    async def cancel_children(self, ended: EndedParent) -> None:
        """Requests the cancellation of each child. Those that have ended, or were cancelled before, are left alone."""
        runs = {names.job_workflow(ended.cluster, child.job): child.run_id for child in ended.children}

        async def cancel(workflow_id: str) -> bool:
            try:
                handle = self._client.get_workflow_handle(workflow_id, first_execution_run_id=runs[workflow_id])
                await handle.cancel(reason=ended.reason)
            except RPCError as error:
                if error.status is not RPCStatusCode.ALREADY_EXISTS:  # it is being cancelled
                    raise
            return True

        await each_workflow(runs, cancel)
