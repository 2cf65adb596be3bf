"""`iris cluster tunnel` and `iris debug tunnel`"""

import asyncio

import click

from iris.cli.common import print_json
from iris.client.client import IrisClient
from iris.client.clusters import ClusterRecord
from iris.client.subject import Subject
from iris.errors import Rejected


def show_tunnel(of: Subject, as_json: bool) -> None:
    """Have a tunnel to the cluster, and say where it begins on this machine, once the service at its end has answered.

    Raises:
        Rejected: the cluster needs none.
        Unreachable: it does not run, or nobody answers.
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
