"""Defines the workflow that a schedule starts: it starts the job, and ends when the job ends.

A schedule of Temporal gives each workflow that it starts a new id with the time in it, and uses
these workflows to detect overlapping runs. But the id of a job's workflow must follow from the
job's name. So the schedule starts this workflow, and this workflow starts the job's workflow as its
child, which outlives it.
"""

from temporalio import workflow
from temporalio.common import SearchAttributeKey, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError

from iris.messages.job import JobInput
from iris.messages.scheduled_job import LEFT_OUT, NOT_STARTED, ScheduledJob
from iris.model import names
from iris.model.cron import comes_again, zone_of
from iris.model.job.status import JobStatus
from iris.workflows import policies, web_ui
from iris.workflows.jobs.job import JobWorkflow
from iris.workflows.own_input import foreign
from iris.workflows.search_attributes import job_facts, keywords

_SCHEDULED_AT = SearchAttributeKey.for_datetime(names.SA_SCHEDULED_AT)


@workflow.defn
class ScheduledJobWorkflow:
    @workflow.run
    async def run(self, scheduled: ScheduledJob) -> str | None:
        """Starts the job, and ends as the job ends. A cancellation, for instance by another run of
        the schedule, cancels the job.

        Returns `LEFT_OUT` if it starts no job.
        """
        _check_own(scheduled)
        if _comes_again(scheduled.time_zone):
            return LEFT_OUT
        try:
            job = await _start(scheduled)
        except WorkflowAlreadyStartedError:
            text = (
                f"job {scheduled.spec.id} was not started: a job of this name, which the schedule"
                " has not started, has not ended"
            )
            raise ApplicationError(text, type=NOT_STARTED, non_retryable=True) from None
        await job
        return None


def _check_own(scheduled: ScheduledJob) -> None:
    """Checks that the job is the one of this schedule. The service appends the time to the id of
    the schedule.

    Raises:
        ApplicationError: it is not.
    """
    schedule = names.schedule_id(scheduled.cluster, scheduled.spec.id)
    own_id = workflow.info().workflow_id
    begin, _, time = own_id.partition(f"{schedule}-")
    if begin or not time or "/" in time:
        raise foreign(f"schedule {schedule} starts no workflow with the id {own_id}")
    if scheduled.spec.from_checkpoint is not None:
        raise foreign("a job of a schedule cannot start from a checkpoint")


async def _start(
    scheduled: ScheduledJob,
) -> workflow.ChildWorkflowHandle[JobWorkflow, JobStatus]:
    spec = scheduled.spec
    memo, attributes = job_facts(scheduled.cluster, spec)
    return await workflow.start_child_workflow(
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
        static_details=workflow.memo_value(names.MEMO_DETAILS, None, type_hint=str),
    )


def _comes_again(time_zone: str) -> bool:
    """Returns whether the schedule starts another run an hour later, when the clock is set back and
    shows the same time again.

    A run that a user triggers does not have a time of the schedule. The service does not mark such
    runs, but the times of cron expressions are full minutes.
    """
    time = workflow.info().typed_search_attributes.get(_SCHEDULED_AT)
    zone = zone_of(time_zone) if time_zone else None
    return zone is not None and time is not None and time.second == 0 and comes_again(time, zone)
