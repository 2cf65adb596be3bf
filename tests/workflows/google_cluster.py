"""The cluster of `tests.fleet_harness` on a fake Google in the place of the platform in memory: real workflows, a real server,
the platform as it is, and agents that are played."""

import uuid
from collections.abc import Callable
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from temporalio.testing import WorkflowEnvironment

from iris import names
from iris.machines import DeleteResult, FleetListing, SliceObservation, SliceRequest
from iris.platforms.gcp.platform import GcpPlatform
from tests.fakes.google.client import FakeGoogle
from tests.fleet_harness import FleetCluster, PlayedFleet, PlayedSlices
from tests.harness import Couriers
from tests.platforms.gcp_requests import gcp

READY = ("READY", "RUNNING")


class OnGoogle:
    """The platform, and what the harness has to know of its machines."""

    def __init__(self, google: FakeGoogle) -> None:
        self.google = google
        self.project = f"p-{uuid.uuid4().hex[:12]}"
        #: Whether a host's agent lives, by slice and worker id.
        self.agent_lives: Callable[[str, int], bool] = lambda slice_id, worker: True
        self._requests: dict[str, SliceRequest] = {}
        self._platform = self.another()

    def another(self) -> GcpPlatform:
        """As a control plane has it that has just started."""
        endpoints = {"tpu_endpoint": self.google.tpu, "compute_endpoint": self.google.compute}
        return GcpPlatform(gcp(project=self.project, requests_per_minute=60_000, **endpoints), lambda request: "#!/bin/sh\n")

    def forget(self) -> None:
        """The control plane has died, and another one has started."""
        self._platform = self.another()

    async def create_slice(self, request: SliceRequest) -> SliceObservation:
        self._requests[request.slice_id] = request
        return await self._platform.create_slice(request)

    async def describe_slice(self, slice_id: str, zone: str) -> SliceObservation | None:
        return await self._platform.describe_slice(slice_id, zone)

    async def delete_slice(self, slice_id: str, zone: str) -> DeleteResult:
        return await self._platform.delete_slice(slice_id, zone)

    async def list_slices(self) -> FleetListing:
        return await self._platform.list_slices()

    # What the harness asks.

    @property
    def machines(self) -> dict[str, Any]:
        return {
            each: SimpleNamespace(request=self._requests[each], manual=False) for each in self.alive if each in self._requests
        }

    @property
    def alive(self) -> list[str]:
        return sorted({path.rpartition("/")[2] for path in self.google.alive(self.project)})

    @property
    def created(self) -> list[str]:
        """Slices that were made, in order."""
        return [path.rpartition("/")[2] for path in self.google.created() if f"/{self.project}/" in path]

    def up(self, now: datetime) -> list[tuple[SliceRequest, int]]:
        ready = [each["name"] for each in self.google.resources(self.project) if each["state"] in READY]
        return [
            (self._requests[name], worker)
            for name in ready
            if name in self._requests
            for worker in range(self._requests[name].group.hosts)
            if self.agent_lives(name, worker)
        ]

    def check(self) -> None:
        self.google.check(self.project)


class GoogleCluster(FleetCluster):
    """A cluster on Google Cloud."""

    platform: Any

    def __init__(self, env: WorkflowEnvironment, couriers: type[Couriers], google: FakeGoogle) -> None:
        super().__init__(env, "dev", couriers)
        #: What the control plane serves, by queue.
        self._served: dict[str, dict[str, Any]] = {}
        self.platform = OnGoogle(google)
        self.fleet = PlayedFleet(self, self.lister)
        self.slices = PlayedSlices(self)

    async def dies(self) -> None:
        """The control plane is gone; so, here, are the agents' connections."""
        await self._workers.aclose()
        self.hosts.clear()
        self._reported.clear()

    async def starts_again(self) -> None:
        self.platform.forget()
        for queue, settings in self._served.items():
            await self._work(queue, **settings)

    async def _work(self, queue: str, **settings: Any) -> None:
        if queue in (names.control_queue(self.name), names.planner_queue(self.name)):
            self._served[queue] = settings
        await super()._work(queue, **settings)
