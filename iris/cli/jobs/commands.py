"""Implements `iris jobs | wait | hold | release | priority`."""

import asyncio
from datetime import UTC, datetime, timedelta

import click

from iris.cli.command import Command
from iris.cli.job_names import whole_job
from iris.cli.name_completion import Kind, names_of
from iris.cli.parameters import (
    DURATION,
    TAG,
    cluster_option,
    jobs_argument,
    json_option,
    limit_option,
    page_option,
    reason_option,
)
from iris.cli.run import for_each, iris_command, with_client
from iris.cli.show.jobs import (
    JOBS,
    job_tree,
    print_end,
    status_json,
)
from iris.cli.show.messages import print_json, raise_first
from iris.cli.watch import Watchable
from iris.client.client import AsyncIrisClient
from iris.client.jobs.lists import JobFilter
from iris.client.jobs.rows import JobRow
from iris.model.errors import IrisError, WaitTimeout
from iris.model.job.spec import Band
from iris.model.job.status import JobStatus
from iris.model.states import JobState


@click.command(cls=Watchable)
@click.option("--all", "all_jobs", is_flag=True, help="Include ended jobs.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in JobState], case_sensitive=False),
    help="Only jobs in this state; repeatable.",
)
@click.option("--user", metavar="NAME", default="", help="Only jobs of this user.")
@click.option(
    "--since", type=DURATION, help="Only jobs submitted within this time, such as 2h or 7d."
)
@click.option(
    "--filter", "text", metavar="TEXT", default="",
    help="Only jobs with this text in their id, command, state, reason, tags or note.",
)  # fmt: skip
@click.option(
    "--tag",
    "tags",
    type=TAG,
    multiple=True,
    metavar="KEY[=VALUE]",
    help="Only jobs with this tag; repeatable.",
)
@limit_option(50)
@page_option("jobs")
@click.option("--tree", is_flag=True, help="Show the jobs that belong to a job below it.")
@json_option
@cluster_option
@click.pass_context
def jobs(
    ctx: click.Context,
    all_jobs: bool,
    states: tuple[str, ...],
    user: str,
    since: timedelta | None,
    text: str,
    tags: tuple[tuple[str, str], ...],
    limit: int,
    page: int,
    tree: bool,
    as_json: bool,
) -> None:
    """List jobs, the newest first. With --json or --state, ended jobs are included."""
    wanted = JobFilter(
        live_only=not (
            all_jobs
            or as_json
            or states
            or text.upper() in {state for state in JobState if state.ended}
        ),
        states=[JobState(state) for state in states],
        user=user,
        since=None if since is None else datetime.now(UTC) - since,
        text=text,
        tags=tags,
    )

    async def work(client: AsyncIrisClient) -> tuple[list[JobRow], int]:
        rows = await client.jobs.list(wanted, limit=page * limit + 1)
        return rows, (
            await client.jobs.count(wanted, ended=True)
            if wanted.live_only and not (rows or text)
            else 0
        )

    found, ended = with_client(ctx, work)
    rows, are_more = found[(page - 1) * limit : page * limit], len(found) > page * limit
    if ended:
        click.echo(
            f"no live jobs; {ended} {'has' if ended == 1 else 'have'} ended: {iris_command(ctx)}"
            " jobs --all"
        )
    elif tree and not as_json:
        click.echo(job_tree(rows))
    else:
        JOBS.show(rows, as_json=as_json)
    if are_more or page > 1:
        rest = "there are more" if are_more else "the last page"
        click.echo(
            f"page {page}: {len(rows):,} job(s); {rest}; see others with --page, --limit and"
            " --filter",
            err=as_json,
        )


@click.command(cls=Command)
@jobs_argument
@click.option(
    "--timeout", type=DURATION, help="Stop waiting after this time, such as 10m; exits with 124."
)
@json_option
@cluster_option
@click.pass_context
def wait(
    ctx: click.Context, job: tuple[str, ...], timeout: timedelta | None, as_json: bool
) -> None:
    """Wait until every JOB has ended.

    Exits with 0 if all succeeded, 125 if one failed, 126 if one was cancelled, 124 if the timeout
    expired.
    """

    async def work(client: AsyncIrisClient) -> list[JobStatus | BaseException]:
        ids = [await whole_job(client, name) for name in job]
        return await asyncio.gather(
            *(client.jobs.wait(name, timeout=timeout) for name in ids), return_exceptions=True
        )

    results = with_client(ctx, work)
    ended = [result for result in results if isinstance(result, JobStatus)]
    errors = [result for result in results if isinstance(result, BaseException)]
    if as_json:
        print_json([status_json(found) for found in ended])
    for found in ended:
        try:
            print_end(found)
        except IrisError as error:
            errors.append(error)
    # A timeout has the least information about the jobs, so any other error determines the exit
    # code.
    errors.sort(key=lambda error: isinstance(error, WaitTimeout))
    raise_first(errors)


@click.command(cls=Command)
@jobs_argument
@reason_option("by `iris status`")
@cluster_option
@click.pass_context
def hold(ctx: click.Context, job: tuple[str, ...], reason: str) -> None:
    """Start no tasks of each JOB until it is released. Running tasks continue, but are not
    retried.
    """

    async def work(client: AsyncIrisClient, name: str) -> str:
        name = await whole_job(client, name)
        before = await client.jobs.hold(name, reason)
        return f"{name} is held" + (
            "; its running tasks continue"
            if before.state in (JobState.BUILDING, JobState.RUNNING)
            else ""
        )

    for_each(ctx, job, work)


@click.command(cls=Command)
@jobs_argument
@cluster_option
@click.pass_context
def release(ctx: click.Context, job: tuple[str, ...]) -> None:
    """Release each held JOB."""

    async def work(client: AsyncIrisClient, name: str) -> str:
        name = await whole_job(client, name)
        await client.jobs.release(name)
        return f"{name} is released"

    for_each(ctx, job, work)


@click.command(cls=Command)
@click.argument("job", nargs=-1, metavar="JOB...", shell_complete=names_of(Kind.JOBS))
@click.argument("band", metavar="BAND", type=click.Choice([band.value for band in Band]))
@cluster_option
@click.pass_context
def priority(ctx: click.Context, job: tuple[str, ...], band: str) -> None:
    """Move each JOB to another priority BAND: production, interactive or batch."""
    if not job:  # click takes a single argument for the band and cannot tell which one is missing
        raise click.UsageError(f"name at least one JOB to move to band {band}")

    async def work(client: AsyncIrisClient, name: str) -> str:
        name = await whole_job(client, name)
        await client.jobs.set_priority(name, Band(band))
        return f"{name} is in band {band}"

    for_each(ctx, job, work)
