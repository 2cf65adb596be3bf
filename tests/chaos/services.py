"""The Temporal service of a chaos run, whose processes can be ended and stopped one by one."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import psutil

from iris.processes.process import free_ports
from iris.worker_agents.local.temporal_server import DATABASE, server_command
from tests.e2e.cluster import eventually
from tests.e2e.google.cluster import listens
from tests.temporal_cluster import TemporalCluster


class Service(Protocol):
    """A Temporal service. The name of a part is that of a fault's target."""

    ports: list[int]
    servers: list[str]
    databases: list[str]

    def start(self) -> None: ...

    def kill(self, part: str) -> None: ...

    def begin(self, part: str) -> None:
        """Starts a part that does not run, and does not wait for it."""
        ...

    def processes(self, part: str) -> list[psutil.Process]: ...

    def stop(self) -> None: ...


class DevServer:
    """The dev server, with its state in a file."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self.ports = [free_ports()[0]]
        self.servers, self.databases = ["server"], list[str]()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.begin("server")
        eventually(lambda: listens(self.ports[0]))

    def begin(self, part: str) -> None:
        with (self._directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                server_command(self.ports[0], None, Path(DATABASE)),
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, part: str) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def processes(self, part: str) -> list[psutil.Process]:
        assert self._process is not None
        return [psutil.Process(self._process.pid)]

    def stop(self) -> None:
        self.kill("server")


class OfficialServer:
    """Two processes of the official server on PostgreSQL (`scripts/temporal-cluster`)."""

    def __init__(self, directory: Path) -> None:
        self._cluster = TemporalCluster(directory)
        self.servers, self.databases = ["server-0", "server-1"], ["postgres"]
        self.ports: list[int] = []

    def start(self) -> None:
        # Pools and pings need it. It is on by default from version 1.32 on.
        service = self._cluster.start(servers=2, settings={"activity.enableStandalone": True})
        self.ports = [int(address.rpartition(":")[2]) for address in service.addresses]

    def begin(self, part: str) -> None:
        if part == "postgres":
            self._cluster.start_postgres()
        else:
            self._cluster.start_server(self.servers.index(part))

    def kill(self, part: str) -> None:
        self._cluster.end(part, signal.SIGKILL)

    def processes(self, part: str) -> list[psutil.Process]:
        process = psutil.Process(self._cluster.service.processes[part].pid)
        return [process, *process.children(recursive=True)]

    def stop(self) -> None:
        self._cluster.stop(signal.SIGKILL)


def stop_processes(processes: list[psutil.Process]) -> None:
    """SIGSTOP: they do nothing, and keep their connections."""
    _send(processes, signal.SIGSTOP)


def continue_processes(processes: list[psutil.Process]) -> None:
    """SIGCONT."""
    _send(processes, signal.SIGCONT)


def _send(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            os.kill(process.pid, number)
