"""A project in a fake Google, and the clusters in it."""

import asyncio
import time
import uuid
from collections.abc import Callable
from typing import Any

from iris.model.slice.provisioning import (
    DeleteResult,
    MachineState,
    SliceFault,
    SliceObservation,
    SliceRequest,
)
from iris.model.slice.scale_groups import ScaleGroup
from iris.platforms.base import Platform, PlatformError, RateLimited, Unavailable
from iris.platforms.gcp.platform import GcpPlatform
from iris.platforms.gcp.settings import GcpSettings
from tests.fakes.google.client import FakeGoogle
from tests.platforms.gcp.requests import ZONE, asked, gcp, tpu_group, vm_group
from tests.platforms.worlds import until

OTHER = "europe-west4-a"
#: One group for each of the three things that a slice may be, and the call that makes it.
GROUPS = {
    "node": tpu_group(),
    "queued": tpu_group(name="queued", queued=True),
    "instance": vm_group(),
}
CREATES = {"node": "CreateNode", "queued": "CreateQueuedResource", "instance": "instances.insert"}
DELETES = {"node": "DeleteNode", "queued": "DeleteQueuedResource", "instance": "instances.delete"}


class Site:
    """A project of its own; names in it are nobody else's."""

    def __init__(self, google: FakeGoogle) -> None:
        self.google = google
        self.project = f"p-{uuid.uuid4().hex[:12]}"
        self.name = f"s-{uuid.uuid4().hex[:8]}"

    def platform(self, now: Callable[[], float] = time.monotonic, **settings: Any) -> GcpPlatform:
        """A control plane that has just started."""
        return GcpPlatform(self.settings(**settings), lambda request: "#!/bin/sh\n", now=now)

    def settings(self, **changes: Any) -> GcpSettings:
        endpoints = {"tpu_endpoint": self.google.tpu, "compute_endpoint": self.google.compute}
        base = {"project": self.project, "requests_per_minute": 60_000}
        return gcp(**base | endpoints | changes)

    def wanted(
        self, group: ScaleGroup | None = None, suffix: str = "", **changes: Any
    ) -> SliceRequest:
        return asked(group, f"{self.name}{suffix}", **changes)

    def alive(self) -> list[str]:
        """What there is that is not somebody else's, by name."""
        return sorted(path.rpartition("/")[2] for path in self.google.alive(self.project))

    def created(self) -> list[str]:
        """What was ever made, nodes of queued resources left out."""
        paths = [path for path in self.google.created() if f"/{self.project}/" in path]
        queued = {path.rpartition("/")[2] for path in paths if "/queuedResources/" in path}
        return [
            path for path in paths if "/nodes/" not in path or path.rpartition("/")[2] not in queued
        ]

    def calls(self, method: str) -> int:
        """How often it was called for this project."""
        return sum(f"/{self.project}/" in f"{path}/" for path in self.google.calls(method))


async def seen(platform: Platform, slice_id: str, zone: str = ZONE) -> SliceObservation:
    """What there certainly is."""
    found = await platform.describe_slice(slice_id, zone)
    assert found is not None
    return found


async def comes_up(platform: Platform, slice_id: str, zone: str = ZONE) -> None:
    async def active() -> bool:
        return (await seen(platform, slice_id, zone)).state is MachineState.ACTIVE

    await until(active)


async def fails(platform: Platform, slice_id: str, fault: SliceFault, zone: str = ZONE) -> None:
    """Look at it until it has failed with this fault; it may not be seen before."""

    async def failed() -> bool:
        found = await platform.describe_slice(slice_id, zone)
        return found is not None and (found.state, found.fault) == (MachineState.FAILED, fault)

    await until(failed)


async def goes(platform: Platform, slice_id: str, zone: str = ZONE) -> None:
    """Delete it until nothing is left, as a slice's workflow does."""

    async def gone() -> bool:
        return await platform.delete_slice(slice_id, zone) is DeleteResult.GONE

    await until(gone)


async def insists(call: Any, *arguments: Any, patience: float = 60.0) -> Any:
    """Say it again until it is answered, as Temporal does.

    Raises:
        PlatformError: it is refused, or not answered within so many seconds.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            return await call(*arguments)
        except (RateLimited, Unavailable) as error:
            if time.monotonic() > deadline:
                raise PlatformError(f"not answered in {patience:g} s") from error
        await asyncio.sleep(0.05)
