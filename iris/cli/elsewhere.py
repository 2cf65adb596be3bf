"""Starts clusters that are not on this machine, and finds the cluster that a control plane command acts on."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iris.cli.common import print_json
from iris.client.connect.clusters import ClusterRecord, check_is_free, known_clusters, read_record
from iris.config import load_written
from iris.model.errors import NotFound
from iris.model.names import check_name

if TYPE_CHECKING:
    from iris.client.operate.control import ControllerProtocol

#: `--config` of a command that acts on a cluster.
config_option = click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The cluster of this configuration, instead of NAME: nobody here has to know it.",
)
#: Options of `iris cluster start` that describe a cluster on this machine.
_LOCAL_ONLY = (
    *("name", "hosts", "tpu", "slices", "ephemeral", "cpu", "memory", "disk", "device", "attribute"),
    *("preemption", "patience", "min_run_time"),
)


def start(asked: dict[str, Any], *, dry_run: bool) -> ClusterRecord | None:
    """Starts the configuration's cluster and returns its record, or prints the requests to the cloud.

    Raises:
        InvalidValue: this version cannot start it from here.
        IrisError: it did not start.
    """
    from iris.client.operate.controllers import create_controller

    file: Path | None = asked["file"]
    if file is None:
        raise click.UsageError("say --local for a cluster on this machine, or with --config what one elsewhere consists of")
    config, text = load_written(file)
    if config.controller.local is not None:
        raise click.UsageError(f"the control plane of {file} is on this machine: say --local")
    beside = [f"--{option.replace('_', '-')}" for option in _LOCAL_ONLY if asked[option] not in (None, (), False)]
    if beside:
        raise click.UsageError(f"{', '.join(beside)}: of a cluster elsewhere that is in the file of --config; change it there")
    controller = create_controller(config, text=text, tell=say)
    if dry_run:
        print_json(controller.requests())
        return None
    controller.start(new=asked["new"])
    return read_record(config.name)


def named(ctx: click.Context, name: str | None, file: Path | None) -> str | None:
    """Returns the NAME of the command, else the name before the command. Returns None if the command has a configuration.

    Raises:
        click.UsageError: both a name and a configuration are given.
    """
    if file is None:
        return name or ctx.find_root().obj["cluster"]
    if name is not None:
        raise click.UsageError("NAME and --config FILE: say which cluster by one of them")
    return None


def meant(name: str | None) -> ClusterRecord:
    """Returns the cluster of that name that was started from here, running or not, or the only one that runs.

    Raises:
        NotFound: there is no such cluster, or there are several.
    """
    if name is not None:
        record = read_record(check_name("name", name))
        if record is None:
            raise NotFound(
                f"there is no local cluster {name!r}, and none elsewhere that was started from here; of such a one name the "
                f"configuration with --config FILE"
            )
        return record
    found = known_clusters()
    if not found:
        raise NotFound("no local cluster runs, and none elsewhere was started from here")
    if len(found) > 1:
        raise NotFound(f"several clusters run ({', '.join(record.name for record in found)}); name one")
    return found[0]


def controller_of(name: str | None, file: Path | None) -> tuple[str, "ControllerProtocol"]:
    """Returns the name and the control plane of the cluster of that configuration or name, or of the only one that runs.

    Raises:
        NotFound: there is no such cluster, or there are several.
        InvalidConfig, InvalidValue: the configuration cannot be used.
    """
    from iris.client.operate.controllers import LocalController, create_controller, known_controller

    if file is None:
        record = meant(name)
        return record.name, known_controller(record, say)
    config, text = load_written(file)
    if config.controller.local is not None:
        check_is_free(config.name)
        return config.name, LocalController.of(meant(config.name).name, say)
    return config.name, create_controller(config, text=text, tell=say)


def say(text: str) -> None:
    """Prints what a long operation waits for."""
    click.echo(text, err=True)
