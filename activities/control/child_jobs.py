"""Registers child jobs with their parents, and cancels children of jobs that did not succeed."""

import logging

from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from iris.activities.control.child_jobs_of_ended_parents import Ancestors, cancel_orphans
from iris.activities.control.job_tasks import each_workflow
from iris.activities.control.repetition import try_again
from iris.activities.control.service import AWAY
from iris.messages.job import ChildStart, EndedParent, Registration
from iris.messages.wire import RepeatedCheck
from iris.model import names

logger = logging.getLogger(__name__)


class ChildJobs:
    """Activities that register child jobs with their parents, and cancel child jobs."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn
    async def register_child(self, start: ChildStart) -> Registration:
        """Registers a child job with its parent, if the parent runs and accepts signals. Returns
        why the job must not start, if so.

        `cancel_orphans` finds a job that is not registered if its parent does not succeed.
        """
        ancestors = Ancestors(self._client, start.cluster)
        try:
            if ended := await ancestors.unsuccessful(start.parent):
                return Registration(
                    refusal=f"{ended}, to which it belongs, had ended before it started"
                )
            if start.signals and (run := (await ancestors.describe(start.parent)).run_id):
                handle = self._client.get_workflow_handle(
                    names.job_workflow(start.cluster, start.parent.job), run_id=run
                )
                await handle.signal("child_started", start.child)
        except RPCError as error:
            if error.status in AWAY:
                raise
            logger.info(
                "job %s is not registered with %s: %s", start.child.job, start.parent.job, error
            )
        return Registration()

    @activity.defn
    async def cancel_orphans(self, check: RepeatedCheck) -> None:
        """Requests the cancellation of running jobs with an ancestor that has ended without
        success.

        Raises:
            ApplicationError: the service has to repeat the check.
        """
        await cancel_orphans(self._client, check.cluster)
        try_again(check.repetition, "every live job has been checked")

    @activity.defn
    async def cancel_children(self, ended: EndedParent) -> None:
        """Requests the cancellation of each child that runs and is not being cancelled."""
        runs = {
            names.job_workflow(ended.cluster, child.job): child.run_id for child in ended.children
        }

        async def cancel(workflow_id: str) -> bool:
            try:
                handle = self._client.get_workflow_handle(
                    workflow_id, first_execution_run_id=runs[workflow_id]
                )
                await handle.cancel(reason=ended.reason)
            except RPCError as error:
                if error.status is not RPCStatusCode.ALREADY_EXISTS:  # it is being cancelled
                    raise
            return True

        await each_workflow(runs, cancel)
