"""Giving machines back without a control plane, by the narrow half of a platform: it cannot start anything."""

import asyncio
import time
from collections.abc import Iterable
from datetime import timedelta

from iris.client.scaling import FleetClient
from iris.errors import IrisError
from iris.machines import DeleteResult, SliceObservation
from iris.platforms.base import RateLimited, SliceOps, Unavailable

#: Between two questions whether machines are gone.
ASK_EVERY = timedelta(seconds=0.2)


async def delete_slices(ops: SliceOps, slices: Iterable[SliceObservation], patience: timedelta) -> None:
    """Delete these machines until the platform says that nothing is left of them.

    Raises:
        IrisError: some are still there when the patience is over.
    """
    left = {each.slice_id: each.zone for each in slices}
    give_up = time.monotonic() + patience.total_seconds()
    why = ""
    while left:
        for slice_id, zone in list(left.items()):
            try:
                if await ops.delete_slice(slice_id, zone) is DeleteResult.GONE:
                    del left[slice_id]
            except (RateLimited, Unavailable) as error:
                why = f" ({error})"
        if left and time.monotonic() > give_up:
            raise IrisError(f"{len(left)} slice(s) are still there{why}: {', '.join(sorted(left))}; say the same again")
        await asyncio.sleep(ASK_EVERY.total_seconds() if left else 0)


async def delete_all(ops: SliceOps, patience: timedelta) -> list[str]:
    """Delete every slice of the cluster; the ids of those that there were.

    Raises:
        IrisError: some are still there when the patience is over, or a zone could not be listed.
    """
    listing = await ops.list_slices()
    await delete_slices(ops, listing.slices, patience)
    if listing.unreachable:
        zones = "; ".join(f"{zone} ({why})" for zone, why in sorted(listing.unreachable.items()))
        raise IrisError(f"what is in these zones is not known, so it was not deleted: {zones}; say the same again")
    return sorted(each.slice_id for each in listing.slices)


async def unowned(client: FleetClient, ops: SliceOps) -> list[SliceObservation]:
    """Machines of a running cluster that no live workflow looks after.

    Raises:
        Unreachable: the server does not answer, so that this is not known.
    """
    seen = (await ops.list_slices()).slices
    return [each for each in seen if not await client.looked_after(each.slice_id)]
