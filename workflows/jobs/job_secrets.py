"""Deletes the values that the submitter of a job has sealed for it, as one of the job's last
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

#: The children that one activity looks for: its input has some 50 KiB.
_MOST_CHILDREN = 500


async def delete_secrets(job: Gang, children: Sequence[ChildRef] = ()) -> None:
    """Deletes the values that were sealed for a job that has ended.

    Args:
        children: the jobs that belong to it and may outlive it, with its secrets.
    """
    if objects := sealed_for(job.spec.secrets, job.spec.id):
        unneeded = UnneededSecrets(
            cluster=job.cluster, objects=objects, children=tuple(children[-_MOST_CHILDREN:])
        )
        with contextlib.suppress(asyncio.CancelledError):  # the job has ended already
            await uninterrupted(_delete(unneeded))


async def _delete(unneeded: UnneededSecrets) -> None:
    # If the store is away, the job does not wait for it: the sweep of a control plane deletes them.
    with contextlib.suppress(ActivityError):
        await workflow.execute_activity_method(
            SealedSecrets.delete_secrets,
            unneeded,
            task_queue=names.patient_queue(unneeded.cluster),
            start_to_close_timeout=policies.DELETE_SECRETS,
            schedule_to_close_timeout=policies.DELETE_SECRETS,
            summary="deletes the secrets that were given to the job",
        )
