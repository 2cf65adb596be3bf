"""Implements `iris cluster cleanup`."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iris.cli import elsewhere
from iris.cli.common import cluster_option, json_option, print_json
from iris.client.connect.clusters import known_clusters, read_record
from iris.model.errors import IrisError, NotFound, Rejected
from iris.model.names import check_name

if TYPE_CHECKING:
    from iris.client.operate.cleanup import Leftover


@click.command()
@click.argument("name", required=False)
@click.option(
    "--config", "file", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="The cluster of this configuration."
)
@click.option("--controller", "with_controller", is_flag=True, help="Also the machine of a control plane that does not answer.")
@click.option("--no-dry-run", "really", is_flag=True, help="Delete it.  [default: only show it]")
@json_option
@cluster_option
@click.pass_context
def cleanup(ctx: click.Context, name: str | None, file: Path | None, with_controller: bool, really: bool, as_json: bool) -> None:
    """Find what clusters have left behind: machines without an owner, and processes and directories of dead clusters.

    Covers NAME, or all clusters on this machine; a cluster on Google Cloud only if it is named. Keeps what a stopped cluster
    needs for its next start, and everything that belongs to another cluster, has no label, or has the label iris-manual=true.
    """
    named = elsewhere.named(ctx, name, file)
    if file is not None or (named is not None and ":" not in named and _is_remote(named)):
        _clean_elsewhere(named, file, with_controller=with_controller, really=really, as_json=as_json)
        return
    if with_controller:
        raise Rejected("--controller is about a cluster on Google Cloud: name it, or its configuration with --config")
    _clean_here(named, really=really, as_json=as_json)


def _is_remote(name: str) -> bool:
    record = read_record(check_name("name", name))
    return record is not None and record.remote


def _clean_here(named: str | None, *, really: bool, as_json: bool) -> None:
    from iris.client.operate.cleanup import clean, leftovers

    if named is not None and read_record(check_name("name", named)) is None:
        raise NotFound(f"there is no local cluster {named!r}")
    found = asyncio.run(leftovers(named))
    for record in known_clusters() if named is None else ():
        if record.remote:
            click.echo(f"cluster {record.name} is elsewhere; to look there: iris cluster cleanup {record.name}", err=True)
    _end(found, really=really, as_json=as_json, do=lambda: asyncio.run(clean(found)))


def _clean_elsewhere(name: str | None, file: Path | None, *, with_controller: bool, really: bool, as_json: bool) -> None:
    from iris.client.operate.cleanup import clean_elsewhere, left_elsewhere
    from iris.client.operate.cluster_ref import subject

    controller = subject(name, file).controller("say its name instead: iris cluster cleanup NAME", elsewhere.say)
    found = asyncio.run(left_elsewhere(controller, with_controller=with_controller))
    for zone, why in sorted(found.unreachable.items()):
        click.echo(f"zone {zone} could not be listed, and what is there is not known: {why}", err=True)

    def do() -> None:
        asyncio.run(clean_elsewhere(controller, found))

    _end(found.left, really=really, as_json=as_json, do=do, unreachable=found.unreachable)
    if found.unreachable:
        raise IrisError(f"{len(found.unreachable)} zone(s) could not be looked at; say the same again later")


def _end(
    found: "Sequence[Leftover]",
    *,
    really: bool,
    as_json: bool,
    do: Callable[[], None],
    unreachable: Mapping[str, str] | None = None,
) -> None:
    """Prints what was found, and deletes it if `really` is set. Prints JSON after the deletion, because that may fail."""
    for each in () if as_json else found:
        click.echo(f"{'deleting' if really else 'would delete'} {each}")
    if really and found:
        do()
    if as_json:
        print_json({"deleted": really, "left": [leftover_json(each) for each in found], "unreachable": dict(unreachable or {})})
    elif not found:
        click.echo("nothing is left over")
    elif not really:
        click.echo("nothing was deleted; to do so say --no-dry-run")


def leftover_json(left: "Leftover") -> dict[str, Any]:
    """Returns the fields of a leftover that users see."""
    shown = left.model_dump(mode="json", include={"cluster", "kind", "id"})
    return {**shown, "zone": left.zone or None, "state": left.state or None}
