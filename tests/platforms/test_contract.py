"""The contract that every platform fulfils."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from iris.model.slice.provisioning import DeleteResult, MachineState, SliceObservation
from iris.platforms.base import MAX_OUTPUT_BYTES, BadConfig, Platform, Unavailable
from tests.platforms.worlds import (
    GCP_KINDS,
    FakeWorld,
    GcpWorld,
    LocalWorld,
    ManualWorld,
    MixedWorld,
    World,
    a_group,
    wanted,
)
from tests.sshd import Machine, machines


@pytest.fixture(scope="module")
def pool(
    sshd: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[list[Machine], Path]]:
    """Two machines over SSH, and their known keys."""
    directory = tmp_path_factory.mktemp("machines")
    with machines(directory, 2) as found:
        yield found, directory / "known_hosts"


@pytest.fixture(params=["fake", "local", "manual", "mixed-cloud", "mixed-machines", *GCP_KINDS])
async def cold(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A world in which no machine comes up yet."""
    world: World
    match request.param:
        case "fake":
            world = FakeWorld()
        case "local":
            world = LocalWorld(tmp_path)
        case "manual":
            world = ManualWorld(*request.getfixturevalue("pool"))
        case "mixed-cloud" | "mixed-machines":
            world = MixedWorld(tmp_path, request.param.removeprefix("mixed-"))
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


async def test_create_returns_before_the_machines_exist(cold: World, platform: Platform) -> None:
    """Callers poll for the machines; a call that waits would be lost with the control plane that
    made it.
    """
    request = wanted()
    seen = await platform.create_slice(request)

    assert seen.state is MachineState.CREATING
    assert await state_of(platform, request.slice_id) is MachineState.CREATING
    assert (await listed(platform))[request.slice_id].state is MachineState.CREATING


async def test_requested_machines_start(world: World, platform: Platform) -> None:
    """Both describe and list show it."""
    request = wanted()
    await platform.create_slice(request)

    async def active() -> bool:
        return await state_of(platform, request.slice_id) is MachineState.ACTIVE

    await world.until(active)
    assert (await listed(platform))[request.slice_id].state is MachineState.ACTIVE


async def test_an_observation_has_the_fields_of_the_request(platform: Platform) -> None:
    """A control plane that lost its state recognises and adopts the slice by zone, group and
    token.
    """
    request = wanted(zone="west4-b")
    created = await platform.create_slice(request)

    for seen in (
        created,
        await platform.describe_slice(request.slice_id, "west4-b"),
        (await listed(platform))[request.slice_id],
    ):
        assert seen is not None
        assert (seen.slice_id, seen.group, seen.zone) == (request.slice_id, "v5e-16", "west4-b")
        assert (seen.token, seen.created_at is not None) == (request.token, True)


async def test_a_repeated_create_finds_the_slice_of_the_first(
    world: World, platform: Platform
) -> None:
    """The reply of the first may be lost; a request must never create two slices."""
    request = wanted()
    first = await platform.create_slice(request)
    again = await platform.create_slice(request)

    async def active() -> bool:
        return (await platform.create_slice(request)).state is MachineState.ACTIVE

    await world.until(active)
    assert again == first
    assert list(await listed(platform)) == [request.slice_id]


async def test_concurrent_creates_create_one_slice(cold: World) -> None:
    """An activity that timed out may still run when another process retries it."""
    request = wanted()
    seen = await asyncio.gather(*(cold.platform().create_slice(request) for _ in range(8)))

    assert {each.slice_id for each in seen} == {request.slice_id}
    assert len((await cold.platform().list_slices()).slices) == 1


async def test_an_id_that_another_request_has_taken_is_refused(platform: Platform) -> None:
    """Iris would later delete the adopted machines of another owner."""
    request = wanted()
    await platform.create_slice(request)

    with pytest.raises(BadConfig, match="already exists"):
        await platform.create_slice(wanted(token="another"))

    assert (await listed(platform))[request.slice_id].token == request.token


async def test_an_unknown_slice_is_none_and_counts_as_deleted(
    world: World, platform: Platform
) -> None:
    """Callers repeat a delete until nothing is left, also without knowing whether the slice
    exists.
    """
    assert await platform.describe_slice("nowhere", "west4-a") is None
    assert await platform.delete_slice("nowhere", "west4-a") is not DeleteResult.GOING
    assert (await platform.list_slices()).slices == ()


async def test_last_output_is_short_and_only_of_existing_machines(
    world: World, platform: Platform
) -> None:
    """A slice's history contains it; a call without machines is not an error."""
    request = wanted()
    await platform.create_slice(request)

    assert (
        len((await platform.last_output(request.slice_id, request.zone)).encode())
        <= MAX_OUTPUT_BYTES
    )
    assert await platform.last_output("nowhere", "west4-a") == ""


@pytest.mark.parametrize("up", [False, True])
async def test_a_delete_is_going_until_it_is_gone(
    world: World, platform: Platform, up: bool
) -> None:
    """Also for a slice that was just requested. It is visible while GOING, then never again."""
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


async def test_a_slice_without_machines_can_be_deleted(cold: World, platform: Platform) -> None:
    """A boot timeout deletes such slices."""
    request = wanted()
    await platform.create_slice(request)
    await platform.delete_slice(request.slice_id, request.zone)
    await cold.power_on()

    async def gone() -> bool:
        return await platform.delete_slice(request.slice_id, request.zone) is DeleteResult.GONE

    await cold.until(gone)
    assert await listed(platform) == {}


async def test_an_id_is_not_reused_during_its_deletion(world: World, platform: Platform) -> None:
    """A caller would adopt machines that are about to disappear; later the id is free."""
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
    """Also if one id is the prefix of another."""
    cpu = a_group(
        "cpu", hosts=1, resources=wanted().group.resources.model_copy(update={"device": None})
    )
    await platform.create_slice(wanted("dev-cpu-1", cpu))
    await platform.create_slice(wanted("dev-cpu-1-w-0", cpu))

    async def gone() -> bool:
        return await platform.delete_slice("dev-cpu-1", "west4-a") is DeleteResult.GONE

    await world.until(gone)
    assert set(await listed(platform)) == {"dev-cpu-1-w-0"}
    await platform.create_slice(wanted("dev-cpu-10", cpu))
    assert await platform.delete_slice("dev-cpu-1", "west4-a") is not DeleteResult.GOING
    assert set(await listed(platform)) == {"dev-cpu-1-w-0", "dev-cpu-10"}
    assert await state_of(platform, "dev-cpu-10") in (MachineState.CREATING, MachineState.ACTIVE)


async def test_a_new_process_finds_all_slices(world: World) -> None:
    """The previous process may have died between the call and its record of the reply."""
    before = world.platform()
    created = {each: await before.create_slice(wanted(each)) for each in ("one", "two")}
    after = world.platform()
    there = await listed(after)

    assert {name: seen.created_at for name, seen in there.items()} == {
        name: seen.created_at for name, seen in created.items()
    }
    assert (await after.create_slice(wanted("two"))).created_at == created["two"].created_at

    async def gone() -> bool:
        return await after.delete_slice("one", "west4-a") is DeleteResult.GONE

    await world.until(gone)
    assert await before.describe_slice("one", "west4-a") is None


async def test_clusters_do_not_see_each_other(world: World) -> None:
    """A cluster would delete the other's slices as leftovers."""
    mine, others = world.platform("dev"), world.platform("other")
    await mine.create_slice(wanted("mine"))
    await others.create_slice(wanted("theirs", cluster="other"))

    assert (set(await listed(mine)), set(await listed(others))) == ({"mine"}, {"theirs"})
    assert await mine.describe_slice("theirs", "west4-a") is None
    assert await mine.delete_slice("theirs", "west4-a") is not DeleteResult.GOING
    assert await state_of(others, "theirs") in (MachineState.CREATING, MachineState.ACTIVE)
