"""Deletes the slices of a cluster on Google Cloud, and those of its machines over SSH, without the
control plane.
"""

import asyncio
from datetime import timedelta

from iris.client.fleet.slices import SliceRow
from iris.client.operate.controller import Progress
from iris.client.operate.delete_slices import delete_all
from iris.client.operate.platforms import create_platform, over_ssh
from iris.config import ClusterConfig
from iris.model.errors import IrisError
from iris.model.slice.scale_groups import is_gcp_zone
from iris.platforms.base import SliceOps
from iris.platforms.gcp.settings import GcpSettings

#: How long slices may take to disappear: their tasks get their grace period, and Google takes
#: minutes to delete a TPU.
DELETE_TIMEOUT = timedelta(minutes=15)
#: How long a slice on a machine over SSH may take to disappear. A machine that is down may not
#: answer for days; the stop then names the machine.
MACHINE_TIMEOUT = timedelta(seconds=90)


def timeout_of(row: SliceRow) -> timedelta:
    """Returns how long the slice may take to disappear."""
    return DELETE_TIMEOUT if is_gcp_zone(row.zone) else MACHINE_TIMEOUT


def slice_ops(config: ClusterConfig, settings: GcpSettings) -> SliceOps:
    """Returns the part of the platform that lists and deletes all of the cluster's slices."""
    return create_platform(config, settings=settings, over_ssh=over_ssh(config, settings.uid))


async def delete_directly(
    config: ClusterConfig, settings: GcpSettings, progress: Progress, *, machines: bool
) -> list[str]:
    """Deletes all slices without the control plane, and returns their ids.

    Args:
        machines: whether to give back the machines over SSH, too. This machine may not reach them,
            and the control plane may have given them back already.

    Raises:
        IrisError: some slices may still exist. All others are deleted.
    """
    parts = [delete_all(create_platform(config, settings=settings), DELETE_TIMEOUT, progress)]
    lab = over_ssh(config, settings.uid)
    if machines and lab is not None:
        parts.append(delete_all(create_platform(config, over_ssh=lab), MACHINE_TIMEOUT, progress))
    results = await asyncio.gather(*parts, return_exceptions=True)
    failures = [each for each in results if isinstance(each, BaseException)]
    for each in failures:
        if not isinstance(each, IrisError):
            raise each
    if failures:
        raise IrisError("\n".join(map(str, failures)))
    return sorted(slice_id for each in results if isinstance(each, list) for slice_id in each)
