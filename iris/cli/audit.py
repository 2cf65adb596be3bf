"""Implements `iris audit`."""

from datetime import datetime

import click

from iris.access.audit import AuditEntry
from iris.cli.command import Command
from iris.cli.name_completion import Kind, names_of
from iris.cli.parameters import cluster_option, json_option, limit_option, time_options
from iris.cli.run import with_client
from iris.cli.show.columns import Column
from iris.cli.show.listing import Listing
from iris.cli.show.messages import show_progress

#: The maximum number of rows of the table if the user gives no `--limit`.
ROWS = 100


def _refused(entry: AuditEntry) -> str | None:
    """Returns why the call was refused, and whether the server left out others before it."""
    others = f"{entry.left_out:,} more were not recorded before it" if entry.left_out else ""
    refusal = "" if entry.allowed else entry.refusal or "yes"
    return "; ".join(filter(None, (refusal, others))) or None


ENTRIES: Listing[AuditEntry] = Listing(
    Column("TIME", "at", text=lambda at: f"{at:%Y-%m-%d %H:%M:%S}"),
    Column("WHO", "who"),
    Column("ROLE", "role"),
    Column("DID", value=lambda entry: entry.detail or entry.method, wraps=True),
    Column("TO", "what", shortens=True),
    Column("REFUSED", value=_refused, wraps=True, optional=True),
    Column("WHY", "why", wraps=True, optional=True),
    Column("KEY", "key", optional=True, importance=1),
    Column("FROM", "from", value=lambda entry: entry.origin, optional=True),
    Column(key="method"),
    Column(key="detail"),
    Column(key="allowed"),
    Column(key="refusal"),
    Column(key="left_out"),
    empty="no change and no refused call in this time",
)


@click.command(cls=Command)
@time_options("1d")
@click.option("--user", metavar="NAME", default="", help="Only what this person did.")
@click.option(
    "--job",
    metavar="JOB",
    default="",
    shell_complete=names_of(Kind.JOBS),
    help="Only what was done to this job.",
)
@click.option("--refused", is_flag=True, help="Only calls that were refused.")
@limit_option(ROWS, "rows, the latest ones")
@json_option
@cluster_option
@click.pass_context
def audit(
    ctx: click.Context,
    since: datetime | None,
    until: datetime | None,
    user: str,
    job: str,
    refused: bool,
    limit: int,
    as_json: bool,
) -> None:
    """Show who changed what on a cluster with identities, and what was refused.

    Temporal's servers write the audit, so it also has what was done in the Web UI or by Temporal's
    own command. It stays in the cluster's store, longer than the histories of jobs.

    \b
    iris audit                         the last day
    iris audit --since 7d --user ada
    iris audit --job ada/train --json
    iris audit --refused
    """
    found = with_client(
        ctx,
        lambda client: client.cluster.audit(
            since=since, until=until, user=user, job=job, refused=refused
        ),
    )
    if as_json:
        ENTRIES.show(found.entries, as_json=True)
    else:
        click.echo(ENTRIES.table(found.entries[-limit:]))
        if left := max(0, len(found.entries) - limit):
            show_progress(f"{left:,} earlier entries; see them with --limit or --json")
    if found.unreadable:
        show_progress(f"{found.unreadable:,} lines in the store are not entries of an audit")
