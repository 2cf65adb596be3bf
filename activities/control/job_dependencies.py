"""Finds the ends of jobs for the jobs that depend on them.

A job that depends on others asks how they have ended, and registers with each one that has not
ended. Temporal accepts no signal for a closed workflow, and does not close a workflow before it has
handled its signals. So either the other job knows the dependent when it ends, or the dependent
finds it ended.
"""

import logging

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import ApplicationError, CancelledError, TerminatedError
from temporalio.service import RPCError, RPCStatusCode

from iris.activities.control.job_tasks import each_workflow
from iris.activities.control.service import AT_ONCE, AWAY, first_run
from iris.concurrency import for_each
from iris.messages.dependencies import EndedJob, JobEnd, JobEnds, Lookup
from iris.model import names
from iris.model.job.dependencies import Dependency
from iris.model.states import JobState

logger = logging.getLogger(__name__)


class JobDependencies:
    """Activities that find how jobs have ended, and tell it to the jobs that wait for them."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn
    async def find_ends(self, wanted: Lookup) -> JobEnds:
        """Returns how these jobs have ended. Registers the dependent with those that have not."""

        async def find(job: Dependency) -> JobEnd | None:
            return await self._find(wanted.cluster, job, wanted.dependent)

        found = await for_each(wanted.jobs, find, at_once=AT_ONCE)
        return JobEnds(ends=tuple(end for end in found if end is not None))

    @activity.defn
    async def signal_dependents(self, ended: EndedJob) -> None:
        """Signals a job's end to its dependents. Those that have ended are ignored."""

        async def send(workflow_id: str) -> bool:
            await self._client.get_workflow_handle(workflow_id).signal(
                "dependency_ended", ended.end
            )
            return True

        await each_workflow(
            {names.job_workflow(ended.cluster, job) for job in ended.dependents}, send
        )

    async def _find(self, cluster: str, job: Dependency, dependent: str) -> JobEnd | None:
        workflow_id = names.job_workflow(cluster, job.job)
        while True:
            try:
                latest = await self._client.get_workflow_handle(workflow_id).describe()
                if first_run(latest) != job.run_id:
                    # A later job has the name, so this one has ended.
                    return JobEnd(run_id=job.run_id, state=await self._end(workflow_id, job.run_id))
                if latest.status is not WorkflowExecutionStatus.RUNNING:
                    return JobEnd(
                        run_id=job.run_id, state=await self._end(workflow_id, latest.run_id)
                    )
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
                return JobEnd(run_id=job.run_id, state=None)
            if not dependent or await self._register(workflow_id, latest.run_id, dependent):
                return None

    async def _register(self, workflow_id: str, run_id: str, dependent: str) -> bool:
        """Returns False if the run has ended or continued as new since it was described."""
        try:
            await self._client.get_workflow_handle(workflow_id, run_id=run_id).signal(
                "dependent_waits", dependent
            )
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            if error.status in AWAY:
                raise
            # The job accepts no more signals. The dependent finds its end when it asks again.
            logger.warning("job %s is not registered with %s: %s", dependent, workflow_id, error)
        return True

    async def _end(self, workflow_id: str, run_id: str | None) -> JobState:
        """Returns how a run has ended, or the last run that it continued as."""
        try:
            await self._client.get_workflow_handle(workflow_id, run_id=run_id).result()
        except WorkflowFailureError as error:
            match error.cause:
                case CancelledError() | TerminatedError():
                    return JobState.KILLED
                case ApplicationError(type=str(state)) if state in list(JobState):
                    return JobState(state)
                case _:
                    return JobState.FAILED
        return JobState.SUCCEEDED
