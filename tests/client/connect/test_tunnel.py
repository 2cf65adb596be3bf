"""Tunnels: opened when somebody needs one, there again when they break, and gone when the cluster
is not wanted any more.
"""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from concurrent import futures
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from temporalio.testing import WorkflowEnvironment

from iris.client.connect.clusters import (
    ClusterRecord,
    ControllerVm,
    ProcessRef,
    cluster_dir,
    forget,
    read_record,
    write_record,
)
from iris.client.connect.remote import connect_remote
from iris.client.connect.tunnel import MODULE, close_tunnel, open_tunnel, tunnel_command, tunnel_log
from iris.model.errors import Unreachable
from iris.processes.process import free_ports, locked
from iris.worker_agents.local.temporal_server import temporal_binary
from tests.e2e.cluster import alive, eventually

pytestmark = pytest.mark.long

BIN = Path(__file__).parents[2] / "fakes" / "google" / "bin"
SOON = timedelta(seconds=1)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state directory, and the fake `gcloud`, whose files are there too."""
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("FAKE_GCLOUD", str(tmp_path))
    monkeypatch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}")
    yield tmp_path
    close_tunnel("far")


def know(port: int) -> ControllerVm:
    """A cluster elsewhere, whose service is at this port of its machine."""
    vm = ControllerVm(project="p", zone="z", machine="m", port=port)
    write_record(ClusterRecord(name="far", address="", store="file:///nowhere", remote=True, vm=vm))
    return vm


def tunnel_of(record: ClusterRecord) -> psutil.Process:
    assert record.tunnel is not None
    return psutil.Process(record.tunnel.pid)


def test_the_command_line_is_what_a_person_would_type() -> None:
    """Both ports lead to the machine, a way that cannot be opened is an error, and a dead one is
    noticed.
    """
    vm = ControllerVm(project="p", zone="europe-west4-b", machine="iris-c-controller", port=10000)
    command = tunnel_command(vm, 7233, 8233)
    ways = "-L 127.0.0.1:7233:localhost:10000 -L 127.0.0.1:8233:localhost:10001"
    begin = "gcloud compute ssh iris-c-controller --project=p --zone=europe-west4-b --quiet -- -N"
    assert " ".join(command).startswith(
        f"{begin} {ways} -o ExitOnForwardFailure=yes -o ServerAliveInterval=15"
    )
    assert (
        "--tunnel-through-iap"
        in tunnel_command(vm.model_copy(update={"iap": True}), 7233, 8233)[
            : command.index("--") + 1
        ]
    )


async def test_a_tunnel_serves_all_who_come_and_comes_back_whatever_dies(home: Path) -> None:
    """One process for a cluster; a connection that breaks and a process that is killed are
    replaced, at the same address.
    """
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=temporal_binary()
    ) as server:
        know(int(server.client.service_client.config.target_host.rpartition(":")[2]))
        (_, first), (_, second) = await asyncio.gather(connect_remote("far"), connect_remote("far"))
        assert first.tunnel == second.tunnel
        assert first.address.startswith("127.0.0.1:")

        (connection,) = tunnel_of(first).children()
        connection.kill()
        _, again = await connect_remote("far")
        assert (again.address, again.tunnel) == (first.address, first.tunnel)

        dead = tunnel_of(again)
        dead.send_signal(signal.SIGKILL)
        await asyncio.to_thread(eventually, lambda: not alive(dead.pid))
        _, other = await connect_remote("far")
        assert other.address == first.address
        assert other.tunnel != first.tunnel

        process = tunnel_of(other)
        await asyncio.to_thread(close_tunnel, "far")
        assert not alive(process.pid)
        assert not alive(connection.pid)


async def test_a_port_that_somebody_else_has_meanwhile_is_left_to_him(home: Path) -> None:
    """The next tunnel begins elsewhere, and the record says where."""
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=temporal_binary()
    ) as server:
        vm = know(int(server.client.service_client.config.target_host.rpartition(":")[2]))
        with closing(socket.socket()) as somebody:
            somebody.bind(("127.0.0.1", 0))
            somebody.listen()
            taken = f"127.0.0.1:{somebody.getsockname()[1]}"
            record = ClusterRecord(
                name="far",
                address=taken,
                ui="http://127.0.0.1:1",
                store="file:///nowhere",
                remote=True,
            )
            write_record(record.model_copy(update={"vm": vm}))
            _, found = await connect_remote("far")
        assert found.address != taken


async def test_a_refusal_is_told_in_the_words_of_who_refuses(home: Path) -> None:
    """An account without rights, a machine that is gone: what `gcloud` says is what helps."""
    know(free_ports()[0])
    (home / "refuse").write_text(
        "ERROR: (gcloud.compute.ssh) Could not fetch resource: m was not found\n"
    )
    await asyncio.to_thread(open_tunnel, "far")
    await asyncio.to_thread(eventually, lambda: "was not found" in tunnel_log("far").read_text())
    with pytest.raises(
        Unreachable,
        match=r"cluster far does not answer: (.|\n)*Could not fetch resource: m was not found",
    ):
        await connect_remote("far", SOON)


def test_without_gcloud_the_remedy_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has it by birth; and inside the network nobody needs it."""
    know(7233)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(
        Unreachable,
        match=r"no gcloud on PATH; install the Google Cloud CLI .*iris --cluster HOST:7233/far",
    ):
        open_tunnel("far")


def test_a_record_that_has_lost_its_tunnel_gets_it_back(home: Path) -> None:
    """Two commands write it at once, and the one that has not seen the tunnel comes last: there is
    one, and no second may be.
    """
    vm = know(free_ports()[0])
    first = open_tunnel("far")
    write_record(ClusterRecord(name="far", address="", store="file:///nowhere", remote=True, vm=vm))
    again = open_tunnel("far")
    assert (again.tunnel, again.address, again.ui) == (first.tunnel, first.address, first.ui)


def test_a_tunnel_that_finds_another_at_its_end_is_started_again(home: Path) -> None:
    """A cluster is stopped and started: the former tunnel notices a moment later."""
    know(free_ports()[0])
    with futures.ThreadPoolExecutor() as threads, contextlib.ExitStack() as former:
        former.enter_context(locked(cluster_dir("far") / "tunnel", "there is one"))
        opened = threads.submit(open_tunnel, "far")
        eventually(tunnels)
        eventually(lambda: not tunnels(), every=0.01)  # it has given way
        former.close()
        assert opened.result().tunnel is not None


def tunnels() -> list[psutil.Process]:
    """The processes of tunnels that this one has started, and that have not ended."""
    found = []
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if MODULE in process.cmdline():
                found.append(process)
    return found


def test_what_a_killed_tunnel_has_left_goes_and_the_next_one_is_where_it_was(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The `gcloud` of Google is a shell's text that runs another program: that one outlives it, and
    has the ports.
    """
    shell = home / "bin" / "gcloud"
    shell.parent.mkdir()
    shell.write_text(f'#!/bin/sh\n"{BIN}/gcloud" "$@"\nexit $?\n')
    shell.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shell.parent}{os.pathsep}{os.environ['PATH']}")
    know(free_ports()[0])
    first = open_tunnel("far")
    port = int(first.address.rpartition(":")[2])
    eventually(lambda: listens(port))
    killed = tunnel_of(first)
    (shell_process,) = killed.children()
    (connection,) = shell_process.children()
    killed.kill()
    eventually(lambda: not alive(killed.pid) and not alive(shell_process.pid))
    assert alive(connection.pid)
    again = open_tunnel("far")
    assert again.address == first.address
    assert not alive(connection.pid)
    eventually(lambda: listens(port))
    left = tunnel_of(again).children(recursive=True)
    tunnel_of(again).kill()
    close_tunnel("far")
    assert [process for process in left if alive(process.pid)] == []


def listens(port: int) -> bool:
    with closing(socket.socket()) as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


def test_a_tunnel_ends_when_its_cluster_is_forgotten(home: Path) -> None:
    """A stop from another terminal leaves nothing that tries for ever."""
    know(free_ports()[0])
    process = tunnel_of(open_tunnel("far"))
    forget("far")
    eventually(lambda: not alive(process.pid))
    assert read_record("far") is None


def test_a_cluster_that_nobody_here_knows_is_answered_with_how_to_know_it(home: Path) -> None:
    """A name alone does not say where it is."""
    with pytest.raises(
        Unreachable, match="cluster 'far' is not known here; name its configuration"
    ):
        open_tunnel("far")


def test_what_is_kept_of_a_cluster_elsewhere_goes_and_a_local_ones_state_stays(home: Path) -> None:
    """One simulates a cluster, stops it, and starts it for real under the same name: the
    simulation's jobs are still there.
    """
    state = home / "clusters" / "far" / "temporal.sqlite"
    state.parent.mkdir(parents=True)
    state.touch()
    know(1)
    record = read_record("far")
    assert record is not None
    write_record(record.model_copy(update={"tunnel": ProcessRef(pid=1, created=0.0)}))
    forget("far")
    assert [path.name for path in state.parent.iterdir()] == ["temporal.sqlite"]


def test_the_tunnel_leads_to_the_dashboard_where_there_is_one() -> None:
    """`iris cluster dashboard` opens it at a port of the user's machine."""
    vm = ControllerVm(project="p", zone="z", machine="m", port=10000, dashboard_port=10002)

    assert "127.0.0.1:7002:localhost:10002" in tunnel_command(vm, 7000, 7001, 7002)
    assert not any("10002" in word for word in tunnel_command(vm, 7000, 7001, 0))
