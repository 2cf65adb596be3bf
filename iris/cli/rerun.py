"""Implements `iris rerun`."""

import click

from iris.cli.common import Command, cluster_option, json_option, named_cluster, print_json, with_client
from iris.cli.created import created
from iris.client.client import AsyncIrisClient
from iris.client.connect.identity import full_job_id, job_and_run
from iris.client.views import Submitted


@click.command(cls=Command)
@click.argument("job")
@click.option("--failed", is_flag=True, help="Only the tasks that failed or were cancelled, with their indices and parameters.")
@click.option("-n", "--name", help="Name of the new job.  [default: the name of JOB]")
@click.option("-q", "--quiet", is_flag=True, help="Print only the job's id.")
@json_option
@cluster_option
@click.pass_context
def rerun(ctx: click.Context, job: str, failed: bool, name: str | None, quiet: bool, as_json: bool) -> None:
    """Submit JOB (NAME, USER/NAME or an earlier run NAME#1) again: the same command, files, resources and environment.

    \b
    iris rerun train
    iris rerun sweep --failed        only the tasks that did not succeed
    iris rerun sweep --failed -n sweep-2
    """
    named, number = job_and_run(job)
    full = full_job_id(named)
    iris = named_cluster(ctx)

    def announce(submitted: Submitted | None) -> None:
        if as_json:
            print_json(None if submitted is None else submitted.model_dump())
        elif submitted is None:
            click.echo(f"no task of {full} has failed or was cancelled: nothing to run again", err=True)
        elif quiet:
            click.echo(submitted.id)
        else:
            click.echo(f"submitted {submitted.id}\n  {iris} logs -f {submitted.id}", err=True)

    async def work(client: AsyncIrisClient) -> None:
        from iris.client.rerun import submit_again
        from iris.storage.object_store import Store

        run_id = await client.jobs.run(full, number)
        store = Store(client.record.store)
        again = submit_again(client.jobs, store, full, run_id, failed=failed, name=name)
        what = f"another run of {full}"
        async with created(again, announce=announce, what=what, look=f"{iris} jobs --all"):
            pass

    with_client(ctx, work)
