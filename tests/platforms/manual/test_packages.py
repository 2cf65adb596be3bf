"""What machines over SSH do when the packages of their agents are missing, broken or old, against
real `sshd` processes.
"""

import asyncio
import errno
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from iris.model import names
from iris.model.slice.provisioning import DeleteResult, MachineState
from iris.platforms.base import Unavailable
from iris.platforms.manual.connections import Connections
from iris.platforms.manual.keeper import HostKeeper
from iris.platforms.manual.platform import ManualPlatform
from iris.platforms.manual.runtime import Runtime
from tests.platforms.worlds import MANUAL_KIND, ManualWorld, a_group, no_packages, sleeping, wanted
from tests.sshd import Machine, machines

REQUEST = wanted(group=a_group(**MANUAL_KIND))


@pytest.fixture
def lab(sshd: None, tmp_path: Path) -> Iterator[list[Machine]]:
    """One machine."""
    with machines(tmp_path, 1, first=21) as found:
        yield found


@pytest.fixture
async def world(lab: list[Machine], tmp_path: Path) -> AsyncIterator[ManualWorld]:
    world = ManualWorld(lab, tmp_path / "known_hosts")
    yield world
    for each in world._connections.values():
        await each.close()


async def _is_gone(platform: ManualPlatform) -> bool:
    return await platform.delete_slice(REQUEST.slice_id, REQUEST.zone) is DeleteResult.GONE


def kept(world: ManualWorld, pack: Callable[[], Runtime]) -> tuple[HostKeeper, ManualPlatform]:
    """A keeper with these packages, and the platform that tells it of slices."""
    settings = world.settings()
    connections = world._connections[f"kept {len(world._connections)}"] = Connections(
        settings, keep=True
    )
    keeper = HostKeeper(settings, connections, pack, command=sleeping)
    return keeper, ManualPlatform(
        settings, connections, attend=keeper.attend, fault_of=keeper.fault_of, avoid=keeper.avoid
    )


async def sight(ours: ManualPlatform) -> tuple[MachineState, str]:
    """State and reason of the only slice."""
    (seen,) = (await ours.list_slices()).slices
    return seen.state, seen.reason


async def test_a_control_plane_that_cannot_pack_the_packages_says_so_until_it_can(
    world: ManualWorld, lab: list[Machine], tmp_path: Path
) -> None:
    """Its disk is full, for example. The slice waits, because the next try may succeed, and its
    user knows for what.
    """
    full = [True]

    def pack() -> Runtime:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return no_packages(tmp_path)

    keeper, ours = kept(world, pack)
    async with keeper.serving():
        await ours.create_slice(REQUEST)
        why = (
            f"{lab[0].address}: the control plane could not pack the agent's packages: [Errno 28]"
            " No space left on device"
        )

        async def is_told() -> bool:
            return await sight(ours) == (MachineState.CREATING, why)

        await world.until(is_told)
        full.clear()

        async def starts() -> bool:
            return await sight(ours) == (MachineState.ACTIVE, "")

        await world.until(starts)


def installed(machine: Machine) -> str:
    """The digest of the packages on a machine."""
    return next(
        (each.read_text().strip() for each in machine.home.glob(".iris-*/*/runtime/digest")), ""
    )


async def test_a_slice_can_be_deleted_on_a_machine_whose_python_is_gone(
    world: ManualWorld, lab: list[Machine], tmp_path: Path
) -> None:
    """An upgrade of the system replaces it. The program of a job is killed nevertheless, and
    nothing is left.
    """
    keeper, ours = kept(world, lambda: no_packages(tmp_path))
    async with keeper.serving():
        await ours.create_slice(REQUEST)
        await world.until(lambda: list(lab[0].home.glob(".iris-*/*/agent.pid")))
    (home,) = lab[0].home.glob(".iris-*/*")
    (home / "agent").mkdir()
    (home / "runtime/bin/python").unlink()
    environment = {**os.environ, names.ENV_HOST_ID: REQUEST.slice_id}
    program = await asyncio.create_subprocess_exec("sleep", "1000", env=environment)
    await world.until(partial(_is_gone, ours))
    assert await program.wait() == -signal.SIGKILL
    assert lab[0].left() == []


async def test_a_removal_that_fails_says_why(
    world: ManualWorld, lab: list[Machine], tmp_path: Path
) -> None:
    """These packages have no module that removes what jobs have left."""
    keeper, ours = kept(world, lambda: no_packages(tmp_path))
    async with keeper.serving():
        await ours.create_slice(REQUEST)
        await world.until(lambda: list(lab[0].home.glob(".iris-*/*/agent.pid")))
    (home,) = lab[0].home.glob(".iris-*/*")
    (home / "agent").mkdir()
    await ours.delete_slice(REQUEST.slice_id, REQUEST.zone)

    async def why() -> str:
        try:
            await ours.delete_slice(REQUEST.slice_id, REQUEST.zone)
        except Unavailable as error:
            return str(error)
        return ""

    said = await world.until(why)
    assert "what jobs have left could not be removed: " in said
    assert "No module named 'iris" in said
    (home / "agent").rmdir()
    await world.until(partial(_is_gone, ours))


@pytest.mark.long
async def test_an_agent_whose_python_is_gone_gets_its_packages_again(
    world: ManualWorld, lab: list[Machine], tmp_path: Path
) -> None:
    """It would end at its next import. The machine offers another Python of the version, with which
    they are installed.
    """
    keeper, ours = kept(world, lambda: no_packages(tmp_path))
    async with keeper.serving():
        await ours.create_slice(REQUEST)
        (record,) = await world.until(lambda: list(lab[0].home.glob(".iris-*/*/agent.pid")))
        before = record.read_text()
        python = record.parent / "runtime/bin/python"
        python.unlink()
        await world.until(lambda: python.exists() and record.read_text() not in ("", before))
    await world.until(partial(_is_gone, ours))
    assert lab[0].left() == []


@pytest.mark.long
async def test_agents_get_the_packages_of_a_control_plane_that_is_newer(
    world: ManualWorld, lab: list[Machine], tmp_path: Path
) -> None:
    """Else a fault that is mended stays on each machine for as long as its slice lives. The
    programs wait for the next agent.
    """
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    old, new = no_packages(tmp_path / "old"), no_packages(tmp_path / "new", "note")
    keeper, ours = kept(world, lambda: old)
    async with keeper.serving():
        await ours.create_slice(REQUEST)
        (record,) = await world.until(lambda: list(lab[0].home.glob(".iris-*/*/agent.pid")))
    first = record.read_text()
    newer, ours = kept(world, lambda: new)
    async with newer.serving():
        assert len((await ours.list_slices()).slices) == 1
        await world.until(
            lambda: installed(lab[0]) == new.digest and record.read_text() not in ("", first)
        )
        assert (record.parent / "runtime/note").exists()
        assert int(first.split()[0]) not in [each.pid for each in lab[0].processes()]
    await world.until(partial(_is_gone, ours))
    assert lab[0].left() == []
