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
from iris.worker_agents.configured import check_successor
from iris.worker_agents.metadata import Metadata, of_this_machine
from iris.worker_agents.process import locked, stop_event
from iris.worker_agents.temporal_server import DATABASE, keep_history, server_command, started

logger = logging.getLogger(__name__)

#: A file of a large cluster takes its time.
START_TIMEOUT = timedelta(minutes=2)
#: A container that is told to stop has ten seconds.
STOP = timedelta(seconds=4)
RESTARTS = Restarts()
#: A control plane that dies so often before it has ever lived does not come up: the container ends with its last words, and
#: whoever waits for the machine is told them.
FIRST_LIVES = 3
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
    #: `host:port` of that server as hosts reach it; None: at the address that the metadata server knows.
    advertise: str | None = None


async def run(options: HostedOptions) -> None:
    """Serve the cluster until SIGTERM or SIGINT.

    Raises:
        InvalidConfig: the configuration cannot be used.
        InvalidValue: nobody knows how hosts reach this machine.
        Rejected: somebody else works in the state directory.
        IrisError: the Temporal server did not start, or the control plane does not come up.
    """
    stop = stop_event()
    metadata = of_this_machine()
    with locked(options.state_dir, f"another control plane works in {options.state_dir}"):
        file = options.state_dir / "config.yaml"
        text = await _configuration(options.config, metadata)
        write_whole(file, text)
        config = load_config(text)
        follower = asyncio.create_task(follow(file, text, metadata)) if metadata is not None else None
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
        try:
            await _keep(_control(config, file, address, advertise), stop)
            await keeper
        finally:
            keeper.cancel()
    finally:
        await server.stop(STOP)


async def _keep(control: Child, stop: asyncio.Event) -> None:
    try:
        await control.keep(stop, RESTARTS, lambda _: None, tries=FIRST_LIVES)
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
    """`address:port` inside the network, which the machine keeps until it is deleted, switched off or not.

    Not by its name: TPU VMs are machines of another project, and need not resolve the names of this one.

    Raises:
        InvalidValue: it is no machine of Google's, or its metadata server does not say.
    """
    address = await metadata.get("instance/network-interfaces/0/ip") if metadata is not None else None
    if not address:
        raise InvalidValue(
            "advertise", "", "is needed: no metadata server knows this machine's address", "say --advertise HOST:PORT"
        )
    return f"{address.strip()}:{port}"


# -- its configuration ---------------------------------------------------------------------------------------------------------


async def _configuration(given: Path, metadata: Metadata | None) -> str:
    """The metadata's if it can be used, else what is in the given file."""
    said = await metadata.get(_ATTRIBUTE) if metadata is not None else None
    if said is not None:
        try:
            load_config(said)
        except InvalidConfig as error:
            _passed_over(error)
        else:
            return said
    return given.read_bytes().decode()


def _passed_over(error: InvalidConfig) -> None:
    logger.warning("the configuration of the machine's metadata is passed over: %s", error)


async def follow(file: Path, written: str, metadata: Metadata) -> None:
    """Write every other configuration that the machine's metadata gets and this cluster can use, until it is cancelled.

    Any other one is passed over: a control plane that is started anew could do nothing with it.

    Args:
        written: what is in the file.
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
                        _passed_over(error)
                    else:
                        logger.info("there is another configuration")
                        write_whole(file, value.text)
                        written = value.text
                etag = value.etag
                continue
        await asyncio.sleep(ASK_AGAIN.total_seconds())
