"""Gives back the machines of a cluster that stops, and reports the machines that do not answer SSH.
A machine that is down does not delay the stop.
"""

import asyncio
import difflib
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from iris.client.client import AsyncIrisClient
from iris.client.connect.identity import known_uid
from iris.client.operate.controller import Progress, delete_through
from iris.client.operate.delete_slices import delete_slices
from iris.config import ClusterConfig
from iris.model.errors import InvalidValue
from iris.model.slice.status import SliceState
from iris.platforms import manual
from iris.platforms.manual.settings import HostAccess, ManualSettings, manual_settings
from iris.storage.object_store import Store

if TYPE_CHECKING:
    from iris.platforms.manual.platform import ManualPlatform

#: How long slices may take to disappear on machines that answer: the slices' tasks get their grace
#: period, and the scheduler records the end of the tasks.
DELETE_THROUGH_TIMEOUT = timedelta(seconds=90)
#: How long slices may take to disappear after a direct deletion: an agent gives its programs their
#: grace period.
DELETE_TIMEOUT = timedelta(minutes=1)
#: The pause before the second attempt to reach a machine. A machine counts as down after two failed
#: attempts.
TRY_AGAIN = timedelta(seconds=3)


async def give_back(
    config: ClusterConfig, client: AsyncIrisClient | None, progress: Progress
) -> str:
    """Deletes the slices on all machines that answer. Returns a message about the machines that may
    still have a slice; empty if no machine has one.

    Args:
        client: a client through which the control plane deletes the slices. None if it does not
            answer; the slices are then deleted directly.

    Raises:
        IrisError: a slice still exists on a machine that answers, or the machines are unknown.
    """
    settings = manual_settings(
        config, await known_uid(Store(config.controller.bundle_prefix), config.name)
    )
    if client is not None:
        deleting = asyncio.create_task(
            delete_through(client, lambda _: DELETE_THROUGH_TIMEOUT, progress)
        )
        waiting = asyncio.create_task(_until_only_silent(settings, client))
        try:
            await asyncio.wait({deleting, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done() and waiting.exception() is None:
                return waiting.result()
            if await deleting:
                return ""
        finally:
            for task in (deleting, waiting):
                task.cancel()
            await asyncio.gather(deleting, waiting, return_exceptions=True)
    progress("deleting the slices on its machines directly")
    found = await _machines(settings).survey()
    while found.slices or found.silent:
        await delete_slices(_machines(settings), found.slices, DELETE_TIMEOUT)
        await asyncio.sleep(TRY_AGAIN.total_seconds() if found.silent else 0)
        before, found = found, await _machines(settings).survey()
        if not found.slices and found.silent.keys() <= before.silent.keys():
            break
    return _left(config.name, found.silent)


def without_machines(config: ClusterConfig, addresses: Collection[str]) -> ClusterConfig:
    """Returns the configuration without these machines, for the stop of a cluster. It keeps no
    slices in reserve.

    Raises:
        InvalidValue: the cluster does not have such a machine.
    """
    listed = [address for group in config.scale_groups.values() for address in group.hosts]
    for address in addresses:
        if address not in listed:
            near = difflib.get_close_matches(address, listed, n=1)
            remedy = (
                f"did you mean {near[0]}?"
                if near
                else f"name one of its machines: {', '.join(listed) or 'it has none'}"
            )
            raise InvalidValue(
                "--give-up", address, f"is not a machine of cluster {config.name}", remedy
            )
    groups = {}
    for name, group in config.scale_groups.items():
        hosts = tuple(each for each in group.hosts if each not in addresses)
        if hosts:
            sizes = {
                "min_slices": 0,
                "buffer_slices": 0,
                "max_slices": min(group.max_slices, len(hosts)),
            }
            groups[name] = group.model_copy(update={"hosts": hosts, **sizes})
    return config.model_copy(update={"scale_groups": groups})


async def _until_only_silent(settings: ManualSettings, client: AsyncIrisClient) -> str:
    """Waits until the remaining slices are all on machines that do not answer. Returns the message
    about them, as `give_back` does.
    """
    before: Mapping[HostAccess, str] = {}
    while True:
        await asyncio.sleep(TRY_AGAIN.total_seconds())
        rows = [row for row in await client.slices.list() if row.made]
        found = await _machines(settings).survey()
        elsewhere = {row.id for row in rows}.isdisjoint(each.slice_id for each in found.slices)
        # A slice in deletion leases no further machine.
        stuck = elsewhere and all(row.state is SliceState.DELETING for row in rows)
        if rows and stuck and found.silent and found.silent.keys() <= before.keys():
            slices = [row.id for row in rows]
            return _left(settings.cluster, await _with_slices(client, slices, found.silent), slices)
        before = found.silent if rows and stuck else {}


async def _with_slices(
    client: AsyncIrisClient, slices: Sequence[str], silent: Mapping[HostAccess, str]
) -> Mapping[HostAccess, str]:
    """Returns the silent machines that have these slices. Returns all silent machines if that is
    unknown.
    """
    statuses = await asyncio.gather(*map(client.slices.show, slices))
    addresses = {host.address for status in statuses for host in status.hosts}
    known = all(status.hosts for status in statuses) and addresses <= {
        host.address for host in silent
    }
    return (
        {host: why for host, why in silent.items() if host.address in addresses}
        if known
        else silent
    )


def _left(cluster: str, silent: Mapping[HostAccess, str], slices: Sequence[str] = ()) -> str:
    if not silent:
        return ""
    what = f"slice {', '.join(slices)}" if slices else "a slice"
    names = " ".join(f"--give-up {host}" for host in silent)
    return "\n".join(
        [
            (
                f"cluster {cluster} is stopped, but {len(silent)} machine(s) did not answer and may"
                f" still have {what}:"
            ),
            *(f"  {host}: {why.removeprefix(f'{host}: ')}" for host, why in silent.items()),
            f"when they answer again, run: iris cluster stop {cluster}",
            f"if they will not come back, run: iris cluster stop {cluster} {names}",
        ]
    )


def _machines(settings: ManualSettings) -> "ManualPlatform":
    """Returns a platform that has not tried to reach any machine yet."""
    return manual.platform.ManualPlatform(settings)
