"""Implements `iris controller manual`, which operates the control plane on this machine.

A client on another machine runs these commands over SSH.
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from iris.cli.show.messages import print_json, show_progress
from iris.client import operate
from iris.client.connect.clusters import not_running, read_record
from iris.client.operate import local
from iris.client.operate import manual as over_ssh
from iris.config import ClusterConfig, dump_config, load_config, on_its_machine
from iris.processes.process import be_private

if TYPE_CHECKING:
    from iris.client.operate.local.controller import LocalController

_config = click.option(
    "--config",
    "file",
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Configuration file.",
)


@click.group(hidden=True)
def manual() -> None:
    """Operate a control plane on this machine, for a client elsewhere."""


@manual.command()
@_config
def check(file: Path) -> None:
    """Log in to every host, and name the unusable ones. Fails if none can be used."""
    asyncio.run(over_ssh.start.prepare(_config_of(file), show_progress))


@manual.command()
@_config
def serve(file: Path) -> None:
    """Run the control plane and its Temporal service until SIGTERM."""
    from iris.worker_agents.local.cluster import LocalClusterOptions, supervise

    config = _config_of(file)
    umask = be_private()
    asyncio.run(supervise(LocalClusterOptions(name=config.name, config=dump_config(config)), umask))


@manual.command("reload")
@_config
def reload_(file: Path) -> None:
    """Apply the configuration to the running control plane."""
    _controller(file).reload()


@manual.command()
@_config
@click.option(
    "--give-up",
    multiple=True,
    metavar="ADDRESS",
    help="A host that will not come back. Repeatable.",
)
def stop(file: Path, give_up: tuple[str, ...]) -> None:
    """Give back the hosts, and stop the control plane."""
    controller = _controller(file)
    if give_up:
        controller.give_up(give_up)
    controller.stop()


@manual.command()
@_config
def rotate(file: Path) -> None:
    """Replace the key with which users' secrets are sealed. Prints what was done as JSON."""
    name = _config_of(file).name
    record = read_record(name)
    if record is None:
        raise not_running(name)
    print_json(asyncio.run(operate.key_rotation.rotate_keys(record)).facts)


def _controller(file: Path) -> "LocalController":
    return local.controller.LocalController(_config_of(file), progress=show_progress)


def _config_of(file: Path) -> ClusterConfig:
    """Returns the configuration, changed for the machine of the control plane."""
    return on_its_machine(load_config(file))
