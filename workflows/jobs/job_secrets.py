"""Deletes the secret values that a job's submitter has sealed for it. This is one of the job's last
steps.
"""

import asyncio
import contextlib
from collections.abc import Sequence

from temporalio import workflow
from temporalio.exceptions import ActivityError

from iris.activities.control.sealed_secrets import SealedSecrets
from iris.messages.job import ChildRef
from iris.messages.job_secrets import UnneededSecrets
from iris.model import names
from iris.model.job.gangs import Gang
from iris.model.job.secrets import sealed_for
from iris.workflows import policies
from iris.workflows.scheduler_call import uninterrupted

#: The most child jobs in the input of one activity. Their ids need some 50 KiB.
_MOST_CHILDREN = 500


async def delete_secrets(job: Gang, children: Sequence[ChildRef] = ()) -> None:
    """Deletes the values that were sealed for a job that has ended.

    Args:
        children: the job's children, which may outlive it and use its secrets.
    """
    if objects := sealed_for(job.spec.secrets, job.spec.id):
        unneeded = UnneededSecrets(
            cluster=job.cluster, objects=objects, children=tuple(children[-_MOST_CHILDREN:])
        )
        # The job has ended already, so its own cancellation has no effect.
        with contextlib.suppress(asyncio.CancelledError):
            await uninterrupted(_delete(unneeded))


async def _delete(unneeded: UnneededSecrets) -> None:
    # The job does not wait for a store that does not answer: a later sweep of the control plane
    # deletes the values.
    with contextlib.suppress(ActivityError):
        await workflow.execute_activity_method(
            SealedSecrets.delete_secrets,
            unneeded,
            task_queue=names.patient_queue(unneeded.cluster),
            start_to_close_timeout=policies.DELETE_SECRETS,
            schedule_to_close_timeout=policies.DELETE_SECRETS,
            summary="deletes the secrets that were given to the job",
        )
