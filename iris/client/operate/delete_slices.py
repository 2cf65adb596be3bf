"""Deletes slices without a control plane. This module uses only `SliceOps`, which cannot create
anything.
"""

import asyncio
import time
from collections.abc import Iterable
from datetime import timedelta

from iris.client.client import AsyncIrisClient
from iris.client.operate.controller import Progress, no_progress
from iris.model.errors import IrisError
from iris.model.slice.provisioning import DeleteResult, FleetListing, SliceObservation
from iris.platforms.base import RateLimited, SliceOps, Unavailable

#: The pause between two delete requests for the same slice.
DELETE_INTERVAL = timedelta(seconds=0.2)
#: The pause before the slices are listed again because a zone could not be listed.
LIST_INTERVAL = timedelta(seconds=1)


async def delete_slices(
    ops: SliceOps, slices: Iterable[SliceObservation], timeout: timedelta
) -> None:
    """Deletes these slices and waits until the platform reports that all of them are gone.

    Raises:
        IrisError: some slices still exist after `timeout`.
    """
    left = {each.slice_id: each.zone for each in slices}
    give_up = time.monotonic() + timeout.total_seconds()
    why = ""
    while left:
        for slice_id, zone in list(left.items()):
            try:
                if await ops.delete_slice(slice_id, zone) is not DeleteResult.GOING:
                    del left[slice_id]
            except (RateLimited, Unavailable) as error:
                why = f" ({error})"
        if left and time.monotonic() > give_up:
            raise IrisError(
                f"{len(left)} slice(s) still exist{why}: {', '.join(sorted(left))}; run the command"
                " again"
            )
        await asyncio.sleep(DELETE_INTERVAL.total_seconds() if left else 0)


async def delete_all(
    ops: SliceOps, timeout: timedelta, progress: Progress = no_progress
) -> list[str]:
    """Deletes every slice of the cluster and returns their ids.

    Lists the slices again until a list has no new one, because a slice that was requested shortly
    before appears late.

    Args:
        progress: called with the zones that could not be listed and are listed again.

    Raises:
        IrisError: some slices still exist after `timeout`, or a zone still cannot be listed.
    """
    give_up = time.monotonic() + timeout.total_seconds()
    gone: set[str] = set()
    reported = ""
    while True:
        listing = await _listed(ops)
        left = [each for each in listing.slices if each.slice_id not in gone]
        await delete_slices(ops, left, timedelta(seconds=max(0.0, give_up - time.monotonic())))
        gone |= {each.slice_id for each in left}
        if listing.unreachable:
            zones = "; ".join(
                f"{zone} ({why})" for zone, why in sorted(listing.unreachable.items())
            )
            if time.monotonic() > give_up:
                raise IrisError(
                    f"these zones could not be listed, so their slices were not deleted: {zones};"
                    " run the command again"
                )
            if zones != reported:
                progress(f"zones that cannot be listed: {zones}; trying again")
                reported = zones
            await asyncio.sleep(LIST_INTERVAL.total_seconds())
        elif not left:
            return sorted(gone)


async def _listed(ops: SliceOps) -> FleetListing:
    try:
        return await ops.list_slices()
    except (RateLimited, Unavailable) as error:
        return FleetListing(unreachable={"all zones": str(error)})


async def unowned(
    client: AsyncIrisClient, slices: Iterable[SliceObservation]
) -> list[SliceObservation]:
    """Returns the machines of a running cluster that have no live slice workflow.

    Raises:
        Unreachable: the service does not answer or does not have this cluster, so the answer is
            unknown.
    """
    await client.cluster.check_exists()
    return [each for each in slices if not await client.slices.has_workflow(each.slice_id)]
