"""Deletes slices without a control plane. It uses only `SliceOps`, which cannot create anything."""

import asyncio
import time
from collections.abc import Iterable
from datetime import timedelta

from iris.client.operate.control import Tell, nobody
from iris.client.operate.scaling import FleetClient
from iris.model.errors import IrisError
from iris.model.provisioning import DeleteResult, FleetListing, SliceObservation
from iris.platforms.base import RateLimited, SliceOps, Unavailable

#: The pause between two delete requests for the same slice.
ASK_EVERY = timedelta(seconds=0.2)
#: The pause between two lists when a zone could not be listed.
LIST_EVERY = timedelta(seconds=1)


async def delete_slices(ops: SliceOps, slices: Iterable[SliceObservation], patience: timedelta) -> None:
    """Deletes these slices and waits until the platform reports that all of them are gone.

    Raises:
        IrisError: some slices are still there after `patience`.
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
    """Deletes every slice of the cluster and returns their ids.

    Lists the slices again until a list has no new one, because a slice that was requested shortly before appears late.

    Args:
        tell: called with the zones that could not be listed and are listed again.

    Raises:
        IrisError: after `patience` some slices are still there, or a zone still cannot be listed.
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
    """Returns the machines of a running cluster that have no live slice workflow.

    Raises:
        Unreachable: the server does not answer or does not have this cluster, so the answer is unknown.
    """
    await client.check_is_there()
    return [each for each in slices if not await client.looked_after(each.slice_id)]
