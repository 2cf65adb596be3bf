"""Prepares the start of a cluster of machines over SSH, and reports the machines that cannot be
used.
"""

import asyncio
import time
from datetime import timedelta

from iris.client.client import AsyncIrisClient
from iris.client.connect.identity import cluster_uid
from iris.client.operate.controller import Progress
from iris.config import ClusterConfig
from iris.model.errors import IrisError, Unreachable
from iris.model.slice.scaling import Availability
from iris.model.slice.status import SliceState
from iris.platforms import manual
from iris.platforms.manual.settings import manual_settings
from iris.storage.object_store import Store

#: How long the start of a cluster waits for the first hosts. Each host first gets the packages of
#: Iris. The cluster also runs without hosts.
HOSTS_TIMEOUT = timedelta(minutes=4)
#: The states of slices whose hosts have not started yet, but may still start.
_COMING = (SliceState.REQUESTED, SliceState.PROVISIONING, SliceState.BOOTSTRAPPING)
#: The states of scale groups that create no slices for now.
_BLOCKED = (Availability.BACKOFF, Availability.QUOTA_EXCEEDED)
#: The pause between two requests for the cluster's status while its hosts start, in seconds.
POLL_INTERVAL = 0.5


async def prepare(config: ClusterConfig, progress: Progress) -> None:
    """Checks the store, and a login on each machine, before anything is started.

    Args:
        progress: called with a message for each machine that cannot be used.

    Raises:
        Unreachable: the store cannot be used.
        IrisError: no machine can be used.
    """
    uid = await cluster_uid(Store(config.controller.bundle_prefix, create=True), config.name)
    settings = manual_settings(config, uid)
    unusable = await manual.platform.ManualPlatform(settings).unusable()
    lines = [f"machine {host} cannot be used: {reason}" for host, reason in unusable.items()]
    if settings.all_hosts and len(unusable) == len(settings.all_hosts):
        raise IrisError(
            "\n".join(
                [
                    f"cluster {config.name} is not started: it has no machine that can be used",
                    *lines,
                ]
            )
        )
    for line in lines:
        progress(line)


async def wait_for_hosts(config: ClusterConfig, progress: Progress) -> None:
    """Waits until the minimum number of hosts of all groups takes work, or no more hosts come for
    now.

    Args:
        progress: called with the number of hosts, and with the reason if no more hosts come.

    Raises:
        Unreachable: the control plane has not answered for the whole time. (It is busiest while it
            starts hosts: one question without an answer is no reason to give up.)
    """
    wanted = sum(group.min_slices for group in config.scale_groups.values())
    client = await AsyncIrisClient.connect(config.name)
    give_up = time.monotonic() + HOSTS_TIMEOUT.total_seconds()
    reported = -1
    while True:
        late = time.monotonic() > give_up
        try:
            hosts = [view.host for view in await client.hosts.list()]
            ready = sum(await asyncio.gather(*(client.hosts.polls(host) for host in hosts)))
            if ready != reported:
                progress(f"{ready} of {wanted} hosts take work")
                reported = ready
            if ready >= wanted:
                return
            status = await client.autoscaler.status()
        except Unreachable:
            if late:
                raise
        else:
            blocked = {
                each.group: each.why for each in status.groups if each.availability in _BLOCKED
            }
            if late or (blocked and not any(each.state in _COMING for each in status.slices)):
                for group, why in blocked.items():
                    progress(f"scale group {group}: {why}")
                progress(
                    f"the cluster runs without the other hosts; see: iris cluster status"
                    f" {config.name}"
                )
                return
        await asyncio.sleep(POLL_INTERVAL)
