"""Deletes the sealed values of jobs that have ended, and of schedules that were deleted.

The workflow of a job deletes the job's values as one of its last steps. A sweep finds the values
that are left: of terminated jobs, of jobs whose children ran on, of submissions that failed, and of
deleted schedules.
"""

import logging
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from iris.messages.job import ChildRef
from iris.messages.job_secrets import UnneededSecrets
from iris.model import names, store_paths
from iris.model.job.secrets import sealed_owner
from iris.storage.object_store import Store

logger = logging.getLogger(__name__)

#: The sweep for sealed values that no job needs does not delete values that are younger than this,
#: because the submission of their job may not have ended yet.
YOUNG = timedelta(minutes=10)


class SealedSecrets:
    """Deletes the sealed (encrypted) values of secrets in a cluster's store that no job needs any
    more.

    Args:
        store: the address of the store; empty if the cluster has none.
    """

    def __init__(self, client: Client, store: str) -> None:
        self._client = client
        self._store = store
        #: The stored objects with sealed values for which the last sweep found no job. The next
        #: sweep must confirm this, because the service's list of running workflows may lack a job
        #: for a moment while the job's workflow continues as new.
        self._found_before: set[str] = set()

    @activity.defn
    async def delete_secrets(self, unneeded: UnneededSecrets) -> None:
        """Deletes the sealed values of a job that has ended, unless a child job may still need
        them.
        """
        if not self._store or await self._any_lives(unneeded):
            return
        objects = [store_paths.sealed_object(unneeded.cluster, path) for path in unneeded.objects]
        await Store(self._store).delete(objects)

    async def sweep(self, cluster: str, young: timedelta = YOUNG) -> None:
        """Deletes the values whose job or schedule did not exist in this sweep and the last one.

        Raises:
            RPCError: the service does not answer.
            OSError, BaseError: the store does not answer.
        """
        store, folder = Store(self._store), store_paths.sealed_object(cluster, "")
        old = []
        for kind in (store_paths.SEALED_JOB, store_paths.SEALED_SCHEDULE):
            stored = await store.stored(f"{folder}{kind}")
            old += [
                each.path.removeprefix(folder)
                for each in stored
                if datetime.now(UTC) - each.modified > young
            ]
        needed = {
            owner: await self._is_needed(cluster, *owner)
            for owner in {_owner(path) for path in old}
        }
        unneeded = {path for path in old if not needed[_owner(path)]}
        again, self._found_before = unneeded & self._found_before, unneeded
        if again:
            logger.info("deletes the secrets of %d jobs and schedules that are gone", len(again))
            await store.delete([store_paths.sealed_object(cluster, path) for path in sorted(again)])

    async def _is_needed(self, cluster: str, kind: str, owner: str) -> bool:
        if kind == store_paths.SEALED_SCHEDULE:
            try:
                await self._client.get_schedule_handle(names.schedule_id(cluster, owner)).describe()
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
            else:
                return True
        family = names.job_workflow(cluster, names.root_id(owner))
        query = (
            f"{_running(cluster)} AND (WorkflowId = '{family}' OR WorkflowId STARTS_WITH"
            f" '{family}/')"
        )
        return (await self._client.count_workflows(query)).count > 0

    async def _any_lives(self, unneeded: UnneededSecrets) -> bool:
        """Returns whether a child of the job, or a job below a child, runs. These jobs may use the
        job's secrets.
        """
        cluster, children = unneeded.cluster, unneeded.children
        if await self._any_child_lives(cluster, children):
            return True
        known = {names.job_workflow(cluster, child.job) for child in children}
        jobs = {sealed_owner(path) for path in unneeded.objects} if children else set()
        for job in jobs:
            below = (
                f"{_running(cluster)} AND WorkflowId STARTS_WITH"
                f" '{names.job_workflow(cluster, job)}/'"
            )
            async for each in self._client.list_workflows(below):
                if each.id not in known:  # lists may have jobs that have just ended
                    return True
        return False

    async def _any_child_lives(self, cluster: str, children: Collection[ChildRef]) -> bool:
        for child in children:
            handle = self._client.get_workflow_handle(
                names.job_workflow(cluster, child.job), first_execution_run_id=child.run_id
            )
            try:
                if (await handle.describe()).status is WorkflowExecutionStatus.RUNNING:
                    return True
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
        return False


def _running(cluster: str) -> str:
    return f"{names.own_workflows(cluster, names.KIND_JOB)} AND ExecutionStatus = 'Running'"


def _owner(path: str) -> tuple[str, str]:
    """Returns the kind of an object with sealed values, and its job or schedule."""
    return path.partition("/")[0], sealed_owner(path)
