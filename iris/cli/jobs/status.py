"""Implements `iris status | explain`."""

import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from iris.cli.command import Command
from iris.cli.job_names import job_and_task, named_job
from iris.cli.parameters import (
    cluster_option,
    job_argument,
    json_option,
    limit_option,
    page_option,
)
from iris.cli.run import Known, with_client
from iris.cli.show.explanation import explanation_json, explanation_text
from iris.cli.show.jobs import (
    JOBS,
    TaskPage,
    listed_text,
    page_of_tasks,
    status_json,
    status_text,
    usage_listing,
)
from iris.cli.show.messages import print_json
from iris.cli.show.submission import submission_json, submission_text
from iris.cli.watch import Watchable
from iris.client.client import AsyncIrisClient
from iris.client.connect.identity import job_and_run
from iris.client.jobs.explanation import Explanation
from iris.client.jobs.find import listed_job
from iris.client.jobs.notifications import NotificationRow, notifications_of
from iris.client.jobs.rows import JobRow
from iris.client.jobs.status import task_of
from iris.client.jobs.submitted import Submission, submission_of
from iris.model.errors import NotAllowed, Unreachable
from iris.model.job.status import JobStatus

if TYPE_CHECKING:
    from iris.client.jobs.usage import InUse


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


#: The data of other users' jobs that the access policy of a cluster hides, as text for people.
_HIDDEN = "command, resources"


class _Status(NamedTuple):
    """The data that `iris status` shows."""

    status: JobStatus
    #: The submitted specification. None if the job belongs to another user and the cluster's policy
    #: hides it.
    submission: Submission | None
    notifications: Sequence[NotificationRow]
    children: Sequence[JobRow]
    #: The resource use of the running tasks. None if the user did not ask for it, or if
    #: `submission` is None.
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
    name = await named_job(client, job)
    run_id = await client.jobs.run(name, number)
    status = await client.jobs.status(name, run_id, task)
    if task is not None:
        status = status.model_copy(update={"tasks": (task_of(name, task, status.tasks),)})
    submission = await _submission(client, name, run_id)
    if submission is None:
        return _Status(status, None, (), (), None)
    notifications = await _notifications(client, submission)
    in_use = await client.jobs.usage(status) if resources else None
    family = await client.jobs.child_jobs.children(name, submission.run_id) if children else []
    return _Status(status, submission, notifications, family, in_use)


async def _submission(client: AsyncIrisClient, job: str, run_id: str | None) -> Submission | None:
    """Returns the submission of a job; None if the cluster's policy hides it."""
    with contextlib.suppress(NotAllowed):
        return await submission_of(client.connection, job, run_id)
    return None


def _status_json(found: _Status) -> dict[str, Any]:
    if found.submission is None:
        return {**status_json(found.status), "not_asked": _HIDDEN}
    shown = {**status_json(found.status), **submission_json(found.submission)}
    shown["notifications"] = [each.model_dump(mode="json") for each in found.notifications]
    if found.in_use is None:
        return shown
    listing = usage_listing(found.submission.spec.resources)
    return {**shown, "usage": [listing.json(each) for each in found.in_use]}


def _print_status(found: _Status, page: TaskPage) -> None:
    facts = _facts(found.submission, found.notifications)
    if page.counts:
        facts += f"\n{'tasks':<10}{page.counts}"
    shown = found.status.model_copy(update={"tasks": page.tasks})
    click.echo(status_text(shown, datetime.now(UTC), facts, found.children))
    if page.rest:
        click.echo(page.rest)
    if found.in_use is not None and found.submission is not None:
        click.echo(f"\n{usage_listing(found.submission.spec.resources).table(found.in_use)}")


def _facts(submission: Submission | None, notifications: Sequence[NotificationRow] = ()) -> str:
    """Returns the text about the submission of a job."""
    if submission is None:
        return f"{'hidden':<10}{_HIDDEN}: only its user and operators see them"
    return submission_text(submission, notifications)


async def _listed(client: AsyncIrisClient, job: str, number: int | None) -> Known:
    """Returns the facts of a job that Temporal knows, because the control plane does not answer."""
    name = await named_job(client, job)
    row = await listed_job(client.connection, name, await client.jobs.run(name, number))
    return Known(
        listed_text(row, datetime.now(UTC)),
        "its tasks, and changes of its state",
        JOBS.json(row),
    )


async def _notifications(
    client: AsyncIrisClient, submission: Submission
) -> Sequence[NotificationRow]:
    """Returns the calls of the job's webhooks, and how each ended."""
    if not submission.spec.notify:  # as most jobs
        return ()
    return await notifications_of(client.connection, submission.spec, submission.run_id)


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

    async def work(client: AsyncIrisClient) -> tuple[Explanation, Submission | None]:
        full = await named_job(client, job)
        run_id = await client.jobs.run(full, number)
        found = await client.jobs.explain(full, int(index) if colon else None, run_id)
        return found, await _submission(client, full, run_id)

    found, submission = with_client(
        ctx, work, known=lambda client: _listed(client, job, number), as_json=as_json
    )
    if as_json:
        unasked = {"not_asked": "attempts"} if found.attempts_unknown else {}
        facts = {"not_asked": _HIDDEN} if submission is None else submission_json(submission)
        print_json({**explanation_json(found), **facts, **unasked})
    if not as_json:
        click.echo(explanation_text(found, datetime.now(UTC), _facts(submission)))
    if found.attempts_unknown:
        raise Unreachable(found.attempts_unknown)
