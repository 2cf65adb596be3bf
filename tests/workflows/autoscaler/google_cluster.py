"""The cluster of `tests.fleet_harness` on a fake Google in the place of the platform in memory:
real workflows, a real server, the platform as it is, and agents that are played.
"""

import uuid
from collections.abc import Callable
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from temporalio import activity
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from iris.activities.control.slices import Slices
from iris.model.slice.provisioning import (
    CreateOutcome,
    DeleteResult,
    FleetListing,
    SliceObservation,
    SliceRequest,
)
from iris.platforms.gcp import labels as label_rules
from iris.platforms.gcp.platform import GcpPlatform
from tests.fakes.google.client import FakeGoogle
from tests.fakes.platform.machines import SECRET
from tests.fleet_harness import FleetCluster, PlayedFleet
from tests.harness import Notifier
from tests.platforms.gcp.requests import gcp

READY = ("READY", "RUNNING")


class OnGoogle:
    """The platform, and what the harness has to know of its machines."""

    def __init__(self, google: FakeGoogle, project: str = "", uid: str = "u-1") -> None:
        self.google = google
        self.project = project or f"p-{uuid.uuid4().hex[:12]}"
        self.uid = uid
        #: Whether a host's agent lives, by slice and worker id.
        self.agent_lives: Callable[[str, int], bool] = lambda slice_id, worker: True
        #: What was ever asked to go.
        self.unwanted: set[str] = set()
        self._requests: dict[str, SliceRequest] = {}
        self._platform = self.another()

    def another(self) -> GcpPlatform:
        """As a control plane has it that has just started."""
        endpoints = {"tpu_endpoint": self.google.tpu, "compute_endpoint": self.google.compute}
        settings = gcp(project=self.project, uid=self.uid, requests_per_minute=60_000, **endpoints)
        return GcpPlatform(settings, lambda request: "#!/bin/sh\n", secret=SECRET)

    def forget(self) -> None:
        """The control plane has died, and another one has started."""
        self._platform = self.another()

    async def create_slice(self, request: SliceRequest) -> SliceObservation:
        self._requests[request.slice_id] = request
        return await self._platform.create_slice(request)

    async def describe_slice(self, slice_id: str, zone: str) -> SliceObservation | None:
        return await self._platform.describe_slice(slice_id, zone)

    async def last_output(self, slice_id: str, zone: str) -> str:
        return await self._platform.last_output(slice_id, zone)

    async def delete_slice(self, slice_id: str, zone: str) -> DeleteResult:
        self.unwanted.add(slice_id)
        return await self._platform.delete_slice(slice_id, zone)

    async def list_slices(self) -> FleetListing:
        return await self._platform.list_slices()

    # What the harness asks.

    @property
    def machines(self) -> dict[str, Any]:
        return {
            each: SimpleNamespace(request=self._requests[each], manual=False)
            for each in self.alive
            if each in self._requests
        }

    @property
    def resources(self) -> list[dict[str, Any]]:
        """What the cluster has of Google's: the nodes of queued resources, too."""
        there = self.google.resources(self.project)
        return [
            each
            for each in there
            if not each["foreign"] and each["labels"].get(label_rules.UID) == self.uid
        ]

    @property
    def alive(self) -> list[str]:
        return sorted({each["name"] for each in self.resources})

    @property
    def created(self) -> list[str]:
        """Slices that were made, in order; a queued resource's comes twice."""
        made = [
            each
            for each in self.google.audit()
            if each["what"] == "created" and f"/{self.project}/" in each["path"]
        ]
        return [
            each["path"].rpartition("/")[2]
            for each in made
            if each["labels"].get(label_rules.UID) == self.uid
        ]

    def lived(self, slice_id: str) -> list[datetime]:
        """Nothing: the clock of the fake of Google is not that of the service."""
        return []

    def up(self, now: datetime) -> list[tuple[SliceRequest, int]]:
        ready = [each["name"] for each in self.resources if each["state"] in READY]
        return [
            (self._requests[name], worker)
            for name in ready
            if name in self._requests
            for worker in range(self._requests[name].group.hosts)
            if self.agent_lives(name, worker)
        ]

    def check(self) -> None:
        self.google.check(self.project)


class GoogleSlices(Slices):
    """The real activities. The machines that they create start later, and their agents do not
    report at once.
    """

    def __init__(self, cluster: "GoogleCluster") -> None:
        super().__init__(cluster.platform)
        self._of = cluster

    @activity.defn
    async def create_slice(self, request: SliceRequest) -> CreateOutcome:
        self._of.lister.heard_of_slices([request.slice_id])
        return await super().create_slice(request)


class GoogleCluster(FleetCluster):
    """A cluster on Google Cloud; one of several in a project, if one is named."""

    platform: Any

    def __init__(
        self,
        env: WorkflowEnvironment,
        notifier: type[Notifier],
        google: FakeGoogle,
        project: str = "",
        uid: str = "u-1",
    ) -> None:
        super().__init__(env, "dev", notifier)
        #: Whether what it does at this moment is done without anybody hearing of it.
        self.killed = False
        self.platform = OnGoogle(google, project, uid)
        self.fleet = PlayedFleet(self, self.lister)
        self.slices: Any = GoogleSlices(self)

    async def dies(self, *, at_once: bool = False) -> None:
        """The control plane is gone; so, here, are the agents' connections.

        Args:
            at_once: as by SIGKILL: what it was doing gets done at Google or not, and the server
                does not hear of it. Whoever waits for it waits until it is overdue.
        """
        self.killed = at_once
        await self.stop_serving()
        self.killed = False
        self.hosts.clear()
        self._reported.clear()

    async def starts_again(self) -> None:
        """Another control plane, which remembers nothing."""
        self.platform.forget()
        self.fleet = PlayedFleet(self, self.lister)
        await self.serve()

    async def _work(self, queue: str, **settings: Any) -> None:
        await super()._work(queue, interceptors=[_Mortality(self)], **settings)


class _Mortality(Interceptor):
    def __init__(self, cluster: GoogleCluster) -> None:
        self._cluster = cluster

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Mortal(next, self._cluster)


class _Mortal(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, cluster: GoogleCluster) -> None:
        super().__init__(next)
        self._cluster = cluster

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        try:
            return await super().execute_activity(input)
        finally:
            if self._cluster.killed and not activity.info().is_local:
                activity.raise_complete_async()  # which says nothing to the server
