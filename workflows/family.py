"""A job among the jobs of its family: it registers with the job that it belongs to, and cancels those that belong to it.

A child's workflow is no child workflow of Temporal's: it outlives a parent that has succeeded, and a client can start it while no
control plane runs. So each child signals its parent before it does anything else. A workflow cannot end before it has handled
its signals: either the parent knows the child when it ends, or the child finds the parent ended and does not start.
"""

import asyncio
import contextlib

from temporalio import workflow

from iris.activities.control.child_jobs import ChildJobs
from iris.messages.job import ChildRef, EndedParent, JobInput
from iris.model import names
from iris.workflows import policies
from iris.workflows.scheduler_call import uninterrupted
from iris.workflows.signals import send_signal

#: The children that one activity cancels: its input has some 50 KiB.
CANCELLED_AT_ONCE = 500


async def register(job: JobInput) -> str:
    """Registers the job with the job that it belongs to, if there is one. Returns why the job must not start; empty: it may.

    Raises:
        asyncio.CancelledError: the job was cancelled meanwhile.
    """
    parent = job.spec.parent
    if parent is None or job.tasks:  # an earlier run has registered
        return ""
    handle = workflow.get_external_workflow_handle(names.job_workflow(job.cluster, parent.job), run_id=parent.current_run)
    if not await send_signal(handle, "child_started", ChildRef(job=job.spec.id, run_id=workflow.info().first_execution_run_id)):
        return f"job {parent.job}, to which it belongs, had ended before it started"
    return ""


class Children:
    """The jobs that belong to a job.

    Args:
        known: those that earlier runs of the workflow know.
    """

    def __init__(self, known: tuple[ChildRef, ...]) -> None:
        self.known = known
        self._cancelled = 0

    def add(self, child: ChildRef) -> None:
        self.known = (*self.known, child)

    async def cancel(self, cluster: str, reason: str) -> None:
        """Requests the cancellation of all children, and of those that register meanwhile. They end after the job."""
        with contextlib.suppress(asyncio.CancelledError):  # the job has ended already
            await uninterrupted(self._cancel(cluster, reason))

    async def _cancel(self, cluster: str, reason: str) -> None:
        while children := self.known[self._cancelled : self._cancelled + CANCELLED_AT_ONCE]:
            await self._request(EndedParent(cluster=cluster, children=children, reason=reason))
            self._cancelled += len(children)

    async def _request(self, ended: EndedParent) -> None:
        await workflow.execute_activity_method(
            ChildJobs.cancel_children,
            ended,
            task_queue=names.patient_queue(ended.cluster),
            start_to_close_timeout=policies.NO_TIMEOUT,
            heartbeat_timeout=policies.HEARTBEAT,
            retry_policy=policies.UNTIL_DONE,
            summary=f"cancels {len(ended.children)} jobs that belong to it",
        )
