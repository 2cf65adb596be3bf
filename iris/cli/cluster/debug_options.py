"""The options of the commands of `iris debug`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from iris.cli.parameters import cluster_option, json_option

Function = TypeVar("Function", bound=Callable[..., Any])


def _set_config(ctx: click.Context, _: click.Parameter, value: Path | None) -> None:
    if value is not None:
        ctx.find_root().obj["config"] = value


#: The option `--config` of `iris debug` and of each of its commands.
config_option = click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    expose_value=False,
    callback=_set_config,
    help="Configuration file of the cluster.",
)


def debug_options(command: Function) -> Function:
    """Adds the options of every debug command: configuration, cluster and JSON."""
    for option in (json_option, cluster_option, config_option):
        command = option(command)
    return command
