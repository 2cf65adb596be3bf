"""Implements `iris autoscaler status | pause | resume`."""

from datetime import UTC, datetime

import click

from iris.cli import fleet
from iris.cli.command import Command
from iris.cli.parameters import cluster_option, json_option, reason_option
from iris.cli.run import with_client
from iris.cli.show.autoscaler import autoscaler_json, autoscaler_text
from iris.cli.show.messages import print_json


@click.command(cls=Command)
@json_option
@cluster_option
@click.pass_context
def status(ctx: click.Context, as_json: bool) -> None:
    """Show each scale group with its slices, its demand and what limits it, and the last
    actions.
    """
    found = with_client(
        ctx,
        lambda client: client.autoscaler.status(),
        known=lambda client: fleet.without_control_plane.known_groups(client, of_autoscaler=True),
        as_json=as_json,
    )
    if as_json:
        print_json(autoscaler_json(found))
    else:
        click.echo(autoscaler_text(found, datetime.now(UTC)))


@click.command(cls=Command)
@reason_option("by `iris autoscaler status`")
@cluster_option
@click.pass_context
def pause(ctx: click.Context, reason: str) -> None:
    """Stop creating and deleting slices. Running tasks and slices that are being created
    continue.
    """
    with_client(ctx, lambda client: client.autoscaler.pause(reason))
    click.echo("the autoscaler is paused; resume it with: iris autoscaler resume")


@click.command(cls=Command)
@cluster_option
@click.pass_context
def resume(ctx: click.Context) -> None:
    """Resume creating and deleting slices."""
    with_client(ctx, lambda client: client.autoscaler.resume())
    click.echo("the autoscaler is resumed")
