"""Calls the webhooks that a job's user has named, after the job has ended.

Each call is a workflow of its own, which the job starts as its last step. So a client that waits
for the job does not wait for a service that does not answer, and a failed call does not change the
job's state.
"""

import asyncio
import contextlib
from collections import Counter

from temporalio import workflow
from temporalio.exceptions import WorkflowAlreadyStartedError

from iris.activities.control.webhooks import WebhookCalls
from iris.messages.notification import Notification
from iris.model import names
from iris.model.job.demand_limits import REASON, cut
from iris.model.job.gangs import Gang
from iris.model.job.notifications import KIND_NOTIFICATION, notification_workflow, shown_webhook
from iris.model.job.status import JobStatus
from iris.workflows import policies
from iris.workflows.scheduler_call import uninterrupted
from iris.workflows.search_attributes import keywords


@workflow.defn
class NotificationWorkflow:
    @workflow.run
    async def run(self, notification: Notification) -> None:
        """Calls the webhook. Fails if it refuses the message or does not accept it in a day."""
        await workflow.execute_activity_method(
            WebhookCalls.call_webhook,
            notification,
            task_queue=names.patient_queue(notification.cluster),
            start_to_close_timeout=policies.NOTIFY,
            schedule_to_close_timeout=policies.NOTIFY_WITHIN,
            retry_policy=policies.NOTIFY_AGAIN,
            summary=shown_webhook(notification.url),
        )


async def notify(job: Gang, end: JobStatus) -> None:
    """Starts the calls about the end of a job."""
    if job.spec.notify:
        # The job has ended already, so its own cancellation has no effect.
        with contextlib.suppress(asyncio.CancelledError):
            await uninterrupted(_start(job, end))


async def _start(job: Gang, end: JobStatus) -> None:
    attributes = {
        names.SA_CLUSTER: job.cluster,
        names.SA_KIND: KIND_NOTIFICATION,
        names.SA_USER: end.user,
        names.SA_PARENT: end.id,
    }
    for index, url in enumerate(job.spec.notify):
        notification = Notification(
            url=url,
            cluster=job.cluster,
            job=end.id,
            run_id=job.run_id,
            user=end.user,
            state=end.state,
            reason=cut(end.reason, REASON),
            submitted_at=end.submitted_at,
            started_at=end.started_at,
            finished_at=end.finished_at,
            tasks=dict(Counter(task.state for task in end.tasks)),
            tags=job.spec.tags,
            note=job.spec.note,
        )
        # A run of the job that was reset has started the call already.
        with contextlib.suppress(WorkflowAlreadyStartedError):
            await workflow.start_child_workflow(
                NotificationWorkflow.run,
                notification,
                id=notification_workflow(job.cluster, end.id, job.run_id, index),
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                search_attributes=keywords(attributes),
                static_summary=f"notifies {shown_webhook(url)} of the end of a job",
            )
