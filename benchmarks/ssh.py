"""Measures machines over SSH: the installation of twenty, a tunnel that was cut, and the start of a
cluster of three.

Real `sshd` processes stand for the machines. All have the disk and the cores of this one, so the
installation shows what the order of work costs, not what a fleet would take.

The floor of the installation sends and unpacks the same packages with the system's `ssh`, as many
at once as the keeper. The floor of the tunnel is a login that runs `true`. The floor of the start
is `dask ssh`, if `PEERS_PYTHON` names an interpreter that has `distributed` and `paramiko`: it
installs nothing, and its workers are up when they have registered.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from benchmarks.table import Row
from iris.model.host.resources import Resources
from iris.model.slice.provisioning import MachineState, SliceRequest
from iris.model.slice.scale_groups import ScaleGroup, SliceType
from iris.platforms.manual.connections import Connections
from iris.platforms.manual.keeper import MAX_INSTALLING, HostKeeper
from iris.platforms.manual.leases import script, state_of
from iris.platforms.manual.platform import ManualPlatform
from iris.platforms.manual.runtime import Runtime, pack
from iris.platforms.manual.settings import ManualSettings
from tests.sshd import Machine, install, machines, user

#: The command line of an agent that does nothing.
SLEEPING = "-c 'import time; time.sleep(1000)'"
MACHINES, FEW = 20, 5
CUTS = 5
HOSTS = 3
#: No measurement takes longer than this.
PATIENCE = 600.0
GROUP = ScaleGroup(
    name="lab",
    type=SliceType.MANUAL_VM,
    hosts=1,
    zones=("lab",),
    resources=Resources(cpu_millis=1000, memory_bytes=2**30),
    max_slices=MACHINES,
)
CONFIGURATION = """
name: bench
platform: {{manual: {{}}}}
defaults: {{ssh: {{user: {user}, port: {lab.port}, key_file: {lab.key}, known_hosts: {directory}/known_hosts}}}}
controller: {{bundle_prefix: "file://{directory}/store", local: {{}}}}
scale_groups:
  lab: {{type: manual_vm, hosts: {hosts}, min_slices: 3, max_slices: 3, resources: {{cpu: 1, memory: 1g}}}}
"""
#: Ends when all workers have registered.
DASK = """
import sys, time
from distributed import Client
deadline = time.monotonic() + 120
while True:
    try:
        with Client(sys.argv[1], timeout=5) as client:
            client.wait_for_workers(int(sys.argv[2]), timeout=120)
        break
    except OSError:
        assert time.monotonic() < deadline
        time.sleep(0.1)
"""


def measure(*, quick: bool) -> list[Row]:
    install()
    with tempfile.TemporaryDirectory(prefix="iris-ssh-", ignore_cleanup_errors=True) as directory:
        rows = asyncio.run(_installed(Path(directory, "many"), FEW if quick else MACHINES))
        rows += asyncio.run(_cut(Path(directory, "cut"), 1 if quick else CUTS))
        return [*rows, _started(Path(directory, "start"))]


@dataclass(frozen=True)
class Lab:
    """Machines, and the platform and keeper of a cluster whose agent is a process that sleeps."""

    machines: list[Machine]
    settings: ManualSettings
    platform: ManualPlatform
    runtime: Runtime

    async def lease_all(self) -> None:
        """Leases every machine, and waits until its agent runs."""
        for number in range(len(self.machines)):
            request = SliceRequest(
                slice_id=f"bench-{number}",
                cluster="bench",
                group=GROUP,
                zone="lab",
                token=f"token of bench-{number}",
            )
            await self.platform.create_slice(request)
        deadline = time.monotonic() + PATIENCE
        while [each.state for each in (await self.platform.list_slices()).slices] != [
            MachineState.ACTIVE
        ] * len(self.machines):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def _lab(directory: Path, count: int, first: int, address: str) -> AsyncIterator[Lab]:
    """Args: address: of the service to which the tunnels lead."""
    with machines(directory, count, first) as found:
        settings = ManualSettings(
            cluster="bench",
            uid="bench",
            hosts={"lab": tuple(each.access for each in found)},
            zones={"lab": ("lab",)},
            known_hosts=directory / "known_hosts",
            address=address,
        )
        runtime = await asyncio.to_thread(pack, directory)
        connections = Connections(settings, keep=True)
        keeper = HostKeeper(settings, connections, lambda: runtime, command=lambda *_: SLEEPING)
        platform = ManualPlatform(
            settings, connections, attend=keeper.attend, fault_of=keeper.fault_of
        )
        async with keeper.serving():
            yield Lab(found, settings, platform, runtime)
        await connections.close()


async def _installed(directory: Path, count: int) -> list[Row]:
    async with _lab(directory, count, 1, "127.0.0.1:1") as lab:
        began = time.perf_counter()
        await lab.lease_all()
        taken = time.perf_counter() - began
        floor = await asyncio.to_thread(_sent_and_unpacked, lab)
    size = lab.runtime.file.stat().st_size / 2**20
    note = (
        f"{size:.0f} MiB for each, on one disk, {MAX_INSTALLING} at once; the floor sends and"
        " unpacks them with ssh"
    )
    return [Row(f"{count} machines leased, with running agents, s", taken, floor, note=note)]


def _sent_and_unpacked(lab: Lab) -> float:
    """Returns the seconds that the system's `ssh` and `tar` take for the packages."""

    def send(machine: Machine) -> None:
        command = [*_ssh(lab, machine), 'mkdir "$HOME/floor" && tar -xzf - -C "$HOME/floor"']
        with lab.runtime.file.open("rb") as packages:
            subprocess.run(command, stdin=packages, check=True, timeout=PATIENCE)

    began = time.perf_counter()
    with ThreadPoolExecutor(MAX_INSTALLING) as pool:
        list(pool.map(send, lab.machines))
    return time.perf_counter() - began


def _ssh(lab: Lab, machine: Machine) -> list[str]:
    options = {
        "UserKnownHostsFile": lab.settings.known_hosts,
        "Port": machine.port,
        "IdentityFile": machine.key,
        "BatchMode": "yes",
    }
    return [
        "ssh",
        "-F",
        "none",
        *(f"-o{name}={value}" for name, value in options.items()),
        f"{user()}@{machine.address}",
    ]


async def _cut(directory: Path, cuts: int) -> list[Row]:
    """Ends the sshd process of a tunnel, and waits until a connection through the next one is
    answered.
    """
    server = await asyncio.start_server(_greet, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    taken, logins = [], []
    async with server, _lab(directory, 1, 31, address) as lab:
        await lab.lease_all()
        (machine,) = lab.machines
        for _ in range(cuts):
            port = await _port_of(lab)
            assert await _answers(port)
            _end_sessions(machine)
            began = time.perf_counter()
            while not await _answers(await _port_of(lab)):
                assert time.perf_counter() - began < PATIENCE
                await asyncio.sleep(0.05)
            taken.append(time.perf_counter() - began)
            began = time.perf_counter()
            await asyncio.to_thread(
                subprocess.run, [*_ssh(lab, machine), "true"], check=True, timeout=PATIENCE
            )
            logins.append(time.perf_counter() - began)
    visits = f"visits every {lab.settings.poll_interval.total_seconds():g} s"
    note = f"{visits}; {min(taken):.1f} to {max(taken):.1f}; the floor is a login"
    return [Row("from a cut tunnel to a working one, s", median(taken), median(logins), note=note)]


async def _greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"hello")
    writer.close()


async def _port_of(lab: Lab) -> int:
    """Returns the port of the tunnel that the machine's agent was started with."""
    host = lab.machines[0].access
    connections = Connections(lab.settings)
    asked = script(lab.settings, "look")
    return state_of(
        await connections.script(
            host, asked, limit=lab.settings.connect_timeout, what="reading the port"
        )
    ).port


async def _answers(port: int) -> bool:
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(1):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            answer = await reader.read()
            writer.close()
            return answer == b"hello"
    return False


def _end_sessions(machine: Machine) -> None:
    """Ends the sshd processes of all connections, but not the one that accepts new ones."""
    listening = [
        each
        for each in psutil.process_iter()
        if str(machine.directory / "sshd_config") in _words(each)
    ]
    for session in (child for each in listening for child in each.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            if session.name() == "sshd":
                session.kill()


def _words(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


def _started(directory: Path) -> Row:
    """Starts a cluster of three machines from nothing, until all take work, and stops it."""
    with machines(directory, HOSTS, 41, same_port=True) as lab:
        peer = _dask(directory, lab)
        file = directory / "lab.yaml"
        file.write_text(
            CONFIGURATION.format(
                user=user(), lab=lab[0], directory=directory, hosts=[each.address for each in lab]
            )
        )
        (directory / "store").mkdir()
        environment = {**os.environ, "IRIS_STATE_DIR": str(directory / "state")}
        iris = str(Path(sys.executable).with_name("iris"))
        try:
            began = time.perf_counter()
            subprocess.run(
                [iris, "cluster", "start", "--config", file],
                env=environment,
                check=True,
                capture_output=True,
                timeout=PATIENCE,
            )
            taken = time.perf_counter() - began
        finally:
            subprocess.run(
                [iris, "cluster", "stop", "bench", "--yes"],
                env=environment,
                check=False,
                capture_output=True,
            )
    note = (
        "with its packages, which dask ssh expects to be there"
        if peer
        else "the floor was not measured: no PEERS_PYTHON"
    )
    return Row(
        f"a cluster of {HOSTS} machines from nothing, s; the floor is dask ssh",
        taken,
        peer,
        note=note,
    )


def _dask(directory: Path, lab: list[Machine]) -> float | None:
    """Returns the seconds until the workers of `dask ssh` have registered; None: it cannot be
    measured.
    """
    python = os.environ.get("PEERS_PYTHON")
    if not python:
        return None
    with socket.socket() as free:
        free.bind((lab[0].address, 0))
        port = free.getsockname()[1]
    addresses = [each.address for each in lab]
    options = ["--ssh-port", lab[0].port, "--ssh-username", user(), "--ssh-private-key", lab[0].key]
    command = [
        python,
        "-m",
        "dask",
        "ssh",
        "--scheduler-port",
        port,
        *options,
        "--remote-python",
        python,
        *addresses,
    ]
    began = time.perf_counter()
    with (directory / "dask.log").open("wb") as log:
        started = subprocess.Popen(
            list(map(str, command)), stdout=log, stderr=log, start_new_session=True
        )
    try:
        subprocess.run(
            [python, "-c", DASK, f"tcp://{addresses[0]}:{port}", str(HOSTS)],
            check=True,
            timeout=PATIENCE,
        )
        return time.perf_counter() - began
    finally:
        os.killpg(started.pid, signal.SIGTERM)
        started.wait()
        for each in (process for machine in lab for process in machine.processes()):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
