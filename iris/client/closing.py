"""Giving machines back without a control plane, by the narrow half of a platform: it cannot start anything."""

import asyncio
import time
from collections.abc import Iterable
from datetime import timedelta

from iris.client.control import Tell, nobody
from iris.client.scaling import FleetClient
from iris.errors import IrisError
from iris.machines import DeleteResult, FleetListing, SliceObservation
from iris.platforms.base import RateLimited, SliceOps, Unavailable

#: Between two questions whether machines are gone.
ASK_EVERY = timedelta(seconds=0.2)
#: Between two lists when a zone could not be listed.
LIST_EVERY = timedelta(seconds=1)


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


async def delete_all(ops: SliceOps, patience: timedelta, tell: Tell = nobody) -> list[str]:
    """Delete every slice of the cluster, until a list shows none that was not deleted: what was asked for just before is in the
    lists a little later. The ids of those that there were.

    Args:
        tell: is told what cannot be seen, and is looked for again.

    Raises:
        IrisError: some are still there when the patience is over, or a zone could not be listed until then.
    """
    give_up = time.monotonic() + patience.total_seconds()
    gone: set[str] = set()
    told = ""
    while True:
        listing = await _listed(ops)
        left = [each for each in listing.slices if each.slice_id not in gone]
        await delete_slices(ops, left, timedelta(seconds=max(0.0, give_up - time.monotonic())))
        gone |= {each.slice_id for each in left}
        if listing.unreachable:
            zones = "; ".join(f"{zone} ({why})" for zone, why in sorted(listing.unreachable.items()))
            if time.monotonic() > give_up:
                raise IrisError(f"what is in these zones is not known, so it was not deleted: {zones}; say the same again")
            if zones != told:
                tell(f"cannot see what is in {zones}; looking again")
                told = zones
            await asyncio.sleep(LIST_EVERY.total_seconds())
        elif not left:
            return sorted(gone)


async def _listed(ops: SliceOps) -> FleetListing:
    try:
        return await ops.list_slices()
    except (RateLimited, Unavailable) as error:
        return FleetListing(unreachable={"all zones": str(error)})


async def unowned(client: FleetClient, slices: Iterable[SliceObservation]) -> list[SliceObservation]:
    """Those of a running cluster's machines that no live workflow looks after.

    Raises:
        Unreachable: the server does not answer, or it is one that has not this cluster, so that this is not known.
    """
    await client.check_is_there()
    return [each for each in slices if not await client.looked_after(each.slice_id)]
