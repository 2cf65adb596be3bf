"""The ground the measurements stand on: a local cluster in a directory of its own, and the floor's workers beside it."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from iris import names
from iris.client.client import IrisClient
from iris.client.clusters import ClusterRecord
from iris.client.connection import connect
from iris.platforms.local import LocalHost
from iris.worker_agents.local_cluster import LocalClusterOptions
from iris.worker_agents.local_launch import start_detached, stop_local

NAME = "bench"


@dataclass(frozen=True)
class Ground:
    """A running cluster and who serves what, by process."""

    record: ClusterRecord
    server: psutil.Process
    controller: psutil.Process
    agents: tuple[psutil.Process, ...]
    floor: list[psutil.Process] = field(default_factory=list)

    async def client(self) -> IrisClient:
        return IrisClient(await connect(self.record.address), self.record)


@contextlib.contextmanager
def cluster(hosts: int | tuple[LocalHost, ...]) -> Iterator[Ground]:
    """A local cluster with the settings of `iris cluster start --local`, gone at the end with all its files."""
    before = os.environ.get(names.ENV_STATE_DIR)
    with tempfile.TemporaryDirectory(prefix="iris-bench-", ignore_cleanup_errors=True) as directory:
        os.environ[names.ENV_STATE_DIR] = directory
        if isinstance(hosts, int):
            hosts = tuple(LocalHost(id=f"{NAME}-{number}") for number in range(hosts))
        options = LocalClusterOptions(name=NAME, hosts=hosts)
        try:
            record = start_detached(options)
            server, controller, *agents = (psutil.Process(process.pid) for process in record.processes)
            yield Ground(record, server, controller, tuple(agents))
        finally:
            stop_local(NAME)
            os.environ.pop(names.ENV_STATE_DIR)
            if before is not None:
                os.environ[names.ENV_STATE_DIR] = before


@contextlib.contextmanager
def beside_floor(hosts: int = 1) -> Iterator[Ground]:
    """A cluster and the floor's two workers on one server."""
    with cluster(hosts) as ground, contextlib.ExitStack() as stack:
        for role in ("workflows", "activities"):
            worker = stack.enter_context(child("benchmarks.floor", (ground.record.address, role)))
            ground.floor.append(psutil.Process(worker.pid))
        yield ground


@contextlib.contextmanager
def child(module: str, arguments: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process of this package; it ends when its standard input does."""
    command = [sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1])
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
    """User and system time they have used so far; with that of their ended children, if so wanted."""
    total = 0.0
    for process in processes:
        times = process.cpu_times()
        total += times.user + times.system
        total += times.children_user + times.children_system if children else 0.0
    return total
