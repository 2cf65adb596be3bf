"""A cloud and existing machines under one autoscaler: an outage of one part, and what goes on in
the other meanwhile.
"""

from collections.abc import AsyncIterator

import pytest
from temporalio.testing import WorkflowEnvironment

from iris.model.slice.provisioning import DeleteResult, FleetListing, SliceObservation, SliceRequest
from iris.model.slice.scale_groups import is_gcp_zone
from iris.platforms.base import Platform, Unavailable
from iris.platforms.mixed import MixedPlatform
from tests.builders import demands, some
from tests.fleet_harness import EAGER, HOUR, MINUTE, FleetCluster, PlayedFleet, PlayedSlices
from tests.fleet_played import TenantNotifier
from tests.harness import Notifier, time_skipping_cluster
from tests.scaling_world import A, a_cpu_group

pytestmark = pytest.mark.long

LAB = "lab-a"


class Part:
    """A part of the fake cloud that answers for itself: the slices of its zones."""

    def __init__(self, whole: Platform, *, cloud: bool) -> None:
        self._whole = whole
        self._cloud = cloud
        self.away = ""

    async def create_slice(self, request: SliceRequest) -> SliceObservation:
        self._check()
        return await self._whole.create_slice(request)

    async def describe_slice(self, slice_id: str, zone: str) -> SliceObservation | None:
        self._check()
        return await self._whole.describe_slice(slice_id, zone)

    async def last_output(self, slice_id: str, zone: str) -> str:
        self._check()
        return await self._whole.last_output(slice_id, zone)

    async def delete_slice(self, slice_id: str, zone: str) -> DeleteResult:
        self._check()
        return await self._whole.delete_slice(slice_id, zone)

    async def list_slices(self) -> FleetListing:
        self._check()
        found = (await self._whole.list_slices()).slices
        return FleetListing(
            slices=tuple(each for each in found if is_gcp_zone(each.zone) == self._cloud)
        )

    def _check(self) -> None:
        if self.away:
            raise Unavailable(self.away)


class MixedFleet(FleetCluster):
    """The fake cloud, divided."""

    def __init__(
        self,
        env: WorkflowEnvironment,
        name: str = "trial",
        notifier: type[Notifier] = TenantNotifier,
    ) -> None:
        super().__init__(env, name, notifier)
        self.cloud, self.machines = (
            Part(self.platform, cloud=True),
            Part(self.platform, cloud=False),
        )
        served = MixedPlatform(self.cloud, self.machines, [LAB], is_gcp_zone)
        self.fleet, self.slices = PlayedFleet(self, self.lister, served), PlayedSlices(self, served)

    def of(self, group: str) -> list[str]:
        """The slices of the group that have machines."""
        return [
            each
            for each in self.platform.alive
            if self.platform.machines[each].request.group.name == group
        ]


@pytest.fixture
async def fleet() -> AsyncIterator[MixedFleet]:
    async with time_skipping_cluster(MixedFleet, TenantNotifier) as fleet:
        yield fleet
        await fleet.audit()
        await fleet.replay()


@pytest.mark.parametrize(("away", "there"), [("cloud", "lab"), ("lab", "cloud")])
async def test_an_outage_of_one_part_leaves_the_other_working(
    fleet: MixedFleet, away: str, there: str
) -> None:
    """What is known there is replaced and added; what is unknown is neither given up nor requested
    again.
    """
    groups = [
        a_cpu_group(name, zones=(zone,), min_slices=1, pace=EAGER)
        for name, zone in (("cloud", A), ("lab", LAB))
    ]
    await fleet.scale(*groups, observe_interval=MINUTE)
    await fleet.comes_true(lambda: fleet.has(2))
    (kept,), (lost,) = fleet.of(away), fleet.of(there)
    (fleet.cloud if away == "cloud" else fleet.machines).away = "an outage"
    await fleet.later(5 * MINUTE)

    await fleet.platform.vanish(lost)
    await fleet.comes_true(lambda: fleet.of(there) not in ([], [lost]))
    await fleet.comes_true(lambda: fleet.has(2))
    for _ in range(2):
        await fleet.tenant(wants=some(cpu=8), constraints=demands(f"scale-group={there}"))
    await fleet.comes_true(lambda: fleet.has(3))
    await fleet.later(HOUR)

    status = await fleet.scaling()
    assert status.unreachable == {"*" if away == "cloud" else LAB: "an outage"}
    assert fleet.of(away) == [kept]
    assert (fleet.cloud if away == "cloud" else fleet.machines).away
    fleet.cloud.away = fleet.machines.away = ""
    await fleet.later(5 * MINUTE)
    assert (await fleet.scaling()).unreachable == {}
    assert fleet.of(away) == [kept]
