"""Implements `iris cluster dashboard`."""

from pathlib import Path

import click

from iris.cli.browser import open_page
from iris.cli.command import Command
from iris.cli.parameters import cluster_argument, cluster_option, config_option
from iris.cli.run import selected, with_client
from iris.client.client import AsyncIrisClient
from iris.client.connect.clusters import ClusterRecord
from iris.dashboard.installed import INSTALL, is_installed
from iris.model.errors import NotFound


@click.command(cls=Command)
@cluster_argument
@click.option("--print", "only_print", is_flag=True, help="Only print the address.")
@config_option
@cluster_option
@click.pass_context
def dashboard(ctx: click.Context, name: str | None, only_print: bool, file: Path | None) -> None:
    """Open the dashboard of a cluster: web pages about its jobs and machines.

    Prints its address, and opens it if this session has a browser. Opens the tunnel to a cluster
    that needs one.
    """

    async def address(client: AsyncIrisClient) -> str:
        if not client.record.dashboard:
            raise NotFound(
                f"cluster {client.record.name} has no dashboard here:"
                f" {without_dashboard(client.record)}"
            )
        return client.record.dashboard

    open_page(with_client(ctx, address, selected(ctx, name, file)), only_print=only_print)


def without_dashboard(record: ClusterRecord) -> str:
    """Returns why the cluster has no dashboard that this machine can open, as far as is known."""
    if record.supervisor is None:
        return "- (it has none, or serves it at its own machine only)"
    return "- (dashboard.port is 0)" if is_installed() else f"- (to install it: {INSTALL})"
