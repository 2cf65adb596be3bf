"""Child jobs: a job registers with its parent, the job that submitted it, and a job that does not
succeed cancels its children.

The workflow of a child job is no child workflow in Temporal's sense: it outlives a parent that has
succeeded, and a client can start it while no control plane runs. So each child signals its parent
before it does anything else. A workflow cannot end before it has handled its signals. So either the
parent knows the child when it ends, or the service refuses the signal, and the child asks how the
parent has ended. The scheduler's check (`JobChecks`) finds running children that an unsuccessful
parent does not know.
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

#: The maximum number of child jobs that one activity cancels. Their ids need some 50 KiB of its
#: input.
CANCELLED_AT_ONCE = 500
#: The maximum number of child jobs that a workflow passes to its next run. Their ids need some 50
#: KiB.
MOST_CARRIED = 500


async def register(job: JobInput) -> str:
    """Registers a job with its parent, if it has one. Returns why the job must not start, or an
    empty text if it may.

    Raises:
        asyncio.CancelledError: the job was cancelled meanwhile.
    """
    parent = job.spec.parent
    if parent is None or job.tasks:  # an earlier run of the workflow has registered it
        return ""
    child = ChildRef(job=job.spec.id, run_id=workflow.info().first_execution_run_id)
    if parent.registers:
        handle = workflow.get_external_workflow_handle(
            names.job_workflow(job.cluster, parent.job), run_id=parent.current_run
        )
        if await send_signal(handle, "child_started", child):
            return ""
        # The parent has ended, has continued as new, or accepts no more signals.
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
    """The child jobs of a job.

    Args:
        job: the id of the job.
        known: the children that earlier runs of the workflow have registered.
    """

    def __init__(self, job: str, known: tuple[ChildRef, ...] = ()) -> None:
        self._job = job
        self.known = known
        self._cancelled = 0

    @property
    def carried(self) -> tuple[ChildRef, ...]:
        """The latest children, for the next run of the workflow. The scheduler's check finds the
        others if they still run.
        """
        return self.known[-MOST_CARRIED:]

    def add(self, child: ChildRef) -> None:
        """Registers a child. Ignores a job that is no child by its id: it would be cancelled with
        this job.
        """
        if names.parent_id(child.job) == self._job:
            self.known = (*self.known, child)

    async def cancel(self, cluster: str, reason: str) -> None:
        """Requests the cancellation of all children, including those that register meanwhile. Does
        not wait for their end.
        """
        # The job has ended already, so its own cancellation has no effect.
        with contextlib.suppress(asyncio.CancelledError):
            await uninterrupted(self._cancel(cluster, reason))

    async def _cancel(self, cluster: str, reason: str) -> None:
        while children := self.known[self._cancelled : self._cancelled + CANCELLED_AT_ONCE]:
            ended = EndedParent(cluster=cluster, children=children, reason=reason)
            summary = f"cancels {len(children)} jobs that belong to it"
            await until_done(ChildJobs.cancel_children, ended, cluster=cluster, summary=summary)
            self._cancelled += len(children)
