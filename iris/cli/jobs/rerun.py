"""Implements `iris rerun`."""

from functools import partial

import click

from iris.cli.command import Command
from iris.cli.interrupts import created, end_like_ctrl_c, interrupts
from iris.cli.job_names import named_job
from iris.cli.parameters import cluster_option, job_argument, json_option
from iris.cli.run import iris_command, with_client
from iris.cli.show.messages import print_json
from iris.cli.submit.options import SECRET
from iris.client.client import AsyncIrisClient
from iris.client.connect.identity import full_job_id, job_and_run
from iris.client.jobs.submit.rerun import submit_again
from iris.client.jobs.submit.start import Submitted
from iris.storage.object_store import Store


@click.command(cls=Command)
@job_argument
@click.option(
    "--failed",
    is_flag=True,
    help="Only the tasks that failed or were cancelled, with their indices and parameters.",
)
@click.option("-n", "--name", help="Name of the new job.  [default: the name of JOB]")
@click.option(
    "--secret",
    type=SECRET,
    multiple=True,
    metavar="NAME[=SOURCE]",
    help=(
        "Give the new job this secret again, as with `iris submit`: the submitter's secrets are"
        " deleted when a job ends. Repeatable."
    ),
)
@click.option("-q", "--quiet", is_flag=True, help="Print only the job's id.")
@json_option
@cluster_option
@click.pass_context
def rerun(
    ctx: click.Context,
    job: str,
    failed: bool,
    name: str | None,
    secret: tuple[tuple[str, str], ...],
    quiet: bool,
    as_json: bool,
) -> None:
    """Submit JOB (NAME, USER/NAME or an earlier run NAME#1) again: the same command, files,
    resources and environment.

    \b
    iris rerun train
    iris rerun sweep --failed        only the tasks that did not succeed
    iris rerun sweep --failed -n sweep-2
    iris rerun train --secret HF_TOKEN
    """
    named, number = job_and_run(job)
    full_job_id(named)
    iris = iris_command(ctx)

    def announce(full: str, submitted: Submitted | None) -> None:
        if as_json:
            print_json(None if submitted is None else submitted.model_dump())
        elif submitted is None:
            click.echo(
                f"no task of {full} has failed or was cancelled: nothing to run again", err=True
            )
        elif quiet:
            click.echo(submitted.id)
        else:
            click.echo(f"submitted {submitted.id}\n  {iris} logs -f {submitted.id}", err=True)

    async def work(client: AsyncIrisClient) -> None:
        end_like_ctrl_c()
        full = await named_job(client, job)
        run_id = await client.jobs.run(full, number)
        store, secrets = Store(client.record.store), dict(secret)
        again = submit_again(
            client.jobs, store, full, run_id, failed=failed, name=name, secrets=secrets
        )
        what = f"another run of {full}"
        async with created(
            again, announce=partial(announce, full), what=what, look=f"{iris} jobs --all"
        ):
            pass

    with interrupts():
        with_client(ctx, work)
