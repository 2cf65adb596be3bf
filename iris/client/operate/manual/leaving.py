"""Gives back machines over SSH that leave a cluster: deletes their slices and everything else of
the cluster.
"""

import asyncio
import time
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from iris.client.client import AsyncIrisClient
from iris.client.connect.identity import find_uid
from iris.client.operate.controller import Progress
from iris.client.operate.delete_slices import delete_slices
from iris.client.operate.platforms import ssh_platform
from iris.config import ClusterConfig
from iris.model.errors import IrisError, NotFound, Unreachable
from iris.model.slice.provisioning import SliceObservation
from iris.model.slice.status import SliceState
from iris.platforms.manual.settings import HostAccess, ManualSettings, manual_settings
from iris.storage.object_store import Store

if TYPE_CHECKING:
    from iris.platforms.manual.platform import ManualPlatform

#: How long a slice may take to disappear after its tasks are stopped: the tasks get their grace
#: period, and the scheduler records the end of the tasks.
DELETE_TIMEOUT = timedelta(minutes=3)
#: The pause between two attempts to reach the machines. A machine counts as down after two failed
#: attempts.
POLL_INTERVAL = timedelta(seconds=2)
#: The reason that users see for the deletion of a slice.
REASON = "its machine is removed from the cluster"


async def give_machines_back(
    config: ClusterConfig,
    addresses: Collection[str],
    client: AsyncIrisClient | None,
    progress: Progress,
    deadline: timedelta = timedelta(0),
) -> None:
    """Deletes the slices on these machines, and waits until nothing of the cluster is left on them.
    The machines must get no new slices.

    Args:
        client: a client through which the control plane deletes the slices. None if the cluster
            does not run; the slices are then deleted directly.
        deadline: how long running tasks may continue.

    Raises:
        Unreachable: a machine does not answer; or the store, which has the cluster's uid, does not
            answer.
        IrisError: a slice still exists after the time for its deletion.
    """
    uid = await find_uid(Store(config.controller.bundle_prefix), config.name)
    if uid is None:
        return  # the cluster was never started
    leaving = _only(manual_settings(config, uid), addresses)
    until = datetime.now(UTC) + deadline
    give_up = time.monotonic() + (deadline + DELETE_TIMEOUT).total_seconds()
    # A slice that was requested before the change of the configuration may still get one of these
    # machines.
    early = await _requested(client)
    asked: set[str] = set()
    before: Mapping[HostAccess, str] = {}
    while True:
        early &= await _requested(client) if early else set()
        platform = ssh_platform(config, leaving)  # a new one, which tries each machine again
        found = await platform.survey()
        if not (found.slices or found.silent or early):
            return
        if lasting := found.silent.keys() & before.keys():
            reasons = "\n".join(
                f"  {host}: {found.silent[host].removeprefix(f'{host}: ')}" for host in lasting
            )
            raise Unreachable(
                f"{len(lasting)} machine(s) did not answer and may still have a slice:\n{reasons}"
            )
        before = found.silent
        for each in found.slices:
            if each.slice_id not in asked:
                progress(f"deleting slice {each.slice_id}")
                asked.add(each.slice_id)
                await _delete(each, client, platform, until)
        if time.monotonic() > give_up:
            left = ", ".join(sorted({each.slice_id for each in found.slices} | early))
            raise IrisError(
                f"these slices may still exist on the machines: {left}; run the command again"
            )
        await asyncio.sleep(
            POLL_INTERVAL.total_seconds() if client is not None or found.silent else 0
        )


async def _delete(
    seen: SliceObservation,
    client: AsyncIrisClient | None,
    platform: "ManualPlatform",
    until: datetime,
) -> None:
    if client is not None:
        try:
            await client.slices.drain(seen.slice_id, REASON, until)
            return
        except NotFound:  # an earlier run of the cluster has left the slice
            pass
    await delete_slices(platform, [seen], DELETE_TIMEOUT)


async def _requested(client: AsyncIrisClient | None) -> set[str]:
    """Returns the slices that may not have a machine yet."""
    rows = await client.slices.list() if client is not None else []
    return {row.id for row in rows if row.made and row.state is SliceState.REQUESTED}


def _only(settings: ManualSettings, addresses: Collection[str]) -> ManualSettings:
    """Returns the settings of a cluster that has only these machines."""
    hosts = {
        name: tuple(each for each in hosts if each.address in addresses)
        for name, hosts in settings.hosts.items()
    }
    return settings.model_copy(update={"hosts": hosts})
