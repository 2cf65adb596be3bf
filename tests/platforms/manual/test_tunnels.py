"""Tunnels from machines to the control plane, and the connections that they need, end with their
machines' slices.
"""

import asyncio
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from iris.model.slice.provisioning import DeleteResult
from iris.platforms.manual.connections import Connections
from iris.platforms.manual.keeper import HostKeeper
from iris.platforms.manual.platform import ManualPlatform
from tests.platforms.manual.test_platform import REQUEST, _is_gone
from tests.platforms.worlds import ManualWorld, no_packages, sleeping, until
from tests.sshd import Machine, machines


@pytest.fixture
def lab(sshd: None, tmp_path: Path) -> Iterator[list[Machine]]:
    """Two machines."""
    with machines(tmp_path, 2, first=33) as found:
        yield found


def _tunnel_port(machine: Machine) -> int:
    """The port of the tunnel on the machine; 0: there is none yet."""
    return next(
        (int(each.read_text() or 0) for each in machine.home.glob(".iris-*/*/tunnel.port")), 0
    )


def _is_open(port: int) -> bool:
    with socket.socket() as here:
        return here.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.long
async def test_the_tunnel_to_a_machine_is_closed_once_its_slice_is_gone(
    lab: list[Machine], tmp_path: Path
) -> None:
    """Programs of the machine's next users would reach the control plane. The connection stays: it
    asks for the lease.
    """
    settings = ManualWorld(lab, tmp_path / "known_hosts").settings()
    connections = Connections(settings, keep=True)
    keeper = HostKeeper(settings, connections, lambda: no_packages(tmp_path), command=sleeping)
    ours = ManualPlatform(settings, connections, attend=keeper.attend)
    async with keeper.serving():
        await ours.create_slice(REQUEST)
        port = await until(partial(_tunnel_port, lab[0]))
        assert _is_open(port)

        assert await ours.delete_slice(REQUEST.slice_id, REQUEST.zone) is DeleteResult.GOING
        await asyncio.sleep(4 * settings.poll_interval.total_seconds())
        assert _is_open(port)  # the agent may have something to report
        await until(partial(_is_gone, ours))
        await until(lambda: not _is_open(port))
        assert len(lab[0].sshd()) > 1
    await connections.close()


async def test_nothing_stays_open_to_a_machine_that_left_the_configuration(
    lab: list[Machine], tmp_path: Path
) -> None:
    """Also to one whose login was changed: it gets another connection, and its tunnel the port that
    its agent uses already.
    """
    settings = ManualWorld(lab, tmp_path / "known_hosts").settings()
    connections = Connections(settings, keep=True)
    keeper = HostKeeper(settings, connections, lambda: no_packages(tmp_path), command=sleeping)
    async with keeper.serving():
        await ManualPlatform(settings, connections, attend=keeper.attend).create_slice(REQUEST)
        port = await until(partial(_tunnel_port, lab[0]))
        assert [len(each.sshd()) > 1 for each in lab] == [True, True]

        other_key = lab[0].key.rename(tmp_path / "moved_key")
        changed = lab[0].access.model_copy(update={"key_file": other_key})
        settings = settings.model_copy(update={"hosts": {REQUEST.group.name: (changed,)}})
        keeper.reconfigure(settings)
        await until(lambda: [len(each.sshd()) for each in lab] == [1, 1])
        assert not _is_open(port)

        await ManualPlatform(settings, connections, attend=keeper.attend).list_slices()
        await until(lambda: _is_open(port))
        assert _tunnel_port(lab[0]) == port
    await until(partial(_is_gone, ManualPlatform(settings, connections)))
    await connections.close()
