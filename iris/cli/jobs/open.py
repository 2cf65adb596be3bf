"""Implements `iris open`."""

import os
import sys
import webbrowser

import click

from iris.cli.command import Command
from iris.cli.job_names import job_and_task, named_job
from iris.cli.parameters import cluster_option, job_argument
from iris.cli.run import with_client
from iris.client.client import AsyncIrisClient
from iris.client.connect.identity import job_and_run
from iris.model.errors import NotFound


@click.command("open", cls=Command)
@job_argument
@click.option("--print", "only_print", is_flag=True, help="Only print the address.")
@cluster_option
@click.pass_context
def open_(ctx: click.Context, job: str, only_print: bool) -> None:
    """Open the page of JOB (NAME, USER/NAME, or an earlier run: NAME#1) in Temporal's Web UI.

    Prints its address, and opens it if this session has a browser.
    """
    named, number = job_and_run(job)
    job_and_task(named)

    async def work(client: AsyncIrisClient) -> str:
        name = await named_job(client, job)
        source = await client.jobs.log_source(name, await client.jobs.run(name, number))
        page = client.jobs.page(name, source.run_id)
        if not page:
            raise NotFound(
                f"cluster {client.record.name} has no Web UI; show the job with: iris status {name}"
            )
        return page

    page = with_client(ctx, work)
    click.echo(page)
    if not only_print and _has_browser():
        webbrowser.open(page)


def _has_browser() -> bool:
    """Returns whether a browser would open on the user's screen.

    It does in a graphical session, unless the user has logged in from another machine.
    """
    graphical = sys.platform == "darwin" or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    return graphical and "SSH_CONNECTION" not in os.environ
