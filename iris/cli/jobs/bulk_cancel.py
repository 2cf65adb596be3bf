"""Selects the jobs of `iris cancel --all`, `--prefix` and `--tag`, and asks before they are
cancelled.
"""

from collections.abc import Sequence

import click

from iris.cli.show.jobs import JOBS
from iris.cli.show.messages import confirm
from iris.client.client import AsyncIrisClient
from iris.client.connect.identity import current_user
from iris.client.jobs.lists import JobFilter
from iris.client.views import JobRow
from iris.model import names
from iris.model.errors import InvalidValue
from iris.model.job.tags import written

#: The most jobs that one command cancels.
MAX_JOBS = 10_000


def prefix_of(prefix: str | None) -> str:
    """Returns what the ids of the jobs begin with: all of the current user's without a prefix.

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
    """Returns the live jobs whose ids begin with the prefix and that have all the tags, the newest
    first.

    Leaves out those that end with a job above them.

    The newest first: a job that waits for another one's end, and would then start, is cancelled
    before that.

    Returns:
        The jobs, and whether there are more.
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
    selected = {row.id for row in listed}
    return [row for row in listed if selected.isdisjoint(_above(row.id))], len(found) > MAX_JOBS


def none_found(prefix: str, tags: Sequence[tuple[str, str]]) -> str:
    """Returns the message that no job was selected."""
    which = f"no live job's id begins with {prefix}"
    return (
        f"{which} and has the tag{'s' * (len(tags) != 1)}"
        f" {', '.join(written(*tag) for tag in tags)}"
        if tags
        else which
    )


def confirm_cancel(rows: list[JobRow]) -> None:
    """Lists the jobs and asks whether to cancel them.

    Raises:
        click.UsageError: there is no terminal to ask on.
        click.Abort: the user does not want it.
    """
    question = f"Cancel {len(rows)} job{'s' * (len(rows) != 1)}?"
    confirm(question, lambda: click.echo(JOBS.table(rows), err=True))


def _above(job: str) -> list[str]:
    above, parent = [], names.parent_id(job)
    while parent is not None:
        above.append(parent)
        parent = names.parent_id(parent)
    return above
