"""Implements `iris endpoints`."""

import click

from iris.cli.command import Command
from iris.cli.parameters import cluster_option, job_argument, json_option
from iris.cli.run import with_client
from iris.cli.show.columns import Column
from iris.cli.show.listing import Listing
from iris.client.client import AsyncIrisClient
from iris.model.job.endpoints import Endpoint

ENDPOINTS: Listing[Endpoint] = Listing(
    Column("ENDPOINT", "name", shortens=True),
    Column("ADDRESS", "address"),
    Column("JOB", "job", shortens=True, optional=True),
    Column("TASK", "task"),
    Column("ATTEMPT", "attempt"),
    Column(
        "METADATA",
        "metadata",
        text=lambda given: [f"{key}={value}" for key, value in given.items()],
        wraps=True,
    ),
    empty="no endpoints",
)


@click.command(cls=Command)
@job_argument
@click.option("--prefix", default="", help="Only endpoints whose names begin with this.")
@json_option
@cluster_option
@click.pass_context
def endpoints(ctx: click.Context, job: str, prefix: str, as_json: bool) -> None:
    """List the addresses that the tasks of JOB, and of its child jobs, have registered by name.

    A program registers an endpoint with iris.context().register_endpoint. It is removed when the
    attempt ends.
    """

    async def work(client: AsyncIrisClient) -> None:
        ENDPOINTS.show(await client.endpoints.list(prefix, job), as_json=as_json)

    with_client(ctx, work)
