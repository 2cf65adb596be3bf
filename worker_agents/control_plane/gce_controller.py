"""Runs the control plane on a machine of its own, with a Temporal server that keeps its state on
the machine's disk.

The Temporal server is left out if the configuration names another one. The configuration comes from
the machine's metadata, which is how a running cluster gets a new one. Without that metadata, it
comes from the file that the process was started with.
"""

import asyncio
import contextlib
import logging
from datetime import timedelta
from pathlib import Path

from iris.config import ClusterConfig, InvalidConfig, dashboard_of, load_config
from iris.model.errors import InvalidValue
from iris.model.frozen import Frozen
from iris.platforms.gcp.labels import CONFIG_KEY
from iris.processes.children import Child
from iris.processes.process import IRIS, free_ports, locked, stop_event
from iris.storage.files import write_whole
from iris.worker_agents.control_plane.config_watcher import check_successor
from iris.worker_agents.host.metadata import Metadata, of_this_machine
from iris.worker_agents.local.one_port import publishing
from iris.worker_agents.local.temporal_server import DATABASE, keep_history, server_command, started
from iris.worker_agents.local.ui_guard import guarding, hidden_address

logger = logging.getLogger(__name__)

#: The time limit for the start of the Temporal server, which loads the database file of a large
#: cluster.
START_TIMEOUT = timedelta(minutes=2)
#: The time in which the control plane must stop. It is less than the 10 s that Docker gives a
#: container.
STOP = timedelta(seconds=4)
#: The number of early deaths of the control plane in a row after which its container ends. The
#: container then shows the control plane's last output to the user who waits for the machine. Once
#: a control plane has run for long enough in this container, there is no such limit any more.
START_ATTEMPTS = 3
#: The interval between two requests for a new configuration while the metadata server does not
#: answer.
ASK_AGAIN = timedelta(seconds=10)
_ATTRIBUTE = f"instance/attributes/{CONFIG_KEY}"


class HostedOptions(Frozen):
    """The options of a control plane that has a machine of its own."""

    #: The configuration file. The configuration in the machine's metadata takes precedence.
    config: Path
    #: The directory on the machine's disk for the state that outlives this process.
    state_dir: Path
    #: The port of the Temporal server, which is open to the network. The server's Web UI has the
    #: next port and the dashboard the one after it, which only this machine can reach.
    port: int
    #: `host:port` at which hosts reach the Temporal server; None for the address that the metadata
    #: server gives.
    advertise: str | None = None
    #: The port at which the control plane serves its metrics; None: the configuration decides.
    metrics_port: int | None = None
    #: The address at which the control plane serves its metrics; None: the configuration decides.
    metrics_address: str | None = None

    @property
    def of_metrics(self) -> list[str]:
        """The command-line arguments that pass the options for metrics to the control plane."""
        given = {"--metrics-port": self.metrics_port, "--metrics-address": self.metrics_address}
        return [f"{option}={value}" for option, value in given.items() if value is not None]


async def run(options: HostedOptions) -> None:
    """Serves the cluster until SIGTERM or SIGINT.

    Raises:
        InvalidConfig: the configuration cannot be used.
        InvalidValue: the address at which hosts reach this machine is not known.
        Rejected: another process uses the state directory.
        IrisError: the Temporal server did not start, the port or the next one is in use, or the
            control plane does not come up.
    """
    stop = stop_event()
    metadata = of_this_machine()
    with locked(
        options.state_dir,
        f"another control plane uses {options.state_dir}; stop it or choose another --state-dir",
    ):
        file = options.state_dir / "config.yaml"
        text = await _configuration(options.config, metadata)
        write_whole(file, text)
        config = load_config(text)
        follower = (
            asyncio.create_task(follow(file, text, metadata)) if metadata is not None else None
        )
        try:
            if config.controller.temporal is None:
                advertise = options.advertise or await own_address(metadata, options.port)
                await _with_server(options, config, file, advertise, stop)
            else:
                control = _control(options, config, file, config.controller.temporal.address)
                await _keep(control, stop)
        finally:
            if follower is not None:
                follower.cancel()


async def _with_server(
    options: HostedOptions, config: ClusterConfig, file: Path, advertise: str, stop: asyncio.Event
) -> None:
    port, _ = free_ports()
    address, ui = f"127.0.0.1:{port}", hidden_address()
    server = Child(
        "temporal",
        server_command(port, ui, options.state_dir / DATABASE, safe=True),
        None,
        directory=options.state_dir,
    )
    await server.start()
    try:
        await keep_history(await started(server, address, START_TIMEOUT))
        server_task = asyncio.create_task(server.keep(stop))
        try:
            async with contextlib.AsyncExitStack() as open_ports:
                await open_ports.enter_async_context(publishing(options.port, ("127.0.0.1", port)))
                if ui is not None:
                    await open_ports.enter_async_context(
                        guarding(f"127.0.0.1:{options.port + 1}", ui)
                    )
                logger.info("cluster %s: Temporal listens at %s", config.name, advertise)
                await _keep(_control(options, config, file, address, advertise), stop)
                await server_task
        finally:
            server_task.cancel()
    finally:
        await server.stop(STOP)


async def _keep(control: Child, stop: asyncio.Event) -> None:
    try:
        await control.keep(stop, tries=START_ATTEMPTS)
    finally:
        await control.stop(STOP)


def _control(
    options: HostedOptions, config: ClusterConfig, file: Path, address: str, advertise: str = ""
) -> Child:
    """Returns the control plane as a child process. If it dies, the server continues to run."""
    temporal = config.controller.temporal
    command = [
        *IRIS,
        "controller",
        "serve",
        "--name",
        config.name,
        "--address",
        address,
    ]
    command += ["--namespace", temporal.namespace if temporal is not None else "default"]
    command += ["--store", config.controller.bundle_prefix, "--config", str(file)]
    command += ["--advertise", advertise or address, *options.of_metrics]
    command += ["--dashboard-port", str(dashboard_of(config, service=options.port).port)]
    return Child("controller", command, None)


# -- its address
# --------------------------------------------------------------------------------------------------


async def own_address(metadata: Metadata | None, port: int) -> str:
    """Returns `address:port` inside the network. The machine keeps the address until it is deleted,
    even while it is stopped.

    The machine's name will not do: TPU VMs belong to another project, and may not resolve the names
    of this one.

    Raises:
        InvalidValue: this is not a machine of Google's, or its metadata server does not give the
            address.
    """
    address = (
        await metadata.get("instance/network-interfaces/0/ip") if metadata is not None else None
    )
    if not address:
        raise InvalidValue(
            "advertise",
            "",
            "is required: no metadata server gives this machine's address",
            "add --advertise HOST:PORT",
        )
    return f"{address.strip()}:{port}"


# -- its configuration
# --------------------------------------------------------------------------------------------------


async def _configuration(given: Path, metadata: Metadata | None) -> str:
    """Returns the metadata's configuration if it can be used, else the contents of the given
    file.
    """
    text = await metadata.get(_ATTRIBUTE) if metadata is not None else None
    if text is not None:
        try:
            load_config(text)
        except InvalidConfig as error:
            _log_ignored(error)
        else:
            return text
    return given.read_bytes().decode()


def _log_ignored(error: InvalidConfig) -> None:
    logger.warning("the configuration in the machine's metadata is ignored: %s", error)


async def follow(file: Path, written: str, metadata: Metadata) -> None:
    """Writes every new configuration in the machine's metadata that this cluster can use, until it
    is cancelled.

    Ignores any other configuration, with which a restarted control plane could not run.

    Args:
        written: the contents of the file.
    """
    config = load_config(written)
    etag: str | None = None
    while True:
        with contextlib.suppress(OSError):
            value = await metadata.ask(_ATTRIBUTE, changed_from=etag)
            if value.text is not None:
                if value.text != written:
                    try:
                        check_successor(config, load_config(value.text))
                    except InvalidConfig as error:
                        _log_ignored(error)
                    else:
                        logger.info("the configuration has changed")
                        write_whole(file, value.text)
                        written = value.text
                etag = value.etag
                continue
        await asyncio.sleep(ASK_AGAIN.total_seconds())
