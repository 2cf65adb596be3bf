"""Implements `iris cancel`: cancels named jobs, or those that --all, --prefix or --tag select."""

import os
from collections.abc import Sequence

import click

from iris.cli.command import Command
from iris.cli.job_names import job_and_task, named_job
from iris.cli.name_completion import Kind, names_of
from iris.cli.parameters import TAG, cluster_option, reason_option, yes_option
from iris.cli.run import for_each, with_client
from iris.cli.show.jobs import JOBS
from iris.cli.show.messages import confirm
from iris.client.client import AsyncIrisClient
from iris.client.connect.identity import current_user, job_and_run
from iris.client.jobs.client import CancelAnswer
from iris.client.jobs.lists import JobFilter
from iris.client.jobs.rows import JobRow
from iris.model import names
from iris.model.errors import InvalidValue
from iris.model.job.tags import written
from iris.model.names import ENV_PAYLOAD_KEYS
from iris.model.units import format_duration

#: The maximum number of jobs that `--all`, `--prefix` or `--tag` select. If there are more, only
#: the newest are cancelled, and a message says to run the command again.
MAX_JOBS = 10_000


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
    _check_reason(reason)
    selects = all_jobs or prefix is not None or bool(tags)
    if bool(job) is selects or (all_jobs and prefix is not None):
        raise click.UsageError(
            "name jobs, or select them with --all, --prefix or --tag; --all and --prefix exclude"
            " each other"
        )
    if dry_run and job:
        raise click.UsageError("--dry-run needs --all, --prefix or --tag")
    if job:
        for_each(ctx, job, lambda client, text: _cancel_named(client, text, reason))
        return
    rows = _select(ctx, prefix_of(prefix), tags)
    if dry_run or not rows:
        click.echo(JOBS.table(rows) if rows else none_found(prefix_of(prefix), tags))
        return
    if not yes:
        question = f"Cancel {len(rows)} job{'s' * (len(rows) != 1)}?"
        confirm(question, lambda: click.echo(JOBS.table(rows), err=True))
    runs = {row.id: row.run_id for row in rows}
    for_each(ctx, tuple(runs), lambda client, name: _cancel_listed(client, name, runs, reason))


def prefix_of(prefix: str | None) -> str:
    """Returns how the ids of the selected jobs begin.

    Without a prefix, all jobs of the current user are selected.

    Raises:
        InvalidValue: the prefix is empty, or names a user and no job.
    """
    if prefix is None:
        return f"{current_user()}/"
    if not prefix.rpartition("/")[2]:
        raise InvalidValue(
            "prefix",
            prefix,
            "would select every job of a user",
            "write the beginning of a name, or use --all",
        )
    return prefix if "/" in prefix else f"{current_user()}/{prefix}"


async def jobs_to_cancel(
    client: AsyncIrisClient, prefix: str, tags: Sequence[tuple[str, str]] = ()
) -> tuple[list[JobRow], bool]:
    """Returns live jobs by the beginning of their ids and by their tags, and whether there are
    more.

    The newest jobs come first: a job that waits for the end of another job is newer, and is
    cancelled before that end could start it. Child jobs of a returned job are left out, because
    they end with it.
    """
    if "'" in prefix or "\\" in prefix:  # no job's id has them
        return [], False
    wanted = JobFilter(live_only=True, user=prefix.split("/")[0], prefix=prefix, tags=tags)
    found = [
        row
        for row in await client.jobs.list(wanted, limit=MAX_JOBS + 1)
        if row.id.startswith(prefix)
    ]
    listed = found[:MAX_JOBS]
    ids = {row.id for row in listed}
    return [row for row in listed if ids.isdisjoint(_ancestors(row.id))], len(found) > MAX_JOBS


def none_found(prefix: str, tags: Sequence[tuple[str, str]]) -> str:
    """Returns the message that no job was selected."""
    message = f"no live job's id begins with {prefix}"
    if not tags:
        return message
    return (
        f"{message} and has the tag{'s' * (len(tags) != 1)}"
        f" {', '.join(written(*tag) for tag in tags)}"
    )


def _check_reason(reason: str) -> None:
    if reason and os.environ.get(ENV_PAYLOAD_KEYS):
        raise InvalidValue(
            "reason",
            reason,
            "would be stored in plain text: the reason of a cancellation is never encrypted",
            "leave out --reason",
        )


def _select(ctx: click.Context, prefix: str, tags: Sequence[tuple[str, str]]) -> list[JobRow]:
    """Returns the jobs to cancel. Prints a message if there are more."""
    rows, more = with_client(ctx, lambda client: jobs_to_cancel(client, prefix, tags))
    if more:
        click.echo(
            f"these are the newest of more than {MAX_JOBS:,} jobs; run the command again for"
            " the others",
            err=True,
        )
    return rows


def _ancestors(job: str) -> list[str]:
    """Returns the ids of the job's parent, the parent's parent, and so on."""
    found, parent = [], names.parent_id(job)
    while parent is not None:
        found.append(parent)
        parent = names.parent_id(parent)
    return found


async def _cancel_named(client: AsyncIrisClient, text: str, reason: str) -> str:
    """Cancels a job, a run `NAME#2` or a task `NAME:3`, and returns the message."""
    named, number = job_and_run(text)
    _, task = job_and_task(named)
    job = await named_job(client, text)
    run_id = await client.jobs.run(job, number)
    shown = f"{job}#{number}" if number else job
    if task is None:
        return await _cancel_job(client, job, shown, reason, run_id, children=not number)
    request = await client.jobs.cancel_task(job, task, reason, run_id)
    return _message(names.task_id(shown, task), request)


async def _cancel_listed(
    client: AsyncIrisClient, job: str, runs: dict[str, str], reason: str
) -> str:
    """Cancels a job that was listed, and returns the message.

    Args:
        runs: the run of each listed job. Another job may have the name by now, so only that run is
            cancelled.
    """
    run_id = (await client.jobs.log_source(job, runs[job])).run_id
    return await _cancel_job(client, job, job, reason, run_id, children=True)


async def _cancel_job(
    client: AsyncIrisClient,
    job: str,
    shown: str,
    reason: str,
    run_id: str | None,
    *,
    children: bool,
) -> str:
    """Cancels one run of a job, and returns the message.

    Args:
        shown: how the message names the job.
        children: count the live child jobs, which end with the job.
    """
    request = await client.jobs.cancel(job, reason, run_id)
    if request.ended is not None or not children:
        return _message(shown, request)
    below = await client.jobs.child_jobs.live_below(job)
    with_them = (
        f" and the {below} live job{'s' * (below != 1)} that belong{'s' * (below == 1)} to it"
        if below
        else ""
    )
    return _message(shown, request) + with_them


def _message(name: str, request: CancelAnswer) -> str:
    if request.ended is not None:
        return f"{name} has ended already ({request.ended})"
    return f"cancelling {name} (grace period {format_duration(request.grace)})"
