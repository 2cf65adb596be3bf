"""Implements `iris usage`."""

from datetime import UTC, datetime

import click

from iris.cli.command import Command
from iris.cli.parameters import Parsed, cluster_option, group_option, json_option, limit_option
from iris.cli.run import with_client
from iris.cli.show.messages import print_json
from iris.cli.show.usage import usage_csv, usage_text
from iris.model.errors import InvalidValue
from iris.model.units import parse_duration
from iris.usage.report import parse_key

#: The most rows of the table, unless the user wants others.
ROWS = 30


def parse_moment(text: str) -> datetime:
    """Parses a time: a duration before now (`7d`), a day (`2026-11-01`, by UTC) or a time in ISO
    8601. A time without a zone is one by UTC.

    Raises:
        InvalidValue: the text is none of them.
    """
    try:
        return datetime.now(UTC) - parse_duration(text)
    except InvalidValue:
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        remedy = "write 7d, 2026-11-01 or 2026-11-01T12:00"
        raise InvalidValue("time", text, "is not a time", remedy) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


MOMENT = Parsed("time", parse_moment)


@click.command(cls=Command)
@click.option(
    "--by",
    type=Parsed("key", parse_key),
    multiple=True,
    default=("user",),
    metavar="KEY",
    show_default="user",
    help=(
        "A row for each user, team, job, group, band, day or tag:KEY; repeatable for a row for each"
        " combination."
    ),
)
@click.option(
    "--since",
    type=MOMENT,
    default=None,
    show_default="7d",
    help="Begin of the time: 7d before now, 2026-11-01 or 2026-11-01T12:00, by UTC.",
)
@click.option("--until", type=MOMENT, default=None, show_default="now", help="End of the time.")
@click.option("--user", metavar="NAME", default="", help="Only jobs of this user.")
@group_option("Only jobs and slices of this scale group.")
@limit_option(ROWS, "rows in the table")
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print the rows as CSV, for spreadsheets.")
@cluster_option
@click.pass_context
def usage(
    ctx: click.Context,
    by: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    user: str,
    group: str | None,
    limit: int,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Show who used the cluster, what it cost, and what was not used.

    Needs no control plane. Costs need prices in the cluster's configuration.

    \b
    iris usage                          the last seven days, by user
    iris usage --by team --since 30d
    iris usage --by day --by tag:project --since 2026-11-01 --csv
    iris usage --user ada --by job
    """
    if as_json and as_csv:
        raise click.UsageError("--json and --csv exclude each other")
    report = with_client(
        ctx,
        lambda client: client.cluster.usage(
            by, since=since, until=until, user=user, group=group or ""
        ),
    )
    if as_json:
        print_json(report.model_dump(mode="json"))
    elif as_csv:
        click.echo(usage_csv(report), nl=False)
    else:
        click.echo(usage_text(report, limit))
