"""Implements `iris open`."""

import click

from iris.cli.browser import open_page
from iris.cli.command import Command
from iris.cli.job_names import job_and_task, named_job
from iris.cli.parameters import cluster_option, job_argument
from iris.cli.run import with_client
from iris.client.client import AsyncIrisClient
from iris.client.connect.identity import job_and_run
from iris.model.errors import NotFound


@click.command("open", cls=Command)
@job_argument
@click.option("--dashboard", is_flag=True, help="Open its page in the dashboard instead.")
@click.option("--print", "only_print", is_flag=True, help="Only print the address.")
@cluster_option
@click.pass_context
def open_(ctx: click.Context, job: str, dashboard: bool, only_print: bool) -> None:
    """Open the page of JOB (NAME, USER/NAME, or an earlier run: NAME#1) in Temporal's Web UI.

    Prints its address, and opens it if this session has a browser.
    """
    named, number = job_and_run(job)
    job_and_task(named)

    async def work(client: AsyncIrisClient) -> str:
        name = await named_job(client, job)
        if dashboard:
            if page := client.jobs.dashboard_page(name):
                return page
            raise NotFound(
                f"cluster {client.record.name} has no dashboard here; see: iris cluster status"
            )
        source = await client.jobs.log_source(name, await client.jobs.run(name, number))
        page = client.jobs.page(name, source.run_id)
        if not page:
            raise NotFound(
                f"cluster {client.record.name} has no Web UI; show the job with: iris status {name}"
            )
        return page

    page = with_client(ctx, work)
    open_page(page, only_print=only_print)
