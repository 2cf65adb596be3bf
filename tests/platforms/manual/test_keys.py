"""The keys of a cluster on a machine over SSH, for payloads and for secrets: its agent has them,
and nothing else shows them.
"""

import contextlib
import os
import platform
import stat
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from iris.platforms.manual.connections import Connections
from iris.platforms.manual.keeper import HostKeeper
from iris.platforms.manual.leases import encoded, script
from iris.platforms.manual.platform import ManualPlatform
from iris.platforms.manual.settings import DIRECTORY, ManualSettings
from tests.platforms.manual.test_platform import REQUEST, _is_gone
from tests.platforms.worlds import ManualWorld, no_packages, until
from tests.sshd import Machine, machines

OLD, NEW = "first c2VjcmV0LW9uZQ==\n", "second c2VjcmV0LXR3bw==\n"
#: An agent that only runs, until SIGHUP.
AGENT = "import signal, time; signal.signal(signal.SIGHUP, signal.SIG_DFL); time.sleep(1000)"


@pytest.fixture
def machine(sshd: None, tmp_path: Path) -> Iterator[Machine]:
    with machines(tmp_path, 1, first=16) as (machine,):
        yield machine


@contextlib.asynccontextmanager
async def serving(
    settings: ManualSettings, tmp_path: Path, keys: str, secret_keys: Callable[[], str] = lambda: ""
) -> AsyncIterator[ManualPlatform]:
    """Runs a control plane with these keys. What runs on the machine runs on afterwards."""
    connections = Connections(settings, keep=True)
    command = {"command": lambda *_: f"-c '{AGENT}'", "secret_keys": secret_keys}
    keeper = HostKeeper(settings, connections, lambda: no_packages(tmp_path), keys, **command)
    slices = ManualPlatform(settings, connections, attend=keeper.attend)
    async with keeper.serving():
        await slices.create_slice(REQUEST)
        yield slices
    await connections.close()


def agents(machine: Machine, variable: str = "IRIS_PAYLOAD_KEYS") -> dict[int, str]:
    """The file of keys that each agent on the machine uses, by its process; empty: none."""
    found = {}
    for each in machine.processes():
        with contextlib.suppress(psutil.Error):
            if AGENT in each.cmdline():
                found[each.pid] = each.environ().get(variable, "")
    return found


def files_with(machine: Machine, text: str) -> list[str]:
    """The names of the files on the machine that have this text."""
    return [
        path.name
        for path in machine.home.rglob("*")
        if path.is_file() and text.encode() in path.read_bytes()
    ]


@pytest.mark.long
async def test_an_agent_gets_the_keys_in_a_file_of_its_user_alone(
    machine: Machine, tmp_path: Path
) -> None:
    """And when the control plane has other keys, or none any more, the agent is started again with
    those.
    """
    settings = ManualWorld([machine], tmp_path / "known_hosts").settings()
    async with serving(settings, tmp_path, OLD):
        await until(lambda: len(agents(machine)) == 1)
        ((first, file),) = agents(machine).items()
        assert files_with(machine, OLD) == ["payload.keys"]
        assert stat.S_IMODE(Path(file).stat().st_mode) == 0o600
    async with serving(settings, tmp_path, NEW + OLD):
        await until(lambda: agents(machine) not in ({first: file}, {}))
        assert list(agents(machine).values()) == [file]
        assert Path(file).read_text() == NEW + OLD
    async with serving(settings, tmp_path, "") as slices:
        await until(lambda: files_with(machine, OLD.split()[1]) == [])
        await until(lambda: list(agents(machine).values()) == [""])
        await until(partial(_is_gone, slices))


@pytest.mark.long
async def test_an_agent_gets_the_keys_for_secrets_and_those_of_a_rotation(
    machine: Machine, tmp_path: Path
) -> None:
    """The control plane reads its file at each visit, and the agent at each use: a rotation starts
    neither again.
    """
    settings, file = ManualWorld([machine], tmp_path / "known_hosts").settings(), tmp_path / "keys"
    file.write_text(OLD)
    async with serving(settings, tmp_path, "", file.read_text) as slices:
        await until(lambda: len(agents(machine)) == 1)
        ((process, given),) = agents(machine, "IRIS_SECRET_KEYS").items()
        assert files_with(machine, OLD) == ["secret.keys"]
        assert stat.S_IMODE(Path(given).stat().st_mode) == 0o600
        file.write_text(NEW + OLD)
        await until(lambda: Path(given).read_text() == NEW + OLD)
        assert agents(machine, "IRIS_SECRET_KEYS") == {process: given}
        assert agents(machine) == {process: ""}
        await until(partial(_is_gone, slices))
    assert machine.left() == []


@pytest.mark.long
async def test_the_keys_are_removed_with_the_slice(machine: Machine, tmp_path: Path) -> None:
    """The machine may serve another cluster next."""
    settings = ManualWorld([machine], tmp_path / "known_hosts").settings()
    async with serving(settings, tmp_path, OLD) as slices:
        await until(lambda: len(agents(machine)) == 1)
        await until(partial(_is_gone, slices))
    assert machine.left() == []


def test_no_process_has_the_keys_in_its_command_line_or_environment(tmp_path: Path) -> None:
    """Every user of the machine reads command lines. All processes are looked at while the file is
    written.
    """
    place = tmp_path / DIRECTORY / platform.node()
    (place / "runtime/bin").mkdir(parents=True)
    for file in (place / "lease.json", place / "runtime/bin/python", tmp_path / "base64"):
        file.touch(0o700)
    (tmp_path / "base64").write_text(
        f"#!/bin/sh\ncat /proc/[0-9]*/cmdline /proc/[0-9]*/environ >> {tmp_path}/seen 2>"
        ' /dev/null\nexec /usr/bin/base64 "$@"\n'
    )
    settings = ManualSettings(cluster="c", uid="u", hosts={}, zones={})
    given = {
        "AGENT": "",
        "CONFIG": encoded("name: c"),
        "PORT": "1",
        "PAYLOAD_KEYS": encoded(OLD),
        "SECRET_KEYS": encoded(NEW),
    }
    environment = {"HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(
        ["sh", "-s"], input=script(settings, "start", **given).encode(), env=environment, check=True
    )

    assert (place / "payload.keys").read_text() == OLD
    assert (place / "secret.keys").read_text() == NEW
    seen = (tmp_path / "seen").read_bytes()
    assert str(tmp_path).encode() in seen
    assert [
        each
        for keys in (OLD, NEW)
        for each in (keys.split()[1], encoded(keys))
        if each.encode() in seen
    ] == []
