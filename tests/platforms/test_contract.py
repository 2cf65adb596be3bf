"""What every platform promises, whatever is behind it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from iris.model.provisioning import DeleteResult, MachineState, SliceObservation
from iris.platforms.base import MAX_OUTPUT_BYTES, BadConfig, Platform, Unavailable
from tests.platforms.worlds import GCP_KINDS, FakeWorld, GcpWorld, LocalWorld, World, a_group, wanted


@pytest.fixture(params=["fake", "local", *GCP_KINDS])
async def cold(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A world in which no machine comes up yet."""
    world: World
    match request.param:
        case "fake":
            world = FakeWorld()
        case "local":
            world = LocalWorld(tmp_path)
        case kind:
            world = GcpWorld(request.getfixturevalue("google"), kind)
    yield world
    await world.power_off()


@pytest.fixture
async def world(cold: World) -> World:
    """A world in which machines come and go."""
    await cold.power_on()
    return cold


@pytest.fixture
def platform(cold: World) -> Platform:
    return cold.platform()


async def state_of(platform: Platform, slice_id: str, zone: str = "west4-a") -> MachineState | None:
    seen = await platform.describe_slice(slice_id, zone)
    return seen and seen.state


async def listed(platform: Platform) -> dict[str, SliceObservation]:
    return {each.slice_id: each for each in (await platform.list_slices()).slices}


async def test_a_create_returns_before_there_are_machines(cold: World, platform: Platform) -> None:
    """Whoever waits for machines does so by looking; a call that waits would be lost with the control plane that made it."""
    request = wanted()
    seen = await platform.create_slice(request)

    assert seen.state is MachineState.CREATING
    assert await state_of(platform, request.slice_id) is MachineState.CREATING
    assert (await listed(platform))[request.slice_id].state is MachineState.CREATING


async def test_machines_that_were_asked_for_come_up(world: World, platform: Platform) -> None:
    """The platform says so by itself, in its list too."""
    request = wanted()
    await platform.create_slice(request)

    async def active() -> bool:
        return await state_of(platform, request.slice_id) is MachineState.ACTIVE

    await world.until(active)
    assert (await listed(platform))[request.slice_id].state is MachineState.ACTIVE


async def test_a_slice_is_told_as_it_was_asked_for(platform: Platform) -> None:
    """The zone, the group and the token are how a slice that was lost sight of is recognised and adopted."""
    request = wanted(zone="west4-b")
    created = await platform.create_slice(request)

    for seen in (created, await platform.describe_slice(request.slice_id, "west4-b"), (await listed(platform))[request.slice_id]):
        assert seen is not None
        assert (seen.slice_id, seen.group, seen.zone) == (request.slice_id, "v5e-16", "west4-b")
        assert (seen.token, seen.created_at is not None) == (request.token, True)


async def test_a_create_that_is_said_again_finds_what_the_first_has_made(world: World, platform: Platform) -> None:
    """Its reply may have been lost; two slices for one wish would be one too many."""
    request = wanted()
    first = await platform.create_slice(request)
    again = await platform.create_slice(request)

    async def active() -> bool:
        return (await platform.create_slice(request)).state is MachineState.ACTIVE

    await world.until(active)
    assert again == first
    assert list(await listed(platform)) == [request.slice_id]


async def test_creates_at_once_make_one_slice(cold: World) -> None:
    """An activity that timed out may still run when it is tried again, in another process."""
    request = wanted()
    seen = await asyncio.gather(*(cold.platform().create_slice(request) for _ in range(8)))

    assert {each.slice_id for each in seen} == {request.slice_id}
    assert len((await cold.platform().list_slices()).slices) == 1


async def test_an_id_that_another_request_has_taken_is_refused(platform: Platform) -> None:
    """To adopt a stranger's machines would be to delete them some day."""
    request = wanted()
    await platform.create_slice(request)

    with pytest.raises(BadConfig, match="already exists"):
        await platform.create_slice(wanted(token="another"))

    assert (await listed(platform))[request.slice_id].token == request.token


async def test_what_is_unknown_is_none_and_as_good_as_deleted(world: World, platform: Platform) -> None:
    """Deleting is repeated until nothing is left, also by those who do not know that nothing is."""
    assert await platform.describe_slice("nowhere", "west4-a") is None
    assert await platform.delete_slice("nowhere", "west4-a") is DeleteResult.GONE
    assert (await platform.list_slices()).slices == ()


async def test_last_words_are_text_that_is_short_and_of_machines_that_are_there(world: World, platform: Platform) -> None:
    """They stand in a slice's history; and to ask for them is never wrong."""
    request = wanted()
    await platform.create_slice(request)

    assert len((await platform.last_output(request.slice_id, request.zone)).encode()) <= MAX_OUTPUT_BYTES
    assert await platform.last_output("nowhere", "west4-a") == ""


@pytest.mark.parametrize("up", [False, True])
async def test_a_delete_is_going_until_it_is_gone(world: World, platform: Platform, up: bool) -> None:
    """Also of what has just been asked for. While it goes it is seen, afterwards it is not, and never does it come back."""
    request = wanted()
    await platform.create_slice(request)

    async def active() -> bool:
        return await state_of(platform, request.slice_id) is MachineState.ACTIVE

    if up:
        await world.until(active)

    assert await platform.delete_slice(request.slice_id, request.zone) is DeleteResult.GOING
    assert await state_of(platform, request.slice_id) is MachineState.DELETING
    assert (await listed(platform))[request.slice_id].state is MachineState.DELETING
    seen: list[MachineState | None] = []

    async def gone() -> bool:
        seen.append(await state_of(platform, request.slice_id))
        return await platform.delete_slice(request.slice_id, request.zone) is DeleteResult.GONE

    await world.until(gone)
    assert set(seen) <= {MachineState.DELETING, None}
    assert await state_of(platform, request.slice_id) is None
    assert await listed(platform) == {}


async def test_a_slice_whose_machines_never_came_can_be_deleted(cold: World, platform: Platform) -> None:
    """Boot deadlines exist for those."""
    request = wanted()
    await platform.create_slice(request)
    await platform.delete_slice(request.slice_id, request.zone)
    await cold.power_on()

    async def gone() -> bool:
        return await platform.delete_slice(request.slice_id, request.zone) is DeleteResult.GONE

    await cold.until(gone)
    assert await listed(platform) == {}


async def test_what_is_being_deleted_is_not_created_again_under_the_same_id(world: World, platform: Platform) -> None:
    """It would be given away under a name by which it is about to be taken; later the name is free."""
    request = wanted()
    await platform.create_slice(request)
    await platform.delete_slice(request.slice_id, request.zone)

    with pytest.raises(Unavailable, match="being deleted"):
        await platform.create_slice(request)

    async def gone() -> bool:
        return await platform.delete_slice(request.slice_id, request.zone) is DeleteResult.GONE

    await world.until(gone)
    assert (await platform.create_slice(request)).state is MachineState.CREATING


async def test_deleting_one_slice_leaves_the_others(world: World, platform: Platform) -> None:
    """And every slice keeps its name, even one that is the beginning of another's."""
    cpu = a_group("cpu", hosts=1, resources=wanted().group.resources.model_copy(update={"device": None}))
    ids = ["dev-cpu-1", "dev-cpu-1-w-0", "dev-cpu-10"]
    for slice_id in ids:
        await platform.create_slice(wanted(slice_id, cpu))

    async def gone() -> bool:
        return await platform.delete_slice("dev-cpu-1", "west4-a") is DeleteResult.GONE

    await world.until(gone)
    assert set(await listed(platform)) == set(ids[1:])
    assert await state_of(platform, "dev-cpu-10") in (MachineState.CREATING, MachineState.ACTIVE)


async def test_a_control_plane_that_starts_finds_everything(world: World) -> None:
    """What the one before it knew is not in any process: it may have died between the call and writing down the answer."""
    before = world.platform()
    created = {each: await before.create_slice(wanted(each)) for each in ("one", "two", "three")}
    after = world.platform()
    there = await listed(after)

    assert {name: seen.created_at for name, seen in there.items()} == {name: seen.created_at for name, seen in created.items()}
    assert (await after.create_slice(wanted("two"))).created_at == created["two"].created_at

    async def gone() -> bool:
        return await after.delete_slice("one", "west4-a") is DeleteResult.GONE

    await world.until(gone)
    assert await before.describe_slice("one", "west4-a") is None


async def test_clusters_do_not_see_each_other(world: World) -> None:
    """What one of them does not know it would delete as a leftover."""
    mine, others = world.platform("dev"), world.platform("other")
    await mine.create_slice(wanted("mine"))
    await others.create_slice(wanted("theirs", cluster="other"))

    assert (set(await listed(mine)), set(await listed(others))) == ({"mine"}, {"theirs"})
    assert await mine.describe_slice("theirs", "west4-a") is None
    assert await mine.delete_slice("theirs", "west4-a") is DeleteResult.GONE
    assert await state_of(others, "theirs") in (MachineState.CREATING, MachineState.ACTIVE)
