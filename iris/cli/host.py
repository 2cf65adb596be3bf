"""`iris host`"""

import click

from iris.cli import render
from iris.cli.common import cluster_option, json_option, print_json, with_client


@click.group()
def host() -> None:
    """Look at the machines."""


@host.command("list")
@json_option
@cluster_option
@click.pass_context
def list_hosts(ctx: click.Context, as_json: bool) -> None:
    """List hosts: what they offer, what is free, what they run."""
    views = with_client(ctx, lambda client: client.hosts())
    if as_json:
        print_json([render.host_json(view) for view in views])
    else:
        click.echo(render.hosts_table(views))
