"""A cluster on one machine: a Temporal dev server, a control plane and a machine room, as children and part of one supervisor.

The supervisor restarts a child that dies. It holds a lock on the cluster's directory, so that there is one of it; and it writes
down its children's process numbers, so that the next one can clear away what a `kill -9` of the supervisor left behind. Which
machines there are is not its business: the autoscaler asks the local platform for slices, and the machine room runs their agents.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from iris.client.clusters import CONFIG, ClusterRecord, ProcessRef, cluster_dir, read_record, state_dir, write_record
from iris.config import dump_config, groups, load_config, local_config
from iris.hosts import Host
from iris.machines import SliceRequest
from iris.platforms.local import agent_command
from iris.worker_agents.children import Child, Restarts
from iris.worker_agents.machine_room import MachineRoom
from iris.worker_agents.process import free_ports, locked, stop_event
from iris.worker_agents.temporal_server import DATABASE, keep_history, server_command, started

logger = logging.getLogger(__name__)

#: Most of it is for a start after a crash: what a control plane was at when it was killed is tried again after ten seconds, and
#: only then does the cluster know that its machines are gone, and ask for others.
START_TIMEOUT = timedelta(seconds=60)
#: Beyond that, for each host: an agent needs a second and a half of CPU to start, and a laptop has few.
START_PER_HOST = timedelta(seconds=3)
RESTARTS = Restarts()
STOP = timedelta(seconds=10)


class LocalClusterOptions(BaseModel):
    """What a local cluster consists of."""

    model_config = ConfigDict(frozen=True)

    name: str = "local"
    #: The configuration, as YAML.
    config: str = Field(default_factory=lambda: dump_config(local_config("local")))
    #: In memory: nothing is left when it stops.
    ephemeral: bool = False

    @property
    def hosts(self) -> int:
        """How many hosts it begins with: those that its groups have at the least."""
        return sum(group.min_slices * group.hosts for group in groups(load_config(self.config)))


async def supervise(options: LocalClusterOptions) -> None:
    """Run the cluster until SIGTERM or SIGINT, then stop it.

    Raises:
        Rejected: a cluster of that name runs already.
        IrisError: it did not start within a minute; the message has the last lines of the part that failed.
    """
    directory = cluster_dir(options.name)
    running = f"local cluster {options.name!r} runs already; stop it with: iris cluster stop {options.name}"
    with locked(directory, running):
        clear_leftovers(options.name)
        cluster = _LocalCluster(options, directory, stop_event())
        try:
            await cluster.run()
        finally:
            await cluster.stop()
            if options.ephemeral:
                shutil.rmtree(directory, ignore_errors=True)


def clear_leftovers(name: str) -> None:
    """End what is left of a cluster whose supervisor is gone."""
    record = read_record(name)
    if record is None or record.alive():
        return
    for process in record.processes:
        if process.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


class _LocalCluster:
    """The children and the record of a running cluster."""

    def __init__(self, options: LocalClusterOptions, directory: Path, stop: asyncio.Event) -> None:
        self._options = options
        self._dir = directory
        self._stop = stop
        port, ui_port = _ports(read_record(options.name))
        self._record = ClusterRecord(
            name=options.name,
            address=f"127.0.0.1:{port}",
            store=(directory / "store").as_uri(),
            ui=f"http://127.0.0.1:{ui_port}",
            supervisor=ProcessRef.of(os.getpid()),
            ephemeral=options.ephemeral,
        )
        logs = directory / "logs"
        database = None if options.ephemeral else directory / DATABASE
        self._server = Child("temporal", server_command(port, ui_port, database), logs / "temporal.log")
        self._control = Child("controller", self._controller_command(), logs / "controller.log")
        self._room = MachineRoom(machines_dir(directory), self._agent_command, logs)
        self._room_closes = asyncio.Event()
        self._room_open: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Start everything in order, then keep it running until the stop."""
        (self._dir / CONFIG).write_text(self._options.config)
        self._room.clear()  # before there is a server: the agents of another room have nothing to say to it
        await self._server.start()
        client = await started(self._server, self._record.address, START_TIMEOUT)
        await keep_history(client)
        self._room_open = asyncio.create_task(self._room.run(self._room_closes))
        keepers = [
            asyncio.create_task(self._control.keep(self._stop, RESTARTS, lambda _: self._write())),
            asyncio.create_task(self._keep_server()),
        ]
        logger.info("cluster %s: %s, Web UI %s", self._options.name, self._record.address, self._record.ui)
        stopped = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({stopped, self._room_open}, return_when=asyncio.FIRST_COMPLETED)
        if not self._stop.is_set():
            logger.error("the machine room has ended, and the cluster with it")
            self._stop.set()
        await asyncio.gather(*keepers)

    async def stop(self) -> None:
        """Agents first, so that they can say how their programs ended; the server last."""
        self._room_closes.set()
        try:
            if self._room_open is not None:
                await self._room_open
        finally:
            await self._control.stop(STOP)
            await self._server.stop(STOP)

    async def _keep_server(self) -> None:
        """The one that runs, and then those that come after it."""
        assert self._server.process is not None
        ended = asyncio.ensure_future(self._server.process.wait())
        stopped = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if self._stop.is_set():
            return
        if self._options.ephemeral:
            logger.error("the Temporal server of an ephemeral cluster ended (%s), and everything with it", ended.result())
            self._stop.set()
            return
        logger.warning("temporal ended with status %s and is started again", ended.result())
        await self._server.keep(self._stop, RESTARTS, lambda _: self._write())

    def _controller_command(self) -> list[str]:
        record = self._record
        command = [sys.executable, "-m", "iris.cli.main", "controller", "serve", "--name", record.name]
        command += ["--address", record.address, "--store", record.store, "--ui", record.ui]
        return [*command, "--config", str(self._dir / CONFIG), "--machines", str(machines_dir(self._dir))]

    def _agent_command(self, request: SliceRequest, host: Host) -> list[str]:
        """What a host writes is below its slice's directory, and goes with it."""
        command = agent_command(request, host, machines_dir(self._dir) / request.slice_id / "hosts" / host.id)
        return [*command, "--config", str(self._dir / CONFIG), "--cache", str(state_dir() / "cache")]

    def _write(self) -> None:
        running = [child.process.pid for child in (self._server, self._control) if child.process is not None]
        processes = tuple(ref for pid in running if (ref := ProcessRef.of(pid)) is not None)
        self._record = self._record.model_copy(update={"processes": processes})
        write_record(self._record)


def machines_dir(directory: Path) -> Path:
    """Where a cluster's local platform and its machine room meet."""
    return directory / "machines"


def _ports(before: ClusterRecord | None) -> tuple[int, int]:
    """The ports of last time where they are free, so that addresses stay; else any two."""
    if before is None:
        return free_ports()
    return free_ports((int(before.address.rpartition(":")[2]), int(before.ui.rpartition(":")[2])))
