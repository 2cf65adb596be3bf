"""A job among the jobs of its family: it registers with the job that it belongs to, and cancels
those that belong to it.

A child's workflow is no child workflow of Temporal's: it outlives a parent that has succeeded, and
a client can start it while no control plane runs. So each child signals its parent before it does
anything else. A workflow cannot end before it has handled its signals: either the parent knows the
child when it ends, or the signal is refused, and the child asks how the parent ended. The
scheduler's check finds the live children of an unsuccessful parent that does not know them.
"""

import asyncio
import contextlib

from temporalio import workflow

from iris.activities.control.child_jobs import ChildJobs
from iris.messages.job import ChildRef, ChildStart, EndedParent, JobInput
from iris.model import names
from iris.workflows import policies
from iris.workflows.patient_call import until_done
from iris.workflows.scheduler_call import uninterrupted
from iris.workflows.signals import send_signal

#: The children that one activity cancels: its input has some 50 KiB.
CANCELLED_AT_ONCE = 500
#: The children that a workflow passes to its next run: some 50 KiB, too.
MOST_CARRIED = 500


async def register(job: JobInput) -> str:
    """Registers the job with the job that it belongs to, if there is one. Returns why the job must
    not start; empty: it may.

    Raises:
        asyncio.CancelledError: the job was cancelled meanwhile.
    """
    parent = job.spec.parent
    if parent is None or job.tasks:  # an earlier run has registered
        return ""
    child = ChildRef(job=job.spec.id, run_id=workflow.info().first_execution_run_id)
    if parent.registers:
        handle = workflow.get_external_workflow_handle(
            names.job_workflow(job.cluster, parent.job), run_id=parent.current_run
        )
        if await send_signal(handle, "child_started", child):
            return ""
        # The parent has ended or continued as new, or takes no more signals.
    return await _ask(
        ChildStart(cluster=job.cluster, parent=parent, child=child, signals=parent.registers)
    )


async def _ask(start: ChildStart) -> str:
    summary = f"asks how {start.parent.job} has ended"
    asked = until_done(
        ChildJobs.register_child,
        start,
        cluster=start.cluster,
        timeout=policies.REGISTER,
        summary=summary,
    )
    return (await asked).refusal


class Children:
    """The jobs that belong to a job.

    Args:
        known: those that earlier runs of the workflow know.
    """

    def __init__(self, known: tuple[ChildRef, ...] = ()) -> None:
        self.known = known
        self._cancelled = 0

    @property
    def carried(self) -> tuple[ChildRef, ...]:
        """Those that the next run of the workflow gets: the latest. Others that live are found by
        the scheduler's check.
        """
        return self.known[-MOST_CARRIED:]

    def add(self, child: ChildRef) -> None:
        self.known = (*self.known, child)

    async def cancel(self, cluster: str, reason: str) -> None:
        """Requests the cancellation of all children, and of those that register meanwhile. They end
        after the job.
        """
        with contextlib.suppress(asyncio.CancelledError):  # the job has ended already
            await uninterrupted(self._cancel(cluster, reason))

    async def _cancel(self, cluster: str, reason: str) -> None:
        while children := self.known[self._cancelled : self._cancelled + CANCELLED_AT_ONCE]:
            ended = EndedParent(cluster=cluster, children=children, reason=reason)
            summary = f"cancels {len(children)} jobs that belong to it"
            await until_done(ChildJobs.cancel_children, ended, cluster=cluster, summary=summary)
            self._cancelled += len(children)
