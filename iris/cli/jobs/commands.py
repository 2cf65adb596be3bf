"""Implements `iris jobs | status | wait | cancel | explain | hold | release | priority`."""

import asyncio
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from iris.cli.command import Command
from iris.cli.job_names import job_and_task, named_job, whole_job
from iris.cli.jobs.bulk_cancel import (
    MAX_JOBS,
    confirm_cancel,
    jobs_to_cancel,
    none_found,
    prefix_of,
)
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
    yes_option,
)
from iris.cli.run import Known, for_each, iris_command, with_client
from iris.cli.show import jobs as render
from iris.cli.show.follow import print_end
from iris.cli.show.jobs import page_of_tasks
from iris.cli.show.messages import print_json, raise_first
from iris.cli.show.submission import submission_json, submission_text
from iris.cli.watch import Watchable
from iris.client.client import AsyncIrisClient
from iris.client.connect.identity import job_and_run
from iris.client.jobs.lists import JobFilter
from iris.client.views import Explanation, JobRow, task_of
from iris.model import names
from iris.model.errors import InvalidValue, IrisError, Unreachable, WaitTimeout
from iris.model.job.spec import Band, JobStatus
from iris.model.names import ENV_PAYLOAD_KEYS
from iris.model.states import JobState
from iris.model.units import format_duration

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
        click.echo(render.job_tree(rows))
    else:
        render.JOBS.show(rows, as_json=as_json)
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

    Of many tasks, those that did not succeed come first. With --json all tasks are shown.
    """
    named, number = job_and_run(job)
    _, task = job_and_task(named)

    async def work(
        client: AsyncIrisClient,
    ) -> tuple[
        JobStatus, Sequence["InUse"], "Submission", Sequence["NotificationRow"], list[JobRow]
    ]:
        from iris.client.jobs.submitted import submission_of  # lists of jobs do not need it

        name = await named_job(client, job)
        run_id = await client.jobs.run(name, number)
        found = await client.jobs.status(name, run_id, task)
        if task is not None:
            found = found.model_copy(update={"tasks": (task_of(name, task, found.tasks),)})
        submission = await submission_of(client.connection, name, run_id)
        calls = await _calls(client, submission)
        in_use = await client.jobs.usage(found) if resources else []
        children = [] if as_json else await client.jobs.family.children(name, submission.run_id)
        return found, in_use, submission, calls, children

    found, in_use, submission, calls, children = with_client(
        ctx, work, known=lambda client: _listed(client, job, number), as_json=as_json
    )
    uses = render.uses(submission.spec.resources)
    if as_json:
        shown = {**render.status_json(found), **submission_json(submission)}
        shown["notifications"] = [call.model_dump(mode="json") for call in calls]
        print_json({**shown, "usage": [uses.json(each) for each in in_use]} if resources else shown)
        return
    part = page_of_tasks(found.tasks, text, limit, page)
    facts = submission_text(submission, calls) + (
        f"\n{'tasks':<10}{part.counts}" if part.counts else ""
    )
    click.echo(
        render.status_text(
            found.model_copy(update={"tasks": part.tasks}), datetime.now(UTC), facts, children
        )
    )
    if part.rest:
        click.echo(part.rest)
    if resources:
        click.echo(f"\n{uses.table(in_use)}")


async def _listed(client: AsyncIrisClient, job: str, number: int | None) -> Known:
    """Returns what lists show of a job that cannot be asked itself, because no control plane
    answers.
    """
    from iris.client.jobs.lists import listed_job

    name = await named_job(client, job)
    row = await listed_job(client.connection, name, await client.jobs.run(name, number))
    return Known(
        render.listed_text(row, datetime.now(UTC)),
        "its tasks, and changes of its state",
        render.JOBS.json(row),
    )


async def _calls(client: AsyncIrisClient, submission: "Submission") -> Sequence["NotificationRow"]:
    """What has become of the calls of a job's webhooks, which few jobs have."""
    if not submission.spec.notify:
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
        print_json([render.status_json(found) for found in ended])
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
@click.argument("job", nargs=-1, shell_complete=names_of(Kind.JOBS))
@click.option(
    "--all", "all_jobs", is_flag=True, help="Cancel all your live jobs, after a confirmation."
)
@click.option(
    "--prefix",
    metavar="TEXT",
    help=(
        "Cancel the live jobs whose names begin with this, after a confirmation: NAME or USER/NAME."
    ),
)
@click.option(
    "--tag",
    "tags",
    type=TAG,
    multiple=True,
    metavar="KEY[=VALUE]",
    help=(
        "Cancel your live jobs, or those of --prefix, that have this tag, after a confirmation."
        " Repeatable: all of the tags."
    ),
)
@click.option(
    "--dry-run", is_flag=True, help="Cancel nothing; list the jobs of --all, --prefix or --tag."
)
@yes_option
@reason_option("by `iris status`")
@cluster_option
@click.pass_context
def cancel(
    ctx: click.Context,
    job: tuple[str, ...],
    all_jobs: bool,
    prefix: str | None,
    tags: tuple[tuple[str, str], ...],
    dry_run: bool,
    yes: bool,
    reason: str,
) -> None:
    """Cancel each JOB, or one of its tasks: JOB:3. Programs get SIGTERM and, after their grace
    period, SIGKILL.

    JOB#2 is cancelled only if that run of the name has not ended.

    The other tasks of the job continue. A cancelled task counts neither as a failure nor as a
    success of its job.
    """
    if reason and os.environ.get(ENV_PAYLOAD_KEYS):
        raise InvalidValue(
            "reason",
            reason,
            "would be stored in plain text: Temporal does not encrypt it",
            "leave it out",
        )
    selects = all_jobs or prefix is not None or bool(tags)
    if bool(job) is selects or (all_jobs and prefix is not None):
        raise click.UsageError("name jobs, or give either --all or --prefix, or --tag")
    if dry_run and job:
        raise click.UsageError("--dry-run needs --all, --prefix or --tag")
    listed: dict[str, str] = {}
    if not job:
        start = prefix_of(prefix)
        rows, more = with_client(ctx, lambda client: jobs_to_cancel(client, start, tags))
        if more:
            click.echo(
                f"these are the newest of more than {MAX_JOBS:,} jobs; run the command again for"
                " the others",
                err=True,
            )
        if dry_run or not rows:
            click.echo(render.JOBS.table(rows) if rows else none_found(start, tags))
            return
        if not yes:
            confirm_cancel(rows)
        listed = {row.id: row.run_id for row in rows}
        job = tuple(listed)

    async def work(client: AsyncIrisClient, name: str) -> str:
        text, (named, number) = name, job_and_run(name)
        _, task = job_and_task(named)
        name = await named_job(client, text)
        run_id, run = await client.jobs.run(name, number), f"#{number}" if number else ""
        if text in listed:  # by now, another job may have the name
            run_id = (await client.jobs.log_source(name, listed[text])).run_id
        if task is None:
            request = await client.jobs.cancel(name, reason, run_id)
            name += run
        else:
            request = await client.jobs.cancel_task(name, task, reason, run_id)
            name = names.task_id(name + run, task)
        if request.ended is not None:
            return f"{name} has ended already ({request.ended})"
        below = await client.jobs.family.live_below(name) if task is None and not run else 0
        with_them = (
            f" and the {below} live job{'s' * (below != 1)} that belong{'s' * (below == 1)} to it"
            if below
            else ""
        )
        return f"cancelling {name} (grace period {format_duration(request.grace)}){with_them}"

    for_each(ctx, job, work)


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
        print_json({**render.explanation_json(found), **submission_json(submission), **unasked})
    if not as_json:
        click.echo(render.explanation_text(found, datetime.now(UTC), submission_text(submission)))
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
