"""Implements `iris cluster cleanup`, which deletes the leftovers of clusters."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from iris.cli.command import Command
from iris.cli.parameters import cluster_argument, cluster_option, config_option, json_option
from iris.cli.run import selected
from iris.cli.show.messages import print_json
from iris.cli.show.progress import Steps
from iris.client.connect.cluster_ref import ClusterRef
from iris.client.connect.clusters import known_clusters
from iris.client.operate.cleanup import Leftover, clean, clean_elsewhere, left_elsewhere, leftovers
from iris.client.operate.make_controller import gcp_controller
from iris.model.errors import IrisError, Rejected


@click.command(cls=Command)
@cluster_argument
@config_option
@click.option(
    "--controller",
    "with_controller",
    is_flag=True,
    help="Also delete the machine of a control plane that does not answer.",
)
@click.option(
    "--no-dry-run", "really", is_flag=True, help="Delete the remains.  [default: only show them]"
)
@json_option
@cluster_option
@click.pass_context
def cleanup(
    ctx: click.Context,
    name: str | None,
    file: Path | None,
    with_controller: bool,
    really: bool,
    as_json: bool,
) -> None:
    """Find and delete the remains of clusters: machines without an owner, and processes and
    directories of dead clusters.

    Covers NAME, or all clusters on this machine; a cluster on Google Cloud only if it is named.
    Keeps files that a stopped cluster needs for its next start, and machines of other clusters,
    without a label, or with the label iris-manual=true.
    """
    named = file is not None or name is not None or ctx.find_root().obj["cluster"] is not None
    cluster = selected(ctx, name, file).known() if named else None
    if cluster is not None and cluster.platform != "local":
        _clean_elsewhere(cluster, with_controller=with_controller, really=really, as_json=as_json)
        return
    if with_controller:
        raise Rejected(
            "--controller needs a cluster on Google Cloud: give its NAME, or its configuration with"
            " --config"
        )
    _clean_here(cluster.name if cluster is not None else None, really=really, as_json=as_json)


def _clean_here(name: str | None, *, really: bool, as_json: bool) -> None:

    with Steps("looking for remains"):
        found = asyncio.run(leftovers(name))
    for record in known_clusters() if name is None else ():
        if record.remote:
            click.echo(
                f"cluster {record.name} is elsewhere; to check it, run: iris cluster cleanup"
                f" {record.name}",
                err=True,
            )
    _end(found, really=really, as_json=as_json, do=lambda: asyncio.run(clean(found)))


def _clean_elsewhere(
    cluster: ClusterRef, *, with_controller: bool, really: bool, as_json: bool
) -> None:
    steps = Steps("looking for remains")
    controller = gcp_controller(cluster, "use its name instead: iris cluster cleanup NAME", steps)
    with steps:
        found = asyncio.run(left_elsewhere(controller, with_controller=with_controller))
    for zone, why in sorted(found.unreachable.items()):
        click.echo(f"zone {zone} could not be listed: {why}", err=True)

    def do() -> None:
        asyncio.run(clean_elsewhere(controller, found))

    _end(found.left, really=really, as_json=as_json, do=do, unreachable=found.unreachable)
    if found.unreachable:
        raise IrisError(
            f"{len(found.unreachable)} zone(s) could not be listed; run the command again later"
        )


def _end(
    found: Sequence[Leftover],
    *,
    really: bool,
    as_json: bool,
    do: Callable[[], None],
    unreachable: Mapping[str, str] | None = None,
) -> None:
    """Prints the leftovers, and deletes them if `really` is set.

    Prints JSON after the deletion, because the deletion may fail.

    Args:
        do: deletes the leftovers.
        unreachable: why some zones could not be listed.
    """
    for each in () if as_json else found:
        click.echo(f"{'deleting' if really else 'would delete'} {each}")
    if really and found:
        with Steps(f"deleting {len(found)} remains"):
            do()
    if as_json:
        print_json(
            {
                "deleted": really,
                "left": [leftover_json(each) for each in found],
                "unreachable": dict(unreachable or {}),
            }
        )
    elif not found:
        click.echo("there is nothing to delete")
    elif not really:
        click.echo("nothing was deleted; to delete, add --no-dry-run")


def leftover_json(left: Leftover) -> dict[str, Any]:
    """Returns the fields of a leftover that users see."""
    shown = left.model_dump(mode="json", include={"cluster", "kind", "id"})
    return {**shown, "zone": left.zone or None, "state": left.state or None}
