"""Implements `iris cluster config check | show | schema`."""

import json
from pathlib import Path
from typing import Any

import click

from iris.cli.common import json_option, print_json
from iris.cli.render import table
from iris.config import ClusterConfig, config_values, dump_config, load_config, make_local_config, origins, scale_groups_of
from iris.config.defaults import IN_FILE
from iris.model.scale_groups import ScaleGroup

#: The source of a value that was changed for this machine.
LOCAL = "--local"

file_argument = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))


@click.group()
def config() -> None:
    """Check and show configuration files. Contacts no cluster."""


@config.command()
@file_argument
@json_option
def check(file: Path, as_json: bool) -> None:
    """Check a file, and show all its errors.

    Exits with 5 if the file has errors.
    """
    loaded = load_config(file)
    found = scale_groups_of(loaded)
    if as_json:
        shown = [
            each.model_dump(mode="json", include={"name", "type", "hosts", "zones", "min_slices", "max_slices"}) for each in found
        ]
        print_json({"ok": True, "name": loaded.name, "platform": loaded.platform.kind, "scale_groups": shown})
        return
    click.echo(f"{file} is valid: cluster {loaded.name}, platform {loaded.platform.kind}, {len(found)} scale group(s)")
    if found:
        click.echo(table(("GROUP", "TYPE", "SLICES", "HOSTS", "EACH HOST OFFERS", "ZONES"), map(_row, found)))


def _row(group: ScaleGroup) -> tuple[str, ...]:
    slices = f"{group.min_slices} to {group.max_slices}"
    return (group.name, group.type, slices, str(group.hosts), str(group.resources), ", ".join(group.zones))


@config.command()
@file_argument
@click.option("--origin", is_flag=True, help="Show the source of each value.")
@click.option("--local", is_flag=True, help="Show the file as `iris cluster start --local` changes it.")
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
    print_json({"$schema": "https://json-schema.org/draft/2020-12/schema", **ClusterConfig.model_json_schema()})


def _show_origins(written: ClusterConfig, shown: ClusterConfig, *, as_json: bool) -> None:
    """Prints a line for each value. A value that `--local` changed is not in the file, although it is set."""
    before, in_file, now = _by_path(written), origins(written), origins(shown)
    found = {}
    for path, value in _by_path(shown).items():
        origin = now[path]
        if shown is not written and origin == IN_FILE:
            origin = in_file[path] if before.get(path) == value else LOCAL
        found[path] = (value, origin)
    if as_json:
        print_json({path: {"value": value, "origin": origin} for path, (value, origin) in found.items()})
    else:
        rows = [(path, json.dumps(value, ensure_ascii=False), origin) for path, (value, origin) in found.items()]
        click.echo(table(("KEY", "VALUE", "ORIGIN"), rows))


def _by_path(config: ClusterConfig) -> dict[str, Any]:
    """Returns every value of a complete configuration by its path, in the order of `origins`."""
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
