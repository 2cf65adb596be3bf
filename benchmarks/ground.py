"""Sets up the measurements: a local cluster in a directory of its own, and the floor's workers
beside it.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from iris.client.client import AsyncIrisClient
from iris.client.connect.clusters import ClusterRecord, cluster_dir
from iris.client.connect.connection import connect
from iris.config import ClusterConfig, dump_config, local_config
from iris.model import names
from iris.platforms.local import MACHINES, homes
from iris.worker_agents.local.cluster import LocalClusterOptions, machines_dir
from iris.worker_agents.local.launch import start_detached, stop_local
from iris.worker_agents.local.local_machines import LocalMachines
from tests.e2e.operate.production import an_own_cluster
from tests.temporal_cluster import a_temporal_cluster

NAME = "bench"


@dataclass(frozen=True)
class Ground:
    """A running cluster and its processes."""

    record: ClusterRecord
    #: Those of the Temporal service.
    servers: tuple[psutil.Process, ...]
    controller: psutil.Process
    #: The agents that the cluster started with.
    agents: tuple[psutil.Process, ...]
    floor: list[psutil.Process] = field(default_factory=list)

    def server_seconds(self) -> float:
        """Returns the CPU time of the Temporal service so far, with that of its database."""
        children = [child for server in self.servers for child in server.children()]
        return cpu_seconds(self.servers, children=True) + cpu_seconds(children)

    async def client(self) -> AsyncIrisClient:
        return AsyncIrisClient(await connect(self.record.address), self.record)


@contextlib.contextmanager
def cluster(config: int | ClusterConfig, cores: int | None = None) -> Iterator[Ground]:
    """Runs a local cluster with the settings of `iris cluster start --local`, and deletes it and
    its files at the end.

    Args:
        config: the cluster's configuration, with the name `NAME`; or the number of hosts that
            always exist.
        cores: how many cores each of these hosts offers; None for the default.
    """
    before = os.environ.get(names.ENV_STATE_DIR)
    with tempfile.TemporaryDirectory(prefix="iris-bench-", ignore_cleanup_errors=True) as directory:
        os.environ[names.ENV_STATE_DIR] = directory
        if isinstance(config, int):
            millis = None if cores is None else 1000 * cores
            config = local_config(NAME, config, min_hosts=config, cpu_millis=millis)
        try:
            record = start_detached(LocalClusterOptions(name=NAME, config=dump_config(config)))
            server, controller = (psutil.Process(process.pid) for process in record.processes)
            yield Ground(record, (server,), controller, _agents())
        finally:
            stop_local(NAME)
            os.environ.pop(names.ENV_STATE_DIR)
            if before is not None:
                os.environ[names.ENV_STATE_DIR] = before


def _agents() -> tuple[psutil.Process, ...]:
    reports = (
        LocalMachines.model_validate_json((home / MACHINES).read_bytes())
        for home in homes(machines_dir(cluster_dir(NAME)))
    )
    return tuple(
        psutil.Process(agent.pid) for report in reports for agent in report.agents.values()
    )


@contextlib.contextmanager
def beside_floor(
    hosts: int = 1, *, cores: int | None = None, at_once: int | None = None
) -> Iterator[Ground]:
    """Runs a cluster and the floor's two workers on one server.

    Args:
        cores: how many cores each host offers; None for the default.
        at_once: the most activities that the floor's worker runs at the same time; None for the
            SDK's default.
    """
    with cluster(hosts, cores) as ground, _with_floor(ground, at_once):
        yield ground


@contextlib.contextmanager
def official_beside_floor(
    *, cores: int | None = None, at_once: int | None = None
) -> Iterator[Ground]:
    """Runs a control plane, a host that joined and the floor's two workers on Temporal's official
    server with PostgreSQL. The arguments are those of `beside_floor`.
    """
    with a_temporal_cluster() as temporal:
        (address,) = temporal.service.addresses
        with an_own_cluster([address], NAME) as own:
            agent = own.join("host", *(() if cores is None else (f"--cpu={cores}",)))
            servers = tuple(
                psutil.Process(each.pid) for each in temporal.service.processes.values()
            )
            (controller,) = own.processes_with("controller", "serve")
            record = ClusterRecord(name=NAME, address=address, store=(own.home / "store").as_uri())
            ground = Ground(record, servers, controller, (psutil.Process(agent.process.pid),))
            with _with_floor(ground, at_once):
                yield ground


@contextlib.contextmanager
def _with_floor(ground: Ground, at_once: int | None) -> Iterator[None]:
    """Runs the floor's two workers on the server of a cluster."""
    with contextlib.ExitStack() as stack:
        limit = () if at_once is None else (str(at_once),)
        for role in ("workflows", "activities"):
            arguments = (ground.record.address, role, *limit)
            worker = stack.enter_context(child("benchmarks.floor", arguments))
            ground.floor.append(psutil.Process(worker.pid))
        yield


@contextlib.contextmanager
def child(module: str, arguments: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a module of this package in a process, which ends when its standard input ends."""
    command = [sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1]
    )
    assert process.stdin is not None
    try:
        yield process
    finally:
        process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def cpu_seconds(processes: Sequence[psutil.Process], *, children: bool = False) -> float:
    """Returns the user and system time of the processes so far.

    Args:
        children: add the time of their ended children.
    """
    total = 0.0
    for process in processes:
        times = process.cpu_times()
        total += times.user + times.system
        total += times.children_user + times.children_system if children else 0.0
    return total
