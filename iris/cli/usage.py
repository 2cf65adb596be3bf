"""Implements `iris usage`."""

from datetime import datetime

import click
from click.core import ParameterSource

from iris.cli.command import Command
from iris.cli.jobs.usage import show_job_usage
from iris.cli.name_completion import Kind, names_of
from iris.cli.parameters import (
    Parsed,
    cluster_option,
    group_option,
    json_option,
    limit_option,
    time_options,
)
from iris.cli.run import with_client
from iris.cli.show.messages import print_json, show_progress
from iris.cli.show.usage import trace_notes, usage_csv, usage_text
from iris.usage.report import parse_key

#: The maximum number of rows of the table if the user gives no `--limit`.
ROWS = 30


#: The options about the use of the whole cluster. They cannot be combined with the argument JOB.
_OF_THE_CLUSTER = ("by", "since", "until", "user", "group", "limit", "trace", "as_csv")
#: The options that select, group or format the sums of resource use. They cannot be combined with
#: `--trace`, which writes no sums.
_NOT_OF_TRACES = ("by", "user", "group", "limit", "as_json", "as_csv")


@click.command(cls=Command)
@click.argument("job", required=False, shell_complete=names_of(Kind.JOBS))
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
@time_options("7d")
@click.option("--user", metavar="NAME", default="", help="Only jobs of this user.")
@group_option("Only jobs and slices of this scale group.")
@limit_option(ROWS, "rows in the table")
@click.option(
    "--trace",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE|-",
    help="Write the workload of the time to this file, for a simulation; without names.",
)
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print the rows as CSV, for spreadsheets.")
@cluster_option
@click.pass_context
def usage(
    ctx: click.Context,
    job: str | None,
    by: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    user: str,
    group: str | None,
    limit: int,
    trace: str | None,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Show who used the cluster, what it cost, and what was not used.

    With JOB, or its task JOB:INDEX, or its earlier run JOB#1: what it used over time (cores, memory
    and GPUs) against what it requested, and smaller requests that would do. Of each task, it is the
    use of the last attempt. Programs that ran for a few seconds are not measured.

    Costs need prices in the cluster's configuration. If no control plane answers, what runs now is
    missing.

    \b
    iris usage                          the last seven days, by user
    iris usage --by team --since 30d
    iris usage --by day --by tag:project --since 2026-11-01 --csv
    iris usage --user ada --by job
    iris usage train                    what the job used over time
    iris usage --since 7d --trace week.jsonl
    """
    if job is not None:
        _refuse(ctx, _OF_THE_CLUSTER, "is about the use of the cluster; leave out JOB")
        show_job_usage(ctx, job, as_json=as_json)
        return
    if trace is not None:
        why = "is for sums of use, which --trace does not write; leave out one of the two"
        _refuse(ctx, _NOT_OF_TRACES, why)
        _write_trace(ctx, trace, since, until)
        return
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


def _write_trace(
    ctx: click.Context, file: str, since: datetime | None, until: datetime | None
) -> None:
    """Writes the workload of a time to a file, or to standard output."""
    made = with_client(ctx, lambda client: client.cluster.usage_trace(since=since, until=until))
    with click.open_file(file, "w", encoding="utf-8") as out:
        out.writelines(made.lines())
    for text in trace_notes(made.trace, made.gaps):
        show_progress(text)


def _refuse(ctx: click.Context, options: tuple[str, ...], why: str) -> None:
    """Raises a usage error if one of these options was given."""
    for name in options:
        if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"--{name.removeprefix('as_')} {why}")
