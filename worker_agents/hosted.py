"""The control plane on a machine of its own, with a Temporal server whose state is on the machine's disk, unless there is one
elsewhere.

The configuration is the one that the machine's metadata has, where it has one: that is how a running cluster gets another one.
Else it is the file that it was started with.
"""

import asyncio
import contextlib
import logging
import sys
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from iris.config import ClusterConfig, InvalidConfig, load_config
from iris.errors import InvalidValue
from iris.files import write_whole
from iris.platforms.gcp.marks import CONFIG_KEY
from iris.worker_agents.children import Child, Restarts
from iris.worker_agents.metadata import Metadata, of_this_machine
from iris.worker_agents.process import locked, stop_event
from iris.worker_agents.temporal_server import DATABASE, keep_history, server_command, started

logger = logging.getLogger(__name__)

#: A file of a large cluster takes its time.
START_TIMEOUT = timedelta(minutes=2)
#: A container that is told to stop has ten seconds.
STOP = timedelta(seconds=4)
RESTARTS = Restarts()
#: Between two questions for another configuration, while nobody answers them.
ASK_AGAIN = timedelta(seconds=10)
_ATTRIBUTE = f"instance/attributes/{CONFIG_KEY}"


class HostedOptions(BaseModel):
    """What a control plane on a machine of its own is told."""

    model_config = ConfigDict(frozen=True)

    #: What the cluster consists of, unless the machine's metadata says it.
    config: Path
    #: What has to outlive this process: on the machine's disk.
    state_dir: Path
    #: Of the Temporal server beside it; its Web UI has the next one, on this machine only.
    port: int
    #: `host:port` of that server as hosts reach it; None: by the name that the metadata server knows.
    advertise: str | None = None


async def run(options: HostedOptions) -> None:
    """Serve the cluster until SIGTERM or SIGINT.

    Raises:
        InvalidConfig: the configuration cannot be used.
        InvalidValue: nobody knows how hosts reach this machine.
        Rejected: somebody else works in the state directory.
        IrisError: the Temporal server did not start.
    """
    stop = stop_event()
    metadata = of_this_machine()
    with locked(options.state_dir, f"another control plane works in {options.state_dir}"):
        file = options.state_dir / "config.yaml"
        text = await _configuration(options.config, metadata)
        write_whole(file, text)
        config = load_config(text)
        follower = asyncio.create_task(_follow(file, text, metadata)) if metadata is not None else None
        try:
            if config.controller.temporal is None:
                advertise = options.advertise or await own_address(metadata, options.port)
                await _with_server(options, config, file, advertise, stop)
            else:
                await _keep(_control(config, file, config.controller.temporal.address), stop)
        finally:
            if follower is not None:
                follower.cancel()


async def _with_server(options: HostedOptions, config: ClusterConfig, file: Path, advertise: str, stop: asyncio.Event) -> None:
    command = server_command(options.port, options.port + 1, options.state_dir / DATABASE, ip="0.0.0.0", safe=True)
    server = Child("temporal", command, None)
    await server.start()
    try:
        address = f"127.0.0.1:{options.port}"
        await keep_history(await started(server, address, START_TIMEOUT))
        logger.info("cluster %s: Temporal serves at %s", config.name, advertise)
        keeper = asyncio.create_task(server.keep(stop, RESTARTS, lambda _: None))
        await _keep(_control(config, file, address, advertise), stop)
        await keeper
    finally:
        await server.stop(STOP)


async def _keep(control: Child, stop: asyncio.Event) -> None:
    try:
        await control.keep(stop, RESTARTS, lambda _: None)
    finally:
        await control.stop(STOP)


def _control(config: ClusterConfig, file: Path, address: str, advertise: str = "") -> Child:
    """The control plane as a process of its own: it may die, and the server lives on."""
    temporal = config.controller.temporal
    command = [sys.executable, "-m", "iris.cli.main", "controller", "serve", "--name", config.name, "--address", address]
    command += ["--namespace", temporal.namespace if temporal is not None else "default"]
    command += ["--store", config.controller.bundle_prefix, "--config", str(file)]
    return Child("controller", [*command, "--advertise", advertise or address], None)


# -- its address ---------------------------------------------------------------------------------------------------------------


async def own_address(metadata: Metadata | None, port: int) -> str:
    """`host:port` by the name that the machine keeps when it is made anew.

    Raises:
        InvalidValue: it is no machine of Google's, or its metadata server does not say.
    """
    name = await metadata.get("instance/hostname") if metadata is not None else None
    if not name:
        raise InvalidValue(
            "advertise", "", "is needed: no metadata server knows this machine's name", "say --advertise HOST:PORT"
        )
    return f"{name.strip()}:{port}"


# -- its configuration ---------------------------------------------------------------------------------------------------------


async def _configuration(given: Path, metadata: Metadata | None) -> str:
    """The metadata's if it can be used, else what is in the given file."""
    said = await metadata.get(_ATTRIBUTE) if metadata is not None else None
    if said is not None:
        try:
            load_config(said)
        except InvalidConfig as error:
            logger.warning("the configuration of the machine's metadata is passed over: %s", error)
        else:
            return said
    return given.read_bytes().decode()


async def _follow(file: Path, written: str, metadata: Metadata) -> None:
    """Write every other configuration that the machine's metadata gets; whoever reads the file sees whether it can be used."""
    etag: str | None = None
    while True:
        with contextlib.suppress(OSError):
            value = await metadata.ask(_ATTRIBUTE, changed_from=etag)
            if value.text is not None:
                if value.text != written:
                    logger.info("there is another configuration")
                    write_whole(file, written := value.text)
                etag = value.etag
                continue
        await asyncio.sleep(ASK_AGAIN.total_seconds())
