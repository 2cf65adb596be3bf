"""Implements `iris cluster tunnel` and `iris debug tunnel`."""

from pathlib import Path

import click

from iris.cli.command import Command
from iris.cli.parameters import cluster_argument, cluster_option, config_option, json_option
from iris.cli.run import selected, with_client
from iris.cli.show.messages import print_json
from iris.client.client import AsyncIrisClient
from iris.client.connect.cluster_ref import ClusterRef
from iris.client.connect.clusters import ClusterRecord
from iris.model.errors import Rejected


@click.command(cls=Command)
@cluster_argument
@json_option
@config_option
@cluster_option
@click.pass_context
def tunnel(ctx: click.Context, name: str | None, file: Path | None, as_json: bool) -> None:
    """Open a tunnel to a cluster in a cloud, and show its local address. Other commands open the
    tunnel when they need it.
    """
    show_tunnel(ctx, selected(ctx, name, file).known(), as_json)


def show_tunnel(ctx: click.Context, cluster: ClusterRef, as_json: bool) -> None:
    """Opens a tunnel to the cluster, and prints its local address when the service has answered.

    Raises:
        Rejected: the cluster needs no tunnel.
        Unreachable: the cluster does not run, or the service does not answer.
    """
    if cluster.platform != "manual":
        cluster.controller_vm("it needs no tunnel")

    async def connected(client: AsyncIrisClient) -> ClusterRecord:
        return client.record

    record = with_client(ctx, connected, cluster)
    if record.end is None:
        raise Rejected(f"cluster {record.name} is reached without a tunnel, at {record.address}")
    if as_json:
        print_json({"cluster": record.name, "address": record.address, "ui": record.ui})
    else:
        click.echo(
            f"cluster {record.name} is reached at {record.address}\n  Web UI     {record.ui}"
        )
