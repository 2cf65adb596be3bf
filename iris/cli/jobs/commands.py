"""Implements `iris jobs | status | wait | explain | hold | release | priority`."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from iris.cli.command import Command
from iris.cli.job_names import job_and_task, named_job, whole_job
from iris.cli.name_completion import Kind, names_of
from iris.cli.parameters import (
    DURATION,
    TAG,
    cluster_option,
    job_argument,
    jobs_argument,
    json_option,
    limit_option,
    page_option,
    reason_option,
)
from iris.cli.run import Known, for_each, iris_command, with_client
from iris.cli.show.explanation import explanation_json, explanation_text
from iris.cli.show.jobs import (
    JOBS,
    TaskPage,
    job_tree,
    listed_text,
    page_of_tasks,
    print_end,
    status_json,
    status_text,
    usage_listing,
)
from iris.cli.show.messages import print_json, raise_first
from iris.cli.show.submission import submission_json, submission_text
from iris.cli.watch import Watchable
from iris.client.client import AsyncIrisClient
from iris.client.connect.identity import job_and_run
from iris.client.jobs.explanation import Explanation
from iris.client.jobs.lists import JobFilter
from iris.client.jobs.rows import JobRow
from iris.client.jobs.status import task_of
from iris.model.errors import IrisError, Unreachable, WaitTimeout
from iris.model.job.spec import Band
from iris.model.job.status import JobStatus
from iris.model.states import JobState

if TYPE_CHECKING:
    from iris.client.jobs.notifications import NotificationRow
    from iris.client.jobs.submitted import Submission
    from iris.client.jobs.usage import InUse


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


@click.command(cls=Watchable)
@job_argument
@click.option(
    "--filter",
    "text",
    metavar="TEXT",
    default="",
    help="Only tasks with this text in their state, host or reason.",
)
@limit_option(100, "tasks")
@page_option("tasks")
@click.option(
    "--resources",
    is_flag=True,
    help="Also show the resource use of running tasks: cores, memory, processes, ports.",
)
@json_option
@cluster_option
@click.pass_context
def status(
    ctx: click.Context, job: str, text: str, limit: int, page: int, resources: bool, as_json: bool
) -> None:
    """Show JOB (NAME or USER/NAME) and its tasks, one task: NAME:3, or an earlier run: NAME#1.

    If there are many tasks, failed ones come first. With --json, all tasks are shown.
    """
    named, number = job_and_run(job)
    _, task = job_and_task(named)
    found = with_client(
        ctx,
        lambda client: _ask_status(
            client, job, number, task, resources=resources, children=not as_json
        ),
        known=lambda client: _listed(client, job, number),
        as_json=as_json,
    )
    if as_json:
        print_json(_status_json(found))
    else:
        _print_status(found, page_of_tasks(found.status.tasks, text, limit, page))


class _Status(NamedTuple):
    """The data that `iris status` shows."""

    status: JobStatus
    submission: "Submission"
    notifications: Sequence["NotificationRow"]
    children: Sequence[JobRow]
    #: The resource use of the running tasks. None if the user did not ask for it.
    in_use: "Sequence[InUse] | None"


async def _ask_status(
    client: AsyncIrisClient,
    job: str,
    number: int | None,
    task: int | None,
    *,
    resources: bool,
    children: bool,
) -> _Status:
    from iris.client.jobs.submitted import submission_of  # lists of jobs do not need it

    name = await named_job(client, job)
    run_id = await client.jobs.run(name, number)
    status = await client.jobs.status(name, run_id, task)
    if task is not None:
        status = status.model_copy(update={"tasks": (task_of(name, task, status.tasks),)})
    submission = await submission_of(client.connection, name, run_id)
    notifications = await _notifications(client, submission)
    in_use = await client.jobs.usage(status) if resources else None
    family = await client.jobs.child_jobs.children(name, submission.run_id) if children else []
    return _Status(status, submission, notifications, family, in_use)


def _status_json(found: _Status) -> dict[str, Any]:
    shown = {**status_json(found.status), **submission_json(found.submission)}
    shown["notifications"] = [each.model_dump(mode="json") for each in found.notifications]
    if found.in_use is None:
        return shown
    listing = usage_listing(found.submission.spec.resources)
    return {**shown, "usage": [listing.json(each) for each in found.in_use]}


def _print_status(found: _Status, page: TaskPage) -> None:
    facts = submission_text(found.submission, found.notifications)
    if page.counts:
        facts += f"\n{'tasks':<10}{page.counts}"
    shown = found.status.model_copy(update={"tasks": page.tasks})
    click.echo(status_text(shown, datetime.now(UTC), facts, found.children))
    if page.rest:
        click.echo(page.rest)
    if found.in_use is not None:
        click.echo(f"\n{usage_listing(found.submission.spec.resources).table(found.in_use)}")


async def _listed(client: AsyncIrisClient, job: str, number: int | None) -> Known:
    """Returns the facts of a job that Temporal knows, because the control plane does not answer."""
    from iris.client.jobs.find import listed_job

    name = await named_job(client, job)
    row = await listed_job(client.connection, name, await client.jobs.run(name, number))
    return Known(
        listed_text(row, datetime.now(UTC)),
        "its tasks, and changes of its state",
        JOBS.json(row),
    )


async def _notifications(
    client: AsyncIrisClient, submission: "Submission"
) -> Sequence["NotificationRow"]:
    """Returns the calls of the job's webhooks, and how each ended."""
    if not submission.spec.notify:  # as most jobs
        return ()
    from iris.client.jobs.notifications import notifications_of

    return await notifications_of(client.connection, submission.spec, submission.run_id)


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
@job_argument
@json_option
@cluster_option
@click.pass_context
def explain(ctx: click.Context, job: str, as_json: bool) -> None:
    """Explain the state of JOB, or of its task JOB:INDEX, or of its earlier run JOB#1, and how each
    attempt ended.

    For a waiting job: the resources it needs, free resources, the jobs before it, and the remedy.
    """
    named, number = job_and_run(job)
    _, colon, index = named.partition(":")
    if colon and not index.isdecimal():
        raise click.UsageError(
            f"{job!r}: write the number of a task after the colon, such as train:3"
        )

    async def work(client: AsyncIrisClient) -> tuple[Explanation, "Submission"]:
        from iris.client.jobs.submitted import submission_of  # lists of jobs do not need it

        full = await named_job(client, job)
        run_id = await client.jobs.run(full, number)
        found = await client.jobs.explain(full, int(index) if colon else None, run_id)
        return found, await submission_of(client.connection, full, run_id)

    found, submission = with_client(
        ctx, work, known=lambda client: _listed(client, job, number), as_json=as_json
    )
    if as_json:
        unasked = {"not_asked": "attempts"} if found.attempts_unknown else {}
        print_json({**explanation_json(found), **submission_json(submission), **unasked})
    if not as_json:
        click.echo(explanation_text(found, datetime.now(UTC), submission_text(submission)))
    if found.attempts_unknown:
        raise Unreachable(found.attempts_unknown)


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
