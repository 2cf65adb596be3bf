"""Runs a cluster on one machine: a Temporal dev server and a control plane as children of one
supervisor, and the agents.

The supervisor restarts a child that dies. A lock on the cluster's directory prevents a second
supervisor. The supervisor records its children's process numbers, so that the next one can remove
what a `kill -9` of the supervisor left behind. It does not decide which machines exist: the
autoscaler requests slices from the local platform, and `MachineSupervisor` runs their agents. For a
cluster of machines over SSH, it has none: the control plane runs their agents.
"""

import asyncio
import contextlib
import logging
import os
import signal
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field

from iris.activities.host.runtimes.cleanup import trees
from iris.client.access.message_key import ensure_key
from iris.client.connect.clusters import (
    CONFIG,
    ClusterRecord,
    ProcessRef,
    make_cluster_dir,
    read_record,
    write_record,
)
from iris.client.connect.paths import state_dir
from iris.client.connect.secret_keys import ensure_keys
from iris.concurrency import pause
from iris.config import (
    ClusterConfig,
    dashboard_of,
    dump_config,
    load_config,
    local_config,
    scale_groups_of,
)
from iris.dashboard.installed import is_installed
from iris.model import names
from iris.model.frozen import Frozen
from iris.model.host.hosts import Host
from iris.model.slice.provisioning import SliceRequest
from iris.platforms.local import agent_command, slice_command
from iris.processes.children import Child
from iris.processes.process import IRIS, free_port, free_ports, locked, stop_event
from iris.storage.files import make_private
from iris.worker_agents.local.local_machines import MachineSupervisor
from iris.worker_agents.local.temporal_server import DATABASE, keep_history, server_command, started
from iris.worker_agents.local.ui_guard import guarding, hidden_address

logger = logging.getLogger(__name__)

#: The time limit for the start of a local cluster. It is long enough for a start after a crash: the
#: activity of a control plane that was killed is retried only after ten seconds. Only then does the
#: cluster learn that its machines are gone, and request other machines.
START_TIMEOUT = timedelta(minutes=2)
#: The time that each host adds to `START_TIMEOUT`. An agent needs 0.7 s of CPU to start, and a
#: laptop has few cores.
START_PER_HOST = timedelta(seconds=3)
CHILD_STOP_TIMEOUT = timedelta(seconds=10)
#: If a slice has at most this many hosts, each agent is a process of its own, unless the options
#: say otherwise. The agents of a larger slice share one process.
SEPARATE_UP_TO = 4
#: The name of the directory of the cluster's object store.
STORE = "store"
#: The pause between two checks that the cluster's owner is alive.
OWNER_INTERVAL = timedelta(seconds=1)


class Agents(StrEnum):
    """Whether the agents of a slice share one process, or each agent has a process of its own."""

    SHARED = "shared"
    SEPARATE = "separate"


class LocalClusterOptions(Frozen):
    """The options of a local cluster."""

    name: str = "local"
    #: The configuration of the cluster, as YAML.
    config: str = Field(default_factory=lambda: dump_config(local_config("local")))
    #: True if the state is kept in memory only, so that nothing is left after the cluster stops.
    ephemeral: bool = False
    #: The process that owns the cluster. The cluster stops when this process ends; if it is None,
    #: only `stop` ends the cluster.
    owner: ProcessRef | None = None
    #: Whether the agents of a slice share one process; None to decide by the size of the slice
    #: (`SEPARATE_UP_TO`).
    agents: Agents | None = None

    @property
    def hosts(self) -> int:
        """The number of hosts with which the cluster begins: the minimum of its groups. Machines
        over SSH come when they can.
        """
        config = load_config(self.config)
        if config.platform.manual is not None:
            return 0
        return sum(group.min_slices * group.hosts for group in scale_groups_of(config))


async def supervise(options: LocalClusterOptions, umask: int) -> None:
    """Runs the cluster until SIGTERM or SIGINT, then stops it.

    Args:
        umask: the umask of the users' programs.

    Raises:
        Rejected: a cluster of that name runs already.
        IrisError: it did not start within two minutes; the message has the last lines of the part
            that failed.
    """
    directory = make_cluster_dir(options.name)
    running = (
        f"local cluster {options.name!r} runs already; stop it with: iris cluster stop"
        f" {options.name}"
    )
    with locked(directory, running):
        clear_leftovers(options.name)
        # For the control plane, and for the agents of this machine. Those of others get the content
        # of the file.
        if not os.environ.get(names.ENV_SECRET_KEYS):
            os.environ[names.ENV_SECRET_KEYS] = str(ensure_keys(directory))
        os.environ[names.ENV_MESSAGE_KEY] = str(ensure_key(directory))
        cluster = _LocalCluster(options, directory, stop_event(), umask)
        try:
            await cluster.run()
        finally:
            await cluster.stop()
            if options.ephemeral:
                trees.remove(directory)


def clear_leftovers(name: str) -> None:
    """Kills the processes of a cluster whose supervisor is gone."""
    record = read_record(name)
    if record is None or record.alive():
        return
    for process in record.processes:
        if process.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


class _LocalCluster:
    """A running local cluster: its child processes and its record."""

    def __init__(
        self, options: LocalClusterOptions, directory: Path, stop: asyncio.Event, umask: int
    ) -> None:
        self._options = options
        self._dir = directory
        self._stop = stop
        config = load_config(options.config)
        over_ssh = config.platform.manual is not None
        before = read_record(options.name)
        port, ui_port = _ports(before, _chosen_port(config))
        self._dashboard_port = _dashboard_port(config, before, (port, ui_port))
        self._hidden_ui = hidden_address()
        self._record = ClusterRecord(
            name=options.name,
            address=f"127.0.0.1:{port}",
            store=config.controller.bundle_prefix if over_ssh else (directory / STORE).as_uri(),
            ui=f"http://127.0.0.1:{ui_port}" if self._hidden_ui is not None else "",
            dashboard=(
                dashboard_of(config, port=self._dashboard_port).url if is_installed() else ""
            ),
            supervisor=ProcessRef.of(os.getpid()),
            ephemeral=options.ephemeral,
            owned=options.owner is not None,
            over_ssh=over_ssh,
        )
        logs = directory / "logs"
        database = None if options.ephemeral else directory / DATABASE
        self._server = Child(
            "temporal",
            server_command(port, self._hidden_ui, database),
            logs / "temporal.log",
            directory=directory,
        )
        self._control = Child("controller", self._controller_command(), logs / "controller.log")
        self._machines = MachineSupervisor(
            machines_dir(directory),
            self._agent_command,
            logs,
            umask=umask,
            slice_command=self._slice_command,
        )
        self._machines_stop = asyncio.Event()
        self._machines_run: asyncio.Task[None] | None = None
        self._ui = contextlib.AsyncExitStack()

    async def run(self) -> None:
        """Starts everything in order, then keeps it running until the stop."""
        (self._dir / CONFIG).write_text(self._options.config)
        if not self._record.over_ssh:
            make_private(self._dir / STORE)
        # before the server starts: agents of an earlier supervisor must not report to it
        self._machines.clear()
        await self._server.start()
        client = await started(self._server, self._record.address, START_TIMEOUT)
        await keep_history(client)
        if self._hidden_ui is not None:
            await self._ui.enter_async_context(
                guarding(self._record.ui.removeprefix("http://"), self._hidden_ui)
            )
        self._machines_run = asyncio.create_task(self._keep_machines())
        keepers = [
            asyncio.create_task(self._control.keep(self._stop, lambda _: self._write())),
            asyncio.create_task(self._keep_server()),
        ]
        if self._options.owner is not None:
            keepers.append(asyncio.create_task(self._stop_with(self._options.owner)))
        logger.info(
            "cluster %s: %s, Web UI %s",
            self._options.name,
            self._record.address,
            self._record.ui or "-",
        )
        stopped = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({stopped, self._machines_run}, return_when=asyncio.FIRST_COMPLETED)
        if not self._stop.is_set():
            logger.error("the supervision of the machines failed, so the cluster stops")
            self._stop.set()
        await asyncio.gather(*keepers)

    async def stop(self) -> None:
        """Stops the agents first, so that they can report how their programs ended, and the server
        last.
        """
        self._machines_stop.set()
        await self._ui.aclose()
        try:
            if self._machines_run is not None:
                await self._machines_run
        finally:
            await self._control.stop(CHILD_STOP_TIMEOUT)
            await self._server.stop(CHILD_STOP_TIMEOUT)

    async def _keep_machines(self) -> None:
        if self._record.over_ssh:
            await self._machines_stop.wait()
        else:
            await self._machines.run(self._machines_stop)

    async def _keep_server(self) -> None:
        """Waits for the end of the running server, then keeps a new one running."""
        assert self._server.process is not None
        ended = asyncio.ensure_future(self._server.process.wait())
        stopped = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if self._stop.is_set():
            return
        if self._options.ephemeral:
            logger.error(
                "the Temporal server of an ephemeral cluster ended with status %s, so the cluster"
                " stops",
                ended.result(),
            )
            self._stop.set()
            return
        logger.warning("temporal ended with status %s and is started again", ended.result())
        await self._server.keep(self._stop, lambda _: self._write())

    async def _stop_with(self, owner: ProcessRef) -> None:
        """Stops the cluster when its owner has ended."""
        while not self._stop.is_set():
            if not owner.alive():
                logger.info(
                    "process %s, which the cluster belongs to, has ended, so the cluster stops",
                    owner.pid,
                )
                self._stop.set()
            await pause(self._stop, OWNER_INTERVAL)

    def _controller_command(self) -> list[str]:
        record = self._record
        command = [*IRIS, "controller", "serve", "--name", record.name]
        command += ["--address", record.address, "--store", record.store, "--ui", record.ui]
        command += ["--dashboard-port", str(self._dashboard_port)]
        return [
            *command,
            "--config",
            str(self._dir / CONFIG),
            "--machines",
            str(machines_dir(self._dir)),
        ]

    def _agent_command(self, request: SliceRequest, host: Host) -> list[str]:
        """Returns the command line of a host's agent."""
        return [
            *agent_command(request, host, machines_dir(self._dir) / request.slice_id),
            *self._of_all_agents(),
        ]

    def _slice_command(self, request: SliceRequest) -> list[str] | None:
        """Returns the command line of the one process of a slice's agents; None: each has a process
        of its own.
        """
        separate_up_to = 1 if self._options.agents is Agents.SHARED else SEPARATE_UP_TO
        if self._options.agents is Agents.SEPARATE or request.group.hosts <= separate_up_to:
            return None
        return [
            *slice_command(request, machines_dir(self._dir) / request.slice_id),
            *self._of_all_agents(),
        ]

    def _of_all_agents(self) -> list[str]:
        return ["--config", str(self._dir / CONFIG), "--cache", str(state_dir() / "cache")]

    def _write(self) -> None:
        running = [
            child.process.pid
            for child in (self._server, self._control)
            if child.process is not None
        ]
        processes = tuple(ref for pid in running if (ref := ProcessRef.of(pid)) is not None)
        self._record = self._record.model_copy(update={"processes": processes})
        write_record(self._record)


def machines_dir(directory: Path) -> Path:
    """Returns the directory that a cluster's local platform and its `MachineSupervisor` share."""
    return directory / "machines"


def _chosen_port(config: ClusterConfig) -> int:
    """Returns the port for clients that the configuration names; 0: none."""
    controller = config.controller.local
    return controller.port if controller is not None else 0


def _port_of(address: str) -> int:
    """Returns the port of an address; 0 if it is empty."""
    return int(address.rpartition(":")[2]) if address else 0


def _dashboard_port(
    config: ClusterConfig, before: ClusterRecord | None, taken: tuple[int, ...]
) -> int:
    """Returns the port of the dashboard: that of the configuration, or else that of the last run if
    it is free, or else a free one; 0 for none.

    Args:
        taken: the ports of the service and of the Web UI.
    """
    if config.dashboard.port is not None:
        return config.dashboard.port
    before_port = urlsplit(before.dashboard).port if before is not None else None
    return free_port(before_port or 0, taken)


def _ports(before: ClusterRecord | None, chosen: int = 0) -> tuple[int, int]:
    """Returns the ports of the service and of the Web UI.

    They are those of the last run if they are free, so that addresses stay the same; else any two
    free ports.

    Args:
        chosen: the port of the service that the configuration names; 0: none.
    """
    if chosen:
        before_ui = _port_of(before.ui) if before is not None else 0
        ui_port = next(port for port in (before_ui, *free_ports()) if port not in (0, chosen))
        return chosen, ui_port
    if before is None:
        return free_ports()
    port = _port_of(before.address)
    return free_ports((port, _port_of(before.ui) or port + 1))
