"""Implements `iris cluster config check | show | schema`."""

import json
from pathlib import Path
from typing import Any

import click

from iris.cli.command import CommandGroup
from iris.cli.parameters import json_option
from iris.cli.show.columns import Column
from iris.cli.show.listing import Listing
from iris.cli.show.messages import print_json, show_warnings
from iris.config import (
    ClusterConfig,
    InvalidConfig,
    config_values,
    dump_config,
    lines_of,
    load_config,
    load_written,
    make_local_config,
    origins,
    risks,
    scale_groups_of,
    unserved,
)
from iris.config.defaults import IN_FILE
from iris.model.slice.scale_groups import ScaleGroup

#: The origin that `show --origin` names for a value that the option `--local` has changed.
LOCAL = "--local"

_GROUPS: Listing[ScaleGroup] = Listing(
    Column("GROUP", "name", shortens=True),
    Column("TYPE", "type"),
    Column("SLICES", value=lambda group: f"{group.min_slices} to {group.max_slices}"),
    Column("HOSTS", "hosts"),
    Column("EACH HOST OFFERS", value=lambda group: group.offers, wraps=True),
    Column("ZONES", "zones", wraps=True, optional=True),
    Column(key="min_slices"),
    Column(key="max_slices"),
    keys="name type zones hosts min_slices max_slices",
)
#: The rows of `show --origin`: the key, its value, and where the value was set.
_ORIGINS: Listing[tuple[str, Any, str]] = Listing(
    Column("KEY", value=lambda row: row[0]),
    Column("VALUE", value=lambda row: json.dumps(row[1], ensure_ascii=False), wraps=True),
    Column("ORIGIN", value=lambda row: row[2]),
)

file_argument = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))


@click.group(cls=CommandGroup)
def config() -> None:
    """Check and show configuration files. Contacts no cluster."""


@config.command()
@file_argument
@click.option("--local", is_flag=True, help="Check the file for `iris cluster start --local`.")
@json_option
def check(file: Path, local: bool, as_json: bool) -> None:
    """Check a file, and show all its errors with their lines, what it risks and what has no effect.

    Exits with 5 if the file has errors, or if `iris cluster start` would refuse it. Warnings change
    nothing about the exit code.
    """
    loaded, text = load_written(file)
    if local:
        loaded = make_local_config(loaded)
    if problems := [str(each) for each in unserved(loaded)]:
        raise InvalidConfig(problems, str(file), lines_of(text))
    found = scale_groups_of(loaded)
    if as_json:
        groups = [_GROUPS.json(each) for each in found]
        checked = {
            "ok": True,
            "name": loaded.name,
            "platform": loaded.platform.kind,
            "scale_groups": groups,
        }
        print_json({**checked, "warnings": list(risks(loaded))})
        return
    click.echo(
        f"{file} is valid: cluster {loaded.name}, platform {loaded.platform.kind}, {len(found)}"
        " scale group(s)"
    )
    if found:
        click.echo(_GROUPS.table(found))
    show_warnings(risks(loaded))


@config.command()
@file_argument
@click.option("--origin", is_flag=True, help="Show the source of each value.")
@click.option(
    "--local", is_flag=True, help="Show the file as `iris cluster start --local` changes it."
)
@json_option
def show(file: Path, origin: bool, local: bool, as_json: bool) -> None:
    """Show a file with all defaults applied."""
    written = load_config(file)
    shown = make_local_config(written) if local else written
    if origin:
        _show_origins(written, shown, as_json=as_json)
    elif as_json:
        print_json(config_values(shown, complete=True))
    else:
        click.echo(dump_config(shown, complete=True), nl=False)


@config.command()
def schema() -> None:
    """Print the JSON schema of configuration files, for editors.

    \b
    iris cluster config schema > iris.schema.json
    """
    print_json(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            **ClusterConfig.model_json_schema(),
        }
    )


def _show_origins(written: ClusterConfig, shown: ClusterConfig, *, as_json: bool) -> None:
    """Prints a line for each value, with its origin.

    Args:
        written: the configuration of the file.
        shown: the same, or changed by `--local`. The origin of a changed value is not the file.
    """
    before, in_file, now = _by_path(written), origins(written), origins(shown)
    found = {}
    for path, value in _by_path(shown).items():
        origin = now[path]
        if shown is not written and origin == IN_FILE:
            origin = in_file[path] if before.get(path) == value else LOCAL
        found[path] = (value, origin)
    if as_json:
        print_json(
            {path: {"value": value, "origin": origin} for path, (value, origin) in found.items()}
        )
    else:
        click.echo(_ORIGINS.table((path, value, origin) for path, (value, origin) in found.items()))


def _by_path(config: ClusterConfig) -> dict[str, Any]:
    """Returns every value by its path, such as `defaults.ssh.user`, with defaults applied."""
    known = origins(config)
    values: dict[str, Any] = {}

    def walk(tree: dict[str, Any], above: str) -> None:
        for key, value in tree.items():
            path = f"{above}{key}"
            if path in known:
                values[path] = value
            else:
                walk(value, f"{path}.")

    walk(config_values(config, complete=True), "")
    return values
