"""Implements a platform of two parts, each with zones of its own: a cloud, and machines that exist
already.

Each call on a slice goes to the part that has the slice's zone. A list joins the two, and says
which zones are unknown if one part fails. So a failure of one part changes nothing for the slices
of the other.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from datetime import timedelta

from iris.model.slice.provisioning import (
    ANYWHERE,
    DeleteResult,
    FleetListing,
    SliceObservation,
    SliceRequest,
)
from iris.platforms.base import Platform, PlatformError, SliceOps, Unavailable

logger = logging.getLogger(__name__)

#: The time limit for the list of slices of one platform. It is shorter than the control plane's
#: limit for the whole list.
PART_LIMIT = timedelta(seconds=9)


class MixedPlatform:
    """Joins two platforms: a cloud, and machines that exist already.

    Args:
        machine_zones: the zones of the machines' scale groups.
        is_cloud_zone: returns whether the cloud has the zone. The zones of earlier configurations
            count too.
        limit: how long `list_slices` waits for one platform.
    """

    def __init__(
        self,
        cloud: Platform,
        machines: Platform,
        machine_zones: Iterable[str],
        is_cloud_zone: Callable[[str], bool],
        limit: timedelta = PART_LIMIT,
    ) -> None:
        self._cloud = cloud
        self._machines = machines
        self._machine_zones = tuple(sorted(set(machine_zones)))
        self._is_cloud_zone = is_cloud_zone
        self._limit = limit

    async def create_slice(self, request: SliceRequest) -> SliceObservation:
        """Implements `Platform.create_slice`."""
        return await self._part_of(request.zone).create_slice(request)

    async def describe_slice(self, slice_id: str, zone: str) -> SliceObservation | None:
        """Implements `Platform.describe_slice`."""
        return await self._part_of(zone).describe_slice(slice_id, zone)

    async def last_output(self, slice_id: str, zone: str) -> str:
        """Implements `Platform.last_output`."""
        return await self._part_of(zone).last_output(slice_id, zone)

    async def delete_slice(self, slice_id: str, zone: str) -> DeleteResult:
        """Implements `Platform.delete_slice`."""
        return await self._part_of(zone).delete_slice(slice_id, zone)

    async def list_slices(self) -> FleetListing:
        """Implements `Platform.list_slices`. If one part cannot be listed, only its slices are
        unknown.

        Raises:
            Unavailable: neither part could be listed.
        """
        cloud, machines = await asyncio.gather(self._list(self._cloud), self._list(self._machines))
        if isinstance(cloud, str) and isinstance(machines, str):
            raise Unavailable(f"{cloud}; {machines}")
        return joined(_listing(cloud), _listing(machines), self._machine_zones)

    # -- private
    # ----------------------------------------------------------------------------------------------

    def _part_of(self, zone: str) -> Platform:
        return self._cloud if self._is_cloud_zone(zone) else self._machines

    async def _list(self, part: SliceOps) -> FleetListing | str:
        """Returns the list of a part, or why it could not be listed."""
        try:
            return await asyncio.wait_for(part.list_slices(), self._limit.total_seconds())
        except TimeoutError:
            return f"not listed within {self._limit.total_seconds():g} s"
        except PlatformError as error:
            return str(error)
        except Exception as error:  # a fault in one part must not stop the other
            logger.exception("a part of the platform cannot be listed")
            return repr(error)


def _listing(found: FleetListing | str) -> FleetListing:
    return FleetListing(unreachable={ANYWHERE: found}) if isinstance(found, str) else found


def joined(
    cloud: FleetListing, machines: FleetListing, machine_zones: Iterable[str]
) -> FleetListing:
    """Returns the slices of both parts, and what is unknown of each.

    Args:
        machine_zones: the zones of the machines.
    """
    zones = {zone for zone in machine_zones if machines.knows(zone)}
    silent = {zone: why for zone, why in machines.unreachable.items() if zone != ANYWHERE}
    if (why := machines.unreachable.get(ANYWHERE)) is not None:
        silent.update(dict.fromkeys(machine_zones, why))
    return FleetListing(
        slices=(*cloud.slices, *machines.slices),
        unreachable={**silent, **cloud.unreachable},
        listed=tuple(sorted(zones)) if ANYWHERE in cloud.unreachable else (),
    )
