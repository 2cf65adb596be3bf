"""What Iris says of machines that do not let it in or run no commands, against real `sshd`
processes.
"""

import asyncio
import os
import re
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from iris.platforms.base import StockOut
from iris.platforms.manual.connections import Connections, MachineFault
from iris.platforms.manual.platform import ManualPlatform
from iris.platforms.manual.settings import HostAccess, ManualSettings
from iris.platforms.manual.survey import survey
from tests.platforms.worlds import MANUAL_KIND, ManualWorld, a_group, until, wanted
from tests.sshd import Machine, an_agent, machines, make_key, user

REQUEST = wanted(group=a_group(**MANUAL_KIND))


@pytest.fixture
def lab(sshd: None, tmp_path: Path) -> Iterator[list[Machine]]:
    """Two machines."""
    with machines(tmp_path, 2, first=17) as found:
        yield found


def platform(lab: list[Machine], known_hosts: Path, **changes: object) -> ManualPlatform:
    """The platform with the machines, whose entries are changed."""
    world = ManualWorld(lab, known_hosts)
    hosts = tuple(each.access.model_copy(update=changes) for each in lab)
    return ManualPlatform(
        world.settings().model_copy(update={"hosts": {REQUEST.group.name: hosts}})
    )


async def refusal(platform: ManualPlatform) -> str:
    """Why no machine of the group is leased."""
    with pytest.raises(StockOut) as refused:
        await platform.create_slice(REQUEST)
    return str(refused.value)


@pytest.mark.parametrize(
    ("start_file", "reason"),
    [
        ("echo go away; exit 1", "exit status 1: go away"),
        ("exit", "exit status 0: no output"),
        ("exec cat", "exit status 0: "),
        ("cat > /dev/null", "exit status 0: no output"),
        ("exec sh", "exit status "),
    ],
)
async def test_a_login_shell_that_runs_no_command_is_named_and_others_are_used(
    lab: list[Machine], tmp_path: Path, start_file: str, reason: str
) -> None:
    """The script is lost on its way, in one of several ways. The remedy is a command that shows the
    fault to its user.
    """
    (lab[0].home / ".bashrc").write_text(f"{start_file}\n")
    ours = platform(lab, tmp_path / "known_hosts")

    (said,) = (await ours.unusable()).values()
    await ours.create_slice(REQUEST)

    assert f"its login shell runs no commands ({reason}" in said
    assert said.endswith(
        f"such as ~/.bashrc, until this ends at once: ssh -p {lab[0].port}"
        f" {user()}@{lab[0].address} true"
    )
    assert lab[1].left() != []


async def test_a_login_shell_that_hangs_is_given_up_within_a_limit_that_is_named(
    lab: list[Machine], tmp_path: Path
) -> None:
    """A start file that waits for a directory of the network, for example."""
    (lab[0].home / ".bashrc").write_text("sleep 1000\n")
    connections = Connections(ManualWorld(lab, tmp_path / "known_hosts").settings())

    with pytest.raises(MachineFault) as given_up:
        await connections.script(lab[0].access, "true", limit=timedelta(seconds=1), what="asking")

    assert "its login shell did not run a command within 1 s; look at the start files" in str(
        given_up.value
    )


async def test_a_start_file_may_print_what_it_likes(lab: list[Machine], tmp_path: Path) -> None:
    """Also text without an end of line, as for the title of a terminal, and what looks like an
    answer.
    """
    (lab[0].home / ".bashrc").write_text(
        "echo iris:begin; echo cores=1; echo iris:end; echo -n Welcome\n"
    )
    settings = ManualWorld(lab[:1], tmp_path / "known_hosts").settings()

    (found,) = (await survey([lab[0].access], Connections(settings))).values()

    assert found.notes == ()
    assert found.report is not None
    assert found.report.cores == len(os.sched_getaffinity(0))


async def test_a_key_with_a_passphrase_needs_an_agent_that_has_it(
    lab: list[Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iris never asks for a passphrase. What it suggests works."""
    key = make_key(tmp_path / "locked", passphrase="secret")
    for each in lab:
        (each.directory / "authorized_keys").write_text(key.with_suffix(".pub").read_text())
    ours = platform(lab, tmp_path / "known_hosts", key_file=key)
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)

    said = await refusal(ours)
    assert (
        f"the key {key} has a passphrase, which Iris never asks for; add the key to an SSH agent"
        f" with: ssh-add {key}" in said
    )

    with an_agent(tmp_path / "agent") as agent:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(agent))
        assert "refuses user" in await refusal(
            platform(lab, tmp_path / "known_hosts", key_file=key)
        )
        (tmp_path / "askpass").write_text("#!/bin/sh\necho secret\n")
        (tmp_path / "askpass").chmod(0o700)
        env = {
            **os.environ,
            "SSH_ASKPASS": str(tmp_path / "askpass"),
            "SSH_ASKPASS_REQUIRE": "force",
        }
        await asyncio.to_thread(
            subprocess.run, ["ssh-add", "-q", key], env=env, check=True, timeout=60
        )
        assert await platform(lab, tmp_path / "known_hosts", key_file=key).unusable() == {}


def sign(authority: Path, key: Path, valid: str, *options: str) -> None:
    """Makes a certificate beside a public key, valid for this time."""
    command = [
        "ssh-keygen",
        "-q",
        "-s",
        authority,
        "-I",
        key.name,
        "-V",
        valid,
        *options,
        key.with_suffix(".pub"),
    ]
    subprocess.run(command, check=True, timeout=60)


async def test_certificates_of_users_and_hosts_are_used_and_expired_ones_are_named(
    lab: list[Machine], tmp_path: Path
) -> None:
    """An expired host certificate is no changed host key: removing the known key, as for that one,
    would remove the authority.
    """
    authority, key, machine = make_key(tmp_path / "authority"), make_key(tmp_path / "ada"), lab[0]
    known = tmp_path / "authorities"
    known.write_text(
        f"@cert-authority {machine.address},[{machine.address}]:*"
        f" {authority.with_suffix('.pub').read_text()}"
    )
    machine.settings = (
        f"TrustedUserCAKeys {authority}.pub\nHostCertificate"
        f" {machine.directory / 'host_key-cert.pub'}"
    )
    ours = platform(lab[:1], known, key_file=key)

    async def why() -> list[str]:
        machine.stop()
        machine.start()
        return list((await platform(lab[:1], known, key_file=key).unusable()).values())

    sign(authority, key, "+1d", "-n", user())
    sign(authority, machine.directory / "host_key", "+1d", "-h", "-n", machine.address)
    assert await why() == []
    assert await ours.unusable() == {}

    sign(
        authority, machine.directory / "host_key", "20200101:20200102", "-h", "-n", machine.address
    )
    (host,) = await why()
    assert host.startswith("its host certificate is refused: ")
    assert "-R" not in host
    assert "check it with ssh-keygen -L, and the clocks here and there" in host

    sign(authority, machine.directory / "host_key", "+1d", "-h", "-n", machine.address)
    sign(authority, key, "20200101:20200102", "-n", user())
    (login,) = await why()
    assert f"check its principals and validity with: ssh-keygen -L -f {key}-cert.pub" in login


@pytest.mark.parametrize("setting", ["key", "known hosts"])
async def test_a_file_that_cannot_be_read_is_not_blamed_on_the_network(
    lab: list[Machine], tmp_path: Path, setting: str
) -> None:
    """A directory in the place of a file is a mistake in the configuration."""
    known = tmp_path if setting == "known hosts" else tmp_path / "known_hosts"
    changes = {"key_file": tmp_path} if setting == "key" else {}

    said = await refusal(platform(lab, known, **changes))

    assert re.search(rf"the {setting} (in )?{tmp_path} cannot be read: Is a directory", said)


async def test_a_jump_host_that_does_not_let_iris_through_is_the_one_that_is_named(
    lab: list[Machine], tmp_path: Path
) -> None:
    """The machine behind it may be healthy."""
    gateway, inner = lab
    settings = (
        ManualWorld(lab, tmp_path / "known_hosts")
        .settings()
        .model_copy(update={"connect_timeout": timedelta(seconds=2)})
    )
    behind = inner.access.model_copy(update={"jump_host": f"{gateway.address}:{gateway.port}"})

    async def why() -> str:
        (found,) = (await survey([behind], Connections(settings))).values()
        assert found.report is None
        return found.notes[0]

    (tmp_path / "known_hosts").write_text(gateway.known)
    assert (
        f"accept it with: ssh -J {user()}@{gateway.address}:{gateway.port} -p {inner.port}"
        f" {user()}@" in await why()
    )
    inner.stop()
    assert (
        f"not reached through its jump host {gateway.address}:{gateway.port}: Connection refused"
        in await why()
    )
    gateway.stop()
    assert (
        await why()
        == f"its jump host {gateway.address}: port {gateway.port} is not reached: Connection"
        " refused"
    )
    # Accepts connections, and never answers.
    with socket.create_server((gateway.address, gateway.port)):
        assert (
            await why()
            == f"its jump host {gateway.address}: port {gateway.port} did not answer SSH within 2 s"
            " (ssh.connect_timeout)"
        )


async def test_no_connection_to_a_jump_host_outlives_the_one_through_it(
    lab: list[Machine], tmp_path: Path
) -> None:
    """Each login would leave one more, until the jump host lets no one in. Also if the login fails
    or its caller gives up.
    """
    gateway, inner = lab
    settings = ManualWorld(lab, tmp_path / "known_hosts").settings()
    behind = inner.access.model_copy(update={"jump_host": f"{gateway.address}:{gateway.port}"})
    main = gateway.sshd()[-1].pid

    def connected() -> bool:
        return [each.pid for each in gateway.sshd()] != [main]

    for keep in (False, True):
        connections = Connections(settings, keep=keep)
        await connections.run(behind, "true", b"", limit=timedelta(seconds=30), what="asking")
        assert connected() or not keep
        await connections.close()
        await until(lambda: not connected())

    inner.stop()
    with pytest.raises(MachineFault, match="Connection refused"):
        await Connections(settings).run(
            behind, "true", b"", limit=timedelta(seconds=30), what="asking"
        )
    await until(lambda: not connected())

    # Accepts connections, and never answers.
    with socket.create_server((inner.address, inner.port)):
        connections = Connections(settings)
        login = asyncio.create_task(
            connections.run(behind, "true", b"", limit=timedelta(seconds=30), what="asking")
        )
        await until(connected)
        await connections.close()
        await asyncio.gather(login, return_exceptions=True)
        await until(lambda: not connected())


# -- logins that take long
# --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def a_gateway(machine: Machine, opens: asyncio.Event) -> AsyncIterator[int]:
    """A port at the machine's address that passes connections on to its sshd once the event is
    set.
    """

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await opens.wait()
        there, back = await asyncio.open_connection(machine.address, machine.port)
        with suppress(OSError):
            await asyncio.gather(copy(reader, back), copy(there, writer))

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
        target.close()

    server = await asyncio.start_server(relay, machine.address, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def through(port: int, lab: list[Machine], known_hosts: Path) -> tuple[ManualSettings, HostAccess]:
    """A cluster of the first machine alone, at the gateway's port, and that machine."""
    known_hosts.write_text(lab[0].known.replace(str(lab[0].port), str(port)))
    host = lab[0].access.model_copy(update={"port": port})
    settings = ManualWorld(lab, known_hosts).settings()
    return settings.model_copy(update={"hosts": {REQUEST.group.name: (host,)}}), host


async def test_a_login_that_outlasts_a_look_is_used_by_the_next_one(
    lab: list[Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine whose users are in a slow directory takes longer to log in to than a list may wait.
    Each look began anew.
    """
    monkeypatch.setattr("iris.platforms.manual.platform.LIST_LIMIT", timedelta(seconds=0.5))
    opens = asyncio.Event()
    async with a_gateway(lab[0], opens) as port:
        settings, host = through(port, lab, tmp_path / "known_hosts")
        connections = Connections(settings, keep=True)
        ours = ManualPlatform(settings, connections)

        still = (
            f"still logging in to port {port} after 0.5 s; the limit is 30 s (ssh.connect_timeout)"
        )
        assert still in await refusal(ours)
        assert still in (await ours.list_slices()).unreachable["west4-a"]
        opens.set()
        await until(lambda: not connections.is_logging_in(host))
        monkeypatch.undo()
        await ours.create_slice(REQUEST)
        await connections.close()
    assert lab[0].left() != []


async def test_a_machine_that_leaves_the_configuration_during_its_login_gets_no_connection(
    lab: list[Machine], tmp_path: Path
) -> None:
    """The caller is told why, as of each machine that is not reached. In the configuration again,
    the machine is used again.
    """
    opens = asyncio.Event()
    async with a_gateway(lab[0], opens) as port:
        settings, host = through(port, lab, tmp_path / "known_hosts")
        connections = Connections(settings, keep=True)

        asked = asyncio.create_task(ManualPlatform(settings, connections).unusable())
        await until(lambda: connections.is_logging_in(host))
        connections.reconfigure(settings.model_copy(update={"hosts": {}}))
        assert "the login was broken off, because " in (await asked)[host]

        opens.set()
        await until(lambda: len(lab[0].sshd()) == 1)
        connections.reconfigure(settings)
        assert await ManualPlatform(settings, connections).unusable() == {}
        assert len(lab[0].sshd()) > 1
        await connections.close()


async def test_a_start_waits_for_a_login_as_long_as_the_configuration_says(
    lab: list[Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks only once, so that it would never find the result of a login that takes longer than
    a list waits.
    """
    monkeypatch.setattr("iris.platforms.manual.platform.LIST_LIMIT", timedelta(seconds=0.1))
    opens = asyncio.Event()
    async with a_gateway(lab[0], opens) as port:
        (tmp_path / "known_hosts").write_text(lab[0].known.replace(str(lab[0].port), str(port)))
        ours = platform(lab[:1], tmp_path / "known_hosts", port=port)
        asyncio.get_running_loop().call_later(1, opens.set)

        assert await ours.unusable() == {}
        opens.clear()
        asyncio.get_running_loop().call_later(1, opens.set)
        assert (await ours.survey()).silent == {}


async def test_machines_that_never_answer_do_not_keep_a_healthy_one_from_being_used(
    lab: list[Machine], tmp_path: Path
) -> None:
    """More of them than logins at once, all listed before it. It waits for their first login, and
    for no later one.
    """
    settings = (
        ManualWorld(lab, tmp_path / "known_hosts")
        .settings()
        .model_copy(update={"connect_timeout": timedelta(seconds=2)})
    )
    with socket.create_server(
        (lab[0].address, 0), backlog=100
    ) as silent:  # accepts connections, and never answers
        port = silent.getsockname()[1]
        down = tuple(
            lab[0].access.model_copy(update={"port": port, "user": f"user{each}"})
            for each in range(40)
        )
        settings = settings.model_copy(
            update={"hosts": {REQUEST.group.name: (*down, lab[1].access)}}
        )
        connections = Connections(settings, keep=True)
        ours = ManualPlatform(settings, connections)

        assert set(await ours.unusable()) == set(down)
        await ours.create_slice(REQUEST)
        await connections.close()
    assert lab[1].left() != []
