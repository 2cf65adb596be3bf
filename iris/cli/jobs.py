"""`iris jobs | status | wait | cancel | explain`"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import click

from iris.cli import render
from iris.cli.common import DURATION, cluster_option, json_option, print_json, with_client
from iris.cli.follow import tell_end
from iris.client.client import IrisClient
from iris.client.identity import full_job_id
from iris.client.views import JobRow
from iris.errors import IrisError, WaitTimeout
from iris.jobs import JobStatus


@click.command()
@click.option("--all", "all_jobs", is_flag=True, help="Ended jobs too.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many.")
@json_option
@cluster_option
@click.pass_context
def jobs(ctx: click.Context, all_jobs: bool, limit: int, as_json: bool) -> None:
    """List jobs, the newest first; with --json ended ones too."""

    async def work(client: IrisClient) -> list[JobRow]:
        return await client.jobs(live_only=not (all_jobs or as_json), limit=limit)

    rows = with_client(ctx, work)
    if as_json:
        print_json([render.row_json(row) for row in rows])
    else:
        click.echo(render.jobs_table(rows, datetime.now(UTC)))


@click.command()
@click.argument("job")
@json_option
@cluster_option
@click.pass_context
def status(ctx: click.Context, job: str, as_json: bool) -> None:
    """Show JOB (NAME or USER/NAME) and its tasks."""
    found = with_client(ctx, lambda client: client.status(full_job_id(job)))
    if as_json:
        print_json(render.status_json(found))
    else:
        click.echo(render.status_text(found, datetime.now(UTC)))


@click.command()
@click.argument("job", nargs=-1, required=True)
@click.option("--timeout", type=DURATION, help="Stop waiting after this time, such as 10m; exits with 124.")
@json_option
@cluster_option
@click.pass_context
def wait(ctx: click.Context, job: tuple[str, ...], timeout: timedelta | None, as_json: bool) -> None:
    """Wait until every JOB has ended.

    Exits with 0 when all succeeded, 125 when one failed, 126 when one was cancelled, 124 when the time was over.
    """

    async def work(client: IrisClient) -> list[JobStatus | BaseException]:
        ids = [full_job_id(name) for name in job]
        return await asyncio.gather(*(client.wait(name, timeout=timeout) for name in ids), return_exceptions=True)

    results = with_client(ctx, work)
    ended = [result for result in results if isinstance(result, JobStatus)]
    errors = [result for result in results if isinstance(result, BaseException)]
    if as_json:
        print_json([render.status_json(found) for found in ended])
    for found in ended:
        try:
            tell_end(found)
        except IrisError as error:
            errors.append(error)
    # A time-out says least about the jobs, so any other news is the exit code.
    errors.sort(key=lambda error: isinstance(error, WaitTimeout))
    _raise_first(errors)


@click.command()
@click.argument("job", nargs=-1, required=True)
@click.option("--reason", default="", help="Why, for whoever looks at the job later.")
@cluster_option
@click.pass_context
def cancel(ctx: click.Context, job: tuple[str, ...], reason: str) -> None:
    """End each JOB: SIGTERM, its grace, SIGKILL."""

    async def work(client: IrisClient) -> list[IrisError]:
        errors = []
        for name in job:
            try:
                await client.cancel(full_job_id(name), reason)
                click.echo(f"cancelling {full_job_id(name)}")
            except IrisError as error:
                errors.append(error)
        return errors

    errors = with_client(ctx, work)
    _raise_first(errors)


@click.command()
@click.argument("job")
@json_option
@cluster_option
@click.pass_context
def explain(ctx: click.Context, job: str, as_json: bool) -> None:
    """Say why JOB is where it is: for a waiting one, what it needs and what there is."""
    found = with_client(ctx, lambda client: client.explain(full_job_id(job)))
    if as_json:
        print_json(render.explanation_json(found))
    else:
        click.echo(render.explanation_text(found))


def _raise_first(errors: Sequence[BaseException]) -> None:
    """Say all errors; the first one is the command's, with its exit code."""
    for extra in errors[1:]:
        click.echo(f"error: {extra}", err=True)
    if errors:
        raise errors[0]
