"""A cloud and machines in one cluster: whatever happens to one of them, the slices of the other
stay visible and usable.
"""

import asyncio
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.model.slice.provisioning import (
    ANYWHERE,
    DeleteResult,
    FleetListing,
    MachineState,
    SliceObservation,
)
from iris.model.slice.scale_groups import is_gcp_zone
from iris.platforms.base import BadConfig, PlatformError, RateLimited, Unavailable
from iris.platforms.mixed import MixedPlatform, joined
from tests.builders import NOON
from tests.fakes.platform.cloud import SettableClock, Verb
from tests.fakes.platform.platform import FakePlatform
from tests.platforms.worlds import a_group, wanted
from tests.strategies import CHEAP

CLOUD_ZONES, MACHINE_ZONES = ("europe-west4-a", "europe-west4-b"), ("lab-a", "manual-a")
CLOUD = wanted("in-cloud", a_group("tpus", zones=CLOUD_ZONES))
MACHINE = wanted("on-machine", a_group("lab", zones=MACHINE_ZONES))
BOTH = {CLOUD.slice_id, MACHINE.slice_id}


class Parts:
    """A cluster with a slice in each part."""

    def __init__(self) -> None:
        clock = SettableClock(NOON)
        self.cloud, self.machines = FakePlatform(clock, "dev"), FakePlatform(clock, "dev")
        limit = timedelta(seconds=0.2)
        self.platform = MixedPlatform(self.cloud, self.machines, MACHINE_ZONES, is_gcp_zone, limit)

    async def create(self) -> "Parts":
        for request in (CLOUD, MACHINE):
            await self.platform.create_slice(request)
        return self


@pytest.fixture
async def parts() -> Parts:
    return await Parts().create()


def ids(listing: FleetListing) -> set[str]:
    return {each.slice_id for each in listing.slices}


async def test_each_slice_is_in_the_part_that_has_its_zone(parts: Parts) -> None:
    """A call in the wrong part would find nothing there, and nothing counts as deleted."""
    assert (parts.cloud.alive, parts.machines.alive) == ([CLOUD.slice_id], [MACHINE.slice_id])
    assert ids(await parts.platform.list_slices()) == BOTH

    await parts.platform.delete_slice(CLOUD.slice_id, CLOUD.zone)

    assert parts.cloud.deleted == [CLOUD.slice_id]
    assert parts.machines.deleted == []


async def test_a_cloud_that_cannot_be_listed_leaves_the_machines_known(parts: Parts) -> None:
    """Its own slices are unknown wherever they are, and none of them is gone."""
    parts.cloud.fail_next(Verb.LIST, Unavailable("no answer from Google Cloud"))

    listing = await parts.platform.list_slices()

    assert ids(listing) == {MACHINE.slice_id}
    assert listing.unreachable == {ANYWHERE: "no answer from Google Cloud"}
    assert [listing.knows(zone) for zone in (*CLOUD_ZONES, "us-east5-c")] == [False, False, False]
    assert [listing.knows(zone) for zone in MACHINE_ZONES] == [True, True]


async def test_machines_that_cannot_be_listed_leave_the_cloud_known(parts: Parts) -> None:
    """Only their own zones are unknown."""
    parts.machines.fail_next(Verb.LIST, Unavailable("10.0.0.1: port 22 is not reached"))

    listing = await parts.platform.list_slices()

    assert ids(listing) == {CLOUD.slice_id}
    assert listing.unreachable == dict.fromkeys(MACHINE_ZONES, "10.0.0.1: port 22 is not reached")
    assert listing.knows("europe-west4-b")


@pytest.mark.parametrize("broken", ["cloud", "machines"])
async def test_a_part_that_hangs_or_fails_does_not_delay_the_other(
    parts: Parts, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An observation waits ten seconds for everything, and a fault in one part's code is not the
    other's.
    """

    async def hang() -> FleetListing:
        await asyncio.Event().wait()
        raise AssertionError

    async def fail() -> FleetListing:
        raise ZeroDivisionError("a fault")

    other = MACHINE.slice_id if broken == "cloud" else CLOUD.slice_id
    for how, why in ((hang, "not listed within 0.2 s"), (fail, "ZeroDivisionError('a fault')")):
        monkeypatch.setattr(getattr(parts, broken), "list_slices", how)
        listing = await parts.platform.list_slices()
        assert ids(listing) == {other}
        assert set(listing.unreachable.values()) == {why}


async def test_nothing_is_known_if_neither_part_can_be_listed(parts: Parts) -> None:
    """The message has both reasons."""
    parts.cloud.fail_next(Verb.LIST, Unavailable("no cloud"))
    parts.machines.fail_next(Verb.LIST, RateLimited("no machines"))

    with pytest.raises(Unavailable, match="no cloud; no machines"):
        await parts.platform.list_slices()


@pytest.mark.parametrize("broken", ["cloud", "machines"])
async def test_one_part_grows_and_shrinks_while_every_call_of_the_other_fails(
    parts: Parts, broken: str
) -> None:
    """An outage of the cloud does not keep a lab from its own machines, and the other way round."""
    there, request = (CLOUD, MACHINE) if broken == "cloud" else (MACHINE, CLOUD)
    for verb in Verb:
        getattr(parts, broken).fail_next(verb, Unavailable("an outage"), times=9)
    another = request.model_copy(update={"slice_id": f"{request.slice_id}-2", "token": "2"})

    await parts.platform.create_slice(another)
    assert await parts.platform.describe_slice(another.slice_id, another.zone) is not None
    await parts.platform.delete_slice(another.slice_id, another.zone)

    assert await parts.platform.delete_slice(another.slice_id, another.zone) is DeleteResult.GONE
    with pytest.raises(Unavailable, match="an outage"):
        await parts.platform.delete_slice(there.slice_id, there.zone)


ZONES = st.sampled_from([*CLOUD_ZONES, *MACHINE_ZONES])
FAULTS = st.sampled_from([None, Unavailable("away"), RateLimited("busy"), BadConfig("refused")])


@given(cloud=FAULTS, machines=FAULTS, silent=st.sets(ZONES))
@CHEAP
def test_no_slice_counts_as_gone_while_its_part_is_not_completely_listed(
    cloud: PlatformError | None, machines: PlatformError | None, silent: set[str]
) -> None:
    """Whatever fails: a slice that exists is in the list, or its zone is unknown. And a part that
    is listed is known.
    """

    async def run() -> None:
        parts = await Parts().create()
        for part, error, zones in (
            (parts.cloud, cloud, CLOUD_ZONES),
            (parts.machines, machines, MACHINE_ZONES),
        ):
            part.unreachable = {zone: "backend error" for zone in zones if zone in silent}
            if error is not None:
                part.fail_next(Verb.LIST, error)
        if cloud is not None and machines is not None:
            with pytest.raises(Unavailable):
                await parts.platform.list_slices()
            return
        listing = await parts.platform.list_slices()
        for request, error in ((CLOUD, cloud), (MACHINE, machines)):
            known = error is None and request.zone not in silent
            assert listing.knows(request.zone) == known == (request.slice_id in ids(listing))

    asyncio.run(run())


def test_zones_of_the_cloud_that_it_cannot_list_are_named_beside_those_of_machines() -> None:
    """The status shows all of them."""
    seen = SliceObservation(slice_id="s", group="g", zone="lab-a", state=MachineState.ACTIVE)
    cloud = FleetListing(unreachable={"europe-west4-a": "backend error"})
    machines = FleetListing(slices=(seen,), unreachable={"manual-a": "10.0.0.1: did not answer"})

    listing = joined(cloud, machines, MACHINE_ZONES)

    assert listing.slices == (seen,)
    assert listing.unreachable == {
        "europe-west4-a": "backend error",
        "manual-a": "10.0.0.1: did not answer",
    }
    assert [listing.knows(zone) for zone in (*CLOUD_ZONES, *MACHINE_ZONES)] == [
        False,
        True,
        True,
        False,
    ]
