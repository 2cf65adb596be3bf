"""Implements `iris group list`."""

import click

from iris.cli import fleet
from iris.cli.command import CommandGroup
from iris.cli.parameters import cluster_option, json_option
from iris.cli.run import with_client
from iris.cli.show.autoscaler import group_listing


@click.group(cls=CommandGroup)
def group() -> None:
    """Show scale groups: the kinds of slice that a cluster can have."""


@group.command("list")
@json_option
@cluster_option
@click.pass_context
def list_groups(ctx: click.Context, as_json: bool) -> None:
    """List scale groups: the kind of slice, existing and allowed slices, and whether more can be
    created.
    """
    found = with_client(
        ctx,
        lambda client: client.autoscaler.status(),
        known=lambda client: fleet.without_control_plane.known_groups(client),
        as_json=as_json,
    )
    group_listing(found).show(found.settings.groups if found.settings else (), as_json=as_json)
