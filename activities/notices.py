"""Telling jobs that had to wait of their hosts, and finding those that are not there any more."""

import asyncio
from collections.abc import Sequence
from typing import Any

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from iris import names
from iris.workflows.messages import ClusterRef, EvictionNotices, Keys, Notices, Owner, Owners, Reasons, SnapshotPage

#: Signals under way at once: enough to hide the round trip, far below the frontend's limits.
AT_ONCE = 32
PAGE = 2_000


class Couriers:
    """Activities between the scheduler and the owners of its placements."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn
    async def tell_placed(self, notices: Notices) -> Keys:
        """Signal every owner. Returns the keys whose owners are gone: their placements are free again."""
        return await self._tell("placed", [(each.owner, each.key, each) for each in notices.placements])

    @activity.defn
    async def tell_evicted(self, notices: EvictionNotices) -> Keys:
        """The same for gangs whose hosts are taken away."""
        return await self._tell("evicted", [(each.owner, each.key, each) for each in notices.evictions])

    @activity.defn
    async def tell_reasons(self, reasons: Reasons) -> None:
        """Let those who wait show why. Whoever is gone has no use for it."""
        await self._tell("waits", [(each.owner, each.key, each) for each in reasons.reasons])

    async def _tell(self, signal: str, news: Sequence[tuple[str, str, Any]]) -> Keys:
        """Signal each owner; the keys of those who are gone."""
        at_once = asyncio.Semaphore(AT_ONCE)

        async def tell(owner: str, key: str, what: Any) -> str | None:
            async with at_once:
                try:
                    await self._client.get_workflow_handle(owner).signal(signal, what)
                except RPCError as error:
                    if error.status is not RPCStatusCode.NOT_FOUND:
                        raise
                    return key
            return None

        gone = await asyncio.gather(*(tell(*each) for each in news))
        return Keys(keys=tuple(key for key in gone if key is not None))

    @activity.defn
    async def check_jobs(self, ref: ClusterRef) -> Keys:
        """The keys whose owners have ended without giving them back: terminated in the Web UI, for instance.

        Visibility tells who runs, a little late; whoever it does not name is looked at directly before anything is taken away.
        """
        scheduler = self._client.get_workflow_handle(names.scheduler_workflow(ref.cluster))
        owners: list[Owner] = []
        while True:
            page = await scheduler.query("owners", SnapshotPage(offset=len(owners), limit=PAGE), result_type=Owners)
            owners.extend(page.owners)
            if not page.owners or len(owners) >= page.total:
                break
        kinds = f"'{names.KIND_JOB}', '{names.KIND_TASK}'"
        running = {
            (execution.id, names.short_run(execution.run_id))
            async for execution in self._client.list_workflows(
                f"{names.SA_CLUSTER} = '{ref.cluster}' AND {names.SA_KIND} IN ({kinds}) AND ExecutionStatus = 'Running'"
            )
        }
        gone = []
        for owner in owners:
            activity.heartbeat()
            if (owner.owner, owner.key.rpartition("/")[2]) not in running and not await self._runs(owner):
                gone.append(owner.key)
        return Keys(keys=tuple(gone))

    async def _runs(self, owner: Owner) -> bool:
        try:
            described = await self._client.get_workflow_handle(owner.owner).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise
        if described.status is not WorkflowExecutionStatus.RUNNING:
            return False
        # A later job may have taken the name; the key carries the first run it was made in.
        first_run = described.raw_description.workflow_execution_info.first_run_id or described.run_id or ""
        return owner.key.endswith(f"/{names.short_run(first_run)}")
