"""Defines the workflow that a schedule starts: it starts the job, and lives as long as the job
does.

A schedule of Temporal gives its workflows ids of its own, with the time in them, and knows of
overlaps by them. A job's workflow is found by the job's name. So the schedule starts this workflow,
and this one the job: as its child, which outlives it.
"""

from temporalio import workflow
from temporalio.common import SearchAttributeKey, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError

from iris.messages.job import JobInput
from iris.messages.scheduled_job import LEFT_OUT, NOT_STARTED, ScheduledJob
from iris.model import names
from iris.model.cron import comes_again, zone_of
from iris.workflows import policies, web_ui
from iris.workflows.jobs.job import JobWorkflow
from iris.workflows.search_attributes import job_facts, keywords

_SCHEDULED_AT = SearchAttributeKey.for_datetime(names.SA_SCHEDULED_AT)


@workflow.defn
class ScheduledJobWorkflow:
    @workflow.run
    async def run(self, scheduled: ScheduledJob) -> str | None:
        """Ends as the job does. Cancelling it, as another run of the schedule may, cancels the job.

        Returns `LEFT_OUT` if it starts no job.
        """
        if _comes_again(scheduled.time_zone):
            return LEFT_OUT
        spec = scheduled.spec
        memo, attributes = job_facts(scheduled.cluster, spec)
        try:
            job = await workflow.start_child_workflow(
                JobWorkflow.run,
                JobInput(cluster=scheduled.cluster, spec=spec),
                id=names.job_workflow(scheduled.cluster, spec.id),
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                task_timeout=policies.job_task(spec),
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
                memo=memo,
                search_attributes=keywords(attributes),
                static_summary=web_ui.escaped(web_ui.summary(spec)),
            )
        except WorkflowAlreadyStartedError:
            text = (
                f"job {spec.id} was not started: a job of this name, which the schedule has not"
                " started, has not ended"
            )
            raise ApplicationError(text, type=NOT_STARTED, non_retryable=True) from None
        await job
        return None


def _comes_again(time_zone: str) -> bool:
    """Returns whether the schedule starts another run when the clock shows the same again, an hour
    later.

    A run that a user has triggered is for no time of the schedule. The service does not tell which
    these are, but the times of expressions are full minutes.
    """
    time = workflow.info().typed_search_attributes.get(_SCHEDULED_AT)
    zone = zone_of(time_zone) if time_zone else None
    return zone is not None and time is not None and time.second == 0 and comes_again(time, zone)
