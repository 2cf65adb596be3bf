"""What the script on a machine over SSH leaves to others: the umask of its user, and what other
machines have in the home.
"""

import platform
import stat
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from iris.platforms.manual.connections import Connections
from iris.platforms.manual.keeper import HostKeeper
from iris.platforms.manual.platform import ManualPlatform
from tests.platforms.manual.test_platform import REQUEST, _is_gone
from tests.platforms.worlds import ManualWorld, no_packages, sleeping, until
from tests.sshd import Machine, machines


@pytest.fixture
def machine(sshd: None, tmp_path: Path) -> Iterator[Machine]:
    with machines(tmp_path, 1, first=35) as (machine,):
        yield machine


@pytest.mark.long
async def test_an_agent_has_the_umask_of_the_login_user_and_its_log_is_private(
    machine: Machine, tmp_path: Path
) -> None:
    """The agent gives it to the programs of jobs, whose files the user's group may read, for
    example.
    """
    (machine.home / ".bashrc").write_text("umask 027\n")
    settings = ManualWorld([machine], tmp_path / "known_hosts").settings()
    connections = Connections(settings, keep=True)
    keeper = HostKeeper(settings, connections, lambda: no_packages(tmp_path), command=sleeping)
    ours = ManualPlatform(settings, connections, attend=keeper.attend)

    def agents() -> list[psutil.Process]:
        found = []
        for each in machine.processes():
            with suppress(psutil.Error):
                if sleeping().split("'")[1] in each.cmdline():
                    found.append(each)
        return found

    async with keeper.serving():
        await ours.create_slice(REQUEST)
        (agent,) = await until(agents)
        assert "\nUmask:\t0027\n" in Path(f"/proc/{agent.pid}/status").read_text()
        (home,) = machine.home.glob(".iris-*/*")
        assert {
            stat.S_IMODE(each.stat().st_mode) for each in (home / "agent.log", home / "lease.json")
        } == {0o600}
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        await until(partial(_is_gone, ours))
    await connections.close()


async def test_a_lease_and_its_end_leave_what_other_machines_do_in_the_same_home(
    machine: Machine, tmp_path: Path
) -> None:
    """What this machine itself left behind, when it was cut off, is removed."""
    settings = ManualWorld([machine], tmp_path / "known_hosts").settings()
    base, ours, name = machine.home / settings.directory, ManualPlatform(settings), platform.node()
    others = {
        f".{kind}-{other}@1"
        for kind in ("new", "gone")
        for other in ("another", f"{name}-2", f"2-{name}")
    }
    for each in (*others, f".new-{name}@1", f".gone-{name}@1"):
        (base / each).mkdir(parents=True)

    await ours.create_slice(REQUEST)
    assert {each.name for each in base.iterdir()} == {*others, name}

    (base / f".gone-{name}@1").mkdir()
    await until(partial(_is_gone, ours))
    assert {each.name for each in base.iterdir()} == others


async def test_a_lease_waits_for_the_last_lease_of_another_machine_in_the_same_home(
    machine: Machine, tmp_path: Path
) -> None:
    """Which removes the directory that both lock. The one that is made anew is locked again."""
    settings = ManualWorld([machine], tmp_path / "known_hosts").settings()
    locks, shim = machine.home / "locks", machine.home / "bin" / "flock"
    shim.parent.mkdir()
    shim.write_text(
        f"#!/bin/sh\n[ -e {locks} ] || rmdir {machine.home / settings.directory}\necho >>"
        f' {locks}\nexec /usr/bin/flock "$@"\n'
    )
    shim.chmod(0o755)
    (machine.home / ".bashrc").write_text("export PATH=$HOME/bin:$PATH\n")
    ours = ManualPlatform(settings)

    await ours.create_slice(REQUEST)

    assert locks.read_text() == "\n\n"
    await until(partial(_is_gone, ours))
