"""Implements `iris autoscaler status | pause | resume`."""

from datetime import UTC, datetime

import click

from iris.cli import render_fleet
from iris.cli.common import cluster_option, json_option, print_json, with_client
from iris.client.operate.scaling import FleetClient


@click.group()
def autoscaler() -> None:
    """See what the autoscaler does and why; pause it."""


@autoscaler.command()
@json_option
@cluster_option
@click.pass_context
def status(ctx: click.Context, as_json: bool) -> None:
    """Show each scale group: its slices, its demand, and why no more is done; and the last actions."""
    found = with_client(ctx, lambda client: FleetClient.of(client).autoscaler())
    if as_json:
        print_json(render_fleet.autoscaler_json(found))
    else:
        click.echo(render_fleet.autoscaler_text(found, datetime.now(UTC)))


@autoscaler.command()
@click.option("--reason", default="", help="Why, for whoever looks at it later.")
@cluster_option
@click.pass_context
def pause(ctx: click.Context, reason: str) -> None:
    """Neither create nor delete slices. Running tasks continue, and so do slices on their way."""
    with_client(ctx, lambda client: FleetClient.of(client).pause_scaling(reason))
    click.echo("the autoscaler is paused; go on with: iris autoscaler resume")


@autoscaler.command()
@cluster_option
@click.pass_context
def resume(ctx: click.Context) -> None:
    """Create and delete slices again."""
    with_client(ctx, lambda client: FleetClient.of(client).resume_scaling())
    click.echo("the autoscaler goes on")
