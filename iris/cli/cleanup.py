"""`iris cluster cleanup`"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import click

from iris.cli.common import cluster_option
from iris.client.clusters import known_clusters, read_record
from iris.errors import IrisError, NotFound, Rejected
from iris.names import check_name


@click.command()
@click.argument("name", required=False)
@click.option(
    "--config", "file", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="The cluster of this configuration."
)
@click.option("--controller", "with_controller", is_flag=True, help="Also the machine of a control plane that does not answer.")
@click.option("--no-dry-run", "really", is_flag=True, help="Delete it.  [default: only show it]")
@cluster_option
@click.pass_context
def cleanup(ctx: click.Context, name: str | None, file: Path | None, with_controller: bool, really: bool) -> None:
    """Find what clusters have left: machines that nobody looks after, processes and directories of dead ones.

    Of NAME, or of all clusters on this machine; of one on Google Cloud when it is named. What a stopped cluster needs for its
    next start stays, and so does whatever is another cluster's, is not labelled, or has the label iris-manual=true.
    """
    named = name or ctx.find_root().obj["cluster"]
    if file is not None or (named is not None and ":" not in named and _is_remote(named)):
        _clean_elsewhere(None if file is not None else named, file, with_controller=with_controller, really=really)
        return
    if with_controller:
        raise Rejected("--controller is about a cluster on Google Cloud: name it, or its configuration with --config")
    _clean_here(named, really=really)


def _is_remote(name: str) -> bool:
    record = read_record(check_name("name", name))
    return record is not None and record.remote


def _clean_here(named: str | None, *, really: bool) -> None:
    from iris.client.cleanup import clean, leftovers

    if named is not None and read_record(check_name("name", named)) is None:
        raise NotFound(f"there is no local cluster {named!r}")
    found = asyncio.run(leftovers(named))
    for each in found:
        click.echo(f"{_deed(really)} {each}")
    for record in known_clusters() if named is None else ():
        if record.remote:
            click.echo(f"cluster {record.name} is elsewhere; to look there: iris cluster cleanup {record.name}", err=True)
    _end(bool(found), really=really, do=lambda: asyncio.run(clean(found)))


def _clean_elsewhere(name: str | None, file: Path | None, *, with_controller: bool, really: bool) -> None:
    from iris.client.cleanup import clean_elsewhere, elsewhere
    from iris.client.subject import subject

    controller = subject(name, file).controller("say its name instead: iris cluster cleanup NAME")
    found = asyncio.run(elsewhere(controller, with_controller=with_controller))
    if found.machine:
        click.echo(f"{_deed(really)} {found.machine} of cluster {found.cluster}")
    for each in found.slices:
        click.echo(f"{_deed(really)} slice {each.slice_id} in {each.zone} ({each.state}) of cluster {found.cluster}")
    for zone, why in sorted(found.unreachable.items()):
        click.echo(f"zone {zone} could not be listed, and what is there is not known: {why}", err=True)
    _end(bool(found.machine or found.slices), really=really, do=lambda: asyncio.run(clean_elsewhere(controller, found)))
    if found.unreachable:
        raise IrisError(f"{len(found.unreachable)} zone(s) could not be looked at; say the same again later")


def _deed(really: bool) -> str:
    return "deleting" if really else "would delete"


def _end(anything: bool, *, really: bool, do: Callable[[], None]) -> None:
    if not anything:
        click.echo("nothing is left over")
    elif really:
        do()
    else:
        click.echo("nothing was deleted; to do so say --no-dry-run")
