"""Implements `iris cluster tunnel` and `iris debug tunnel`."""

import asyncio

import click

from iris.cli.common import print_json
from iris.client.client import IrisClient
from iris.client.connect.clusters import ClusterRecord
from iris.client.operate.cluster_ref import Subject
from iris.model.errors import Rejected


def show_tunnel(of: Subject, as_json: bool) -> None:
    """Opens a tunnel to the cluster, and prints its local address once the service has answered through it.

    Raises:
        Rejected: the cluster needs no tunnel.
        Unreachable: the cluster does not run, or the service does not answer.
    """
    of.gate("it needs no tunnel")
    record = asyncio.run(_reached(of.reached()))
    if record.gate is None:
        raise Rejected(f"cluster {record.name} is reached without a tunnel, at {record.address}")
    if as_json:
        print_json({"cluster": record.name, "address": record.address, "ui": record.ui})
    else:
        click.echo(f"cluster {record.name} is reached at {record.address}\n  Web UI     {record.ui}")


async def _reached(cluster: str | None) -> ClusterRecord:
    return (await IrisClient.connect(cluster)).cluster
