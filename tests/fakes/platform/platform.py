"""Implements a platform on the simulated cloud. A test controls the cloud, for example:

fake = FakePlatform(clock, "dev")
fake.boot_delay = timedelta(minutes=3)
fake.capacity["eu-west4-a", "v5litepod-16"] = 2
await fake.create_slice(request)
await fake.preempt(request.slice_id)
fake.check()
"""

from iris.model.slice.provisioning import DeleteResult, FleetListing, SliceObservation, SliceRequest
from iris.platforms.base import MAX_OUTPUT_BYTES, BadConfig, PlatformError, Unavailable
from tests.fakes.platform.cloud import Clock, FakeCloud, Verb
from tests.fakes.platform.machines import FakeMachines


class CloudAccount:
    """One cluster's access to the simulated cloud. It cannot see slices of other clusters, slices
    of no cluster, and slices that are marked as manual.
    """

    def __init__(self, cloud: FakeCloud, cluster: str) -> None:
        self._cloud = cloud
        self._cluster = cluster

    async def create_slice(self, request: SliceRequest) -> SliceObservation:
        """Implements `Platform.create_slice`."""
        try:
            now = await self._cloud.admit(Verb.CREATE, request.zone)
            machines = self._same(request) or self._cloud.make(request, now)
        except PlatformError as error:
            await self._cloud.note_refusal(request, error)
            raise
        self._cloud.reply(Verb.CREATE)
        return machines.observed(now)

    async def describe_slice(self, slice_id: str, zone: str) -> SliceObservation | None:
        """Implements `Platform.describe_slice`."""
        now = await self._cloud.admit(Verb.DESCRIBE, zone)
        machines = self._mine(slice_id, zone)
        self._cloud.reply(Verb.DESCRIBE)
        return machines.observed(now) if machines else None

    async def last_output(self, slice_id: str, zone: str) -> str:
        """Implements `Platform.last_output`."""
        await self._cloud.admit(Verb.DESCRIBE, zone)
        machines = self._mine(slice_id, zone)
        self._cloud.reply(Verb.DESCRIBE)
        return self._cloud.console_of(machines.request)[-MAX_OUTPUT_BYTES:] if machines else ""

    async def delete_slice(self, slice_id: str, zone: str) -> DeleteResult:
        """Implements `Platform.delete_slice`."""
        now = await self._cloud.admit(Verb.DELETE, zone)
        machines = self._mine(slice_id, zone)
        gone = machines is None or self._cloud.remove(machines, now)
        self._cloud.reply(Verb.DELETE)
        if machines is None and slice_id in self._cloud.machines:
            return DeleteResult.LEFT
        return DeleteResult.GONE if gone else DeleteResult.GOING

    async def list_slices(self) -> FleetListing:
        """Implements `Platform.list_slices`."""
        now = await self._cloud.admit(Verb.LIST)
        unreachable = dict(self._cloud.unreachable)
        seen = tuple(
            each.observed(now)
            for each in self._cloud.machines.values()
            if self._owns(each) and each.request.zone not in unreachable and now >= each.listed_at
        )
        self._cloud.reply(Verb.LIST)
        return FleetListing(slices=seen, unreachable=unreachable)

    def _owns(self, machines: FakeMachines) -> bool:
        return machines.request.cluster == self._cluster and not machines.manual

    def _mine(self, slice_id: str, zone: str) -> FakeMachines | None:
        machines = self._cloud.machines.get(slice_id)
        return (
            machines
            if machines and self._owns(machines) and machines.request.zone == zone
            else None
        )

    def _same(self, request: SliceRequest) -> FakeMachines | None:
        """Returns the machines that an earlier call with this request created."""
        if request.cluster != self._cluster:
            raise BadConfig(
                f"cannot create a slice of cluster {request.cluster!r}: this platform serves"
                f" cluster {self._cluster!r}"
            )
        there = self._cloud.machines.get(request.slice_id)
        if there is None:
            return None
        if not self._owns(there) or (there.request.token, there.request.zone) != (
            request.token,
            request.zone,
        ):
            raise BadConfig(f"{request.slice_id} already exists and was created by another request")
        if there.gone_at is not None:
            raise Unavailable(f"{request.slice_id} is being deleted")
        return there


class FakePlatform(FakeCloud, CloudAccount):
    """A simulated cloud together with the account of one cluster. `CloudAccount(fake, "other")`
    gives the account of another cluster.
    """

    def __init__(self, clock: Clock, cluster: str = "local") -> None:
        FakeCloud.__init__(self, clock)
        CloudAccount.__init__(self, self, cluster)
