"""A platform of which tests own the other side: a cloud in memory that misbehaves on command.

fake = FakePlatform(clock, "dev")
fake.boot_delay = timedelta(minutes=3)
fake.capacity["eu-west4-a", "v5litepod-16"] = 2
await fake.create_slice(request)
await fake.preempt(request.slice_id)
fake.check()
"""

from iris.machines import DeleteResult, FleetListing, SliceObservation, SliceRequest
from iris.platforms.base import LAST_WORDS, BadConfig, PlatformError, Unavailable
from iris.platforms.fake_cloud import Clock, FakeCloud, Verb
from iris.platforms.fake_machines import Machines


class Account:
    """A cloud as one cluster sees it: what is another's, nobody's or marked as people's own is not there."""

    def __init__(self, cloud: FakeCloud, cluster: str) -> None:
        self._cloud = cloud
        self._cluster = cluster

    async def create_slice(self, request: SliceRequest) -> SliceObservation:
        """See `Platform`."""
        try:
            now = await self._cloud.admit(Verb.CREATE, request.zone)
            machines = self._same(request) or self._cloud.make(request, now)
        except PlatformError as error:
            await self._cloud.note_refusal(request, error)
            raise
        self._cloud.reply(Verb.CREATE)
        return machines.observed(now)

    async def describe_slice(self, slice_id: str, zone: str) -> SliceObservation | None:
        """See `Platform`."""
        now = await self._cloud.admit(Verb.DESCRIBE, zone)
        machines = self._mine(slice_id, zone)
        self._cloud.reply(Verb.DESCRIBE)
        return machines.observed(now) if machines else None

    async def last_words(self, slice_id: str, zone: str) -> str:
        """See `Platform`."""
        await self._cloud.admit(Verb.DESCRIBE, zone)
        machines = self._mine(slice_id, zone)
        self._cloud.reply(Verb.DESCRIBE)
        return self._cloud.said_by(machines.request)[-LAST_WORDS:] if machines else ""

    async def delete_slice(self, slice_id: str, zone: str) -> DeleteResult:
        """See `Platform`."""
        now = await self._cloud.admit(Verb.DELETE, zone)
        machines = self._mine(slice_id, zone)
        gone = machines is None or self._cloud.remove(machines, now)
        self._cloud.reply(Verb.DELETE)
        return DeleteResult.GONE if gone else DeleteResult.GOING

    async def list_slices(self) -> FleetListing:
        """See `Platform`."""
        now = await self._cloud.admit(Verb.LIST)
        unreachable = dict(self._cloud.unreachable)
        seen = tuple(
            each.observed(now)
            for each in self._cloud.machines.values()
            if self._owns(each) and each.request.zone not in unreachable and now >= each.listed_at
        )
        self._cloud.reply(Verb.LIST)
        return FleetListing(slices=seen, unreachable=unreachable)

    def _owns(self, machines: Machines) -> bool:
        return machines.request.cluster == self._cluster and not machines.manual

    def _mine(self, slice_id: str, zone: str) -> Machines | None:
        machines = self._cloud.machines.get(slice_id)
        return machines if machines and self._owns(machines) and machines.request.zone == zone else None

    def _same(self, request: SliceRequest) -> Machines | None:
        """What an earlier call with this request has made."""
        if request.cluster != self._cluster:
            raise BadConfig(f"a slice of cluster {request.cluster!r} is not for {self._cluster!r} to create")
        there = self._cloud.machines.get(request.slice_id)
        if there is None:
            return None
        if not self._owns(there) or (there.request.token, there.request.zone) != (request.token, request.zone):
            raise BadConfig(f"{request.slice_id} exists already, and was not made by this request")
        if there.gone_at is not None:
            raise Unavailable(f"{request.slice_id} is being deleted")
        return there


class FakePlatform(FakeCloud, Account):
    """A cloud, and the account of the one cluster that most tests have. Others get theirs with `Account(fake, "other")`."""

    def __init__(self, clock: Clock, cluster: str = "local") -> None:
        FakeCloud.__init__(self, clock)
        Account.__init__(self, self, cluster)
