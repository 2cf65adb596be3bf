"""Implements `iris cluster tunnel` and `iris debug tunnel`."""

import click

from iris.cli.run import with_client
from iris.cli.show.messages import print_json
from iris.client.client import AsyncIrisClient
from iris.client.connect.cluster_ref import ClusterRef
from iris.client.connect.clusters import ClusterRecord
from iris.model.errors import Rejected


def show_tunnel(ctx: click.Context, cluster: ClusterRef, as_json: bool) -> None:
    """Opens a tunnel to the cluster, and prints its local address once the service has answered
    through it.

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
