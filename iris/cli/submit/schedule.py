"""Implements `iris schedule create | list | show | pause | resume | trigger | delete`."""

import zoneinfo
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, BinaryIO

import click

from iris.cli.command import CommandGroup
from iris.cli.interrupts import created, nothing_yet, run
from iris.cli.name_completion import Kind, names_of
from iris.cli.parameters import DURATION, TEXT, cluster_option, json_option
from iris.cli.run import for_each, iris_command, selected, with_client
from iris.cli.show.columns import Column
from iris.cli.show.listing import Listing
from iris.cli.show.messages import print_json
from iris.cli.submit.file import jobs_asked_for
from iris.cli.submit.job_from_options import plan_job
from iris.cli.submit.options import JobCommand, spec_options
from iris.cli.submit.prepare import check_secrets, print_warnings, with_files
from iris.cli.submit.read_file import job_options
from iris.client.client import AsyncIrisClient
from iris.client.connect.cluster_ref import ClusterRef
from iris.client.schedules.client import ScheduledRun, ScheduleRow, ScheduleView
from iris.client.schedules.when import Overlap, When
from iris.model.units import format_duration

SCHEDULES: Listing[ScheduleRow] = Listing(
    Column("ID", "id", shortens=True),
    Column("WHEN", "when", wraps=True, least=30),
    Column("STATE", value=lambda row: "PAUSED" if row.paused else "active"),
    Column("NEXT", value=lambda row: _in(row.next_times[0]) if row.next_times else None),
    Column("LAST", "last_at"),
    Column("COMMAND", "command", wraps=True, optional=True),
    Column(key="time_zone"),
    Column(key="paused"),
    Column(key="note"),
    Column(key="next_times"),
    keys="id when time_zone paused note next_times last_at command",
    empty="no schedules",
)
_RUNS: Listing[ScheduledRun] = Listing(
    Column("TIME", "scheduled_at", text=lambda time: at(time, "UTC")),
    Column("STARTED", "started_at"),
    Column("STATE", "state"),
    Column("REASON", "reason", absent="", wraps=True),
    keys="scheduled_at started_at state reason",
    empty="no runs yet",
)


@click.group(cls=CommandGroup)
def schedule() -> None:
    """Start a job again and again, at times or in intervals."""


@schedule.command(cls=JobCommand)
@spec_options
@click.option(
    "--cron",
    type=TEXT,
    multiple=True,
    metavar="EXPR",
    help='Minute, hour, day, month, weekday: "0 2 * * *". Repeatable.',
)
@click.option(
    "--every", type=DURATION, help="Interval between the runs, such as 6h, instead of --cron."
)
@click.option(
    "--time-zone",
    default="UTC",
    show_default=True,
    metavar="NAME",
    help="Time zone of --cron, such as Europe/Berlin.",
)
@click.option(
    "--overlap",
    type=click.Choice([each.value for each in Overlap]),
    default=Overlap.SKIP.value,
    show_default=True,
    help="If the run before has not ended: leave this time out, wait for its end, or cancel it.",
)
@click.option("--paused", is_flag=True, help="Start no runs until `iris schedule resume`.")
@click.option(
    "-f",
    "--job-file",
    type=click.File("rb"),
    metavar="FILE|-",
    help="Take the options and the command from a job file.",
)
@json_option
@click.argument("command", nargs=-1, metavar="COMMAND...", type=TEXT)
@cluster_option
@click.pass_context
def create(
    ctx: click.Context,
    /,
    job_file: BinaryIO | None,
    cron: tuple[str, ...],
    every: timedelta | None,
    time_zone: str,
    overlap: str,
    paused: bool,
    as_json: bool,
    **_: Any,
) -> None:
    """Create a schedule that runs COMMAND. Each run is a job of the same name, as with `iris
    submit`.

    Files are sent once, now. Times that are missed for more than an hour, such as while the cluster
    is stopped, are left out. When the time zone's clock is set forward, a skipped time has no run.
    When it is set back, a time that comes twice has one run.

    \b
    iris schedule create -n nightly --cron '0 2 * * *' --time-zone Europe/Berlin -- ./evaluate.sh
    iris schedule create -n clean --every 6h --overlap queue --cpu 0.5 -- ./clean.sh
    """
    documents = jobs_asked_for(ctx, job_file)
    if len(documents) > 1:
        raise click.UsageError(f"a schedule starts one job, and the file has {len(documents)} jobs")
    options = job_options(documents[0])
    if options["name"] is None:
        raise click.UsageError("a schedule needs a name: -n NAME, or name: in the job file")
    if not cron and every is None:
        raise click.UsageError("give the times with --cron, or an interval with --every")
    if cron and every is not None:
        raise click.UsageError("--cron and --every exclude each other")
    when = When(cron, every, time_zone)
    run(
        _create(
            selected(ctx),
            options,
            when,
            Overlap(overlap),
            iris_command(ctx),
            paused=paused,
            as_json=as_json,
        )
    )


def _announce(row: ScheduleRow, iris: str, *, as_json: bool) -> None:
    if as_json:
        print_json(SCHEDULES.json(row))
        return
    click.echo(f"schedule {row.id}: {row.when}")
    if row.next_times:
        click.echo(f"the next runs start at {_times(row)}")
    else:
        click.echo(f"it is paused; start it with `{iris} schedule resume {row.id}`")


@schedule.command("list")
@json_option
@cluster_option
@click.pass_context
def list_schedules(ctx: click.Context, as_json: bool) -> None:
    """List schedules, with their next and their last runs."""
    SCHEDULES.show(with_client(ctx, lambda client: client.schedules.list()), as_json=as_json)


@schedule.command()
@click.argument("schedule_id", metavar="NAME", shell_complete=names_of(Kind.SCHEDULES))
@json_option
@cluster_option
@click.pass_context
def show(ctx: click.Context, schedule_id: str, as_json: bool) -> None:
    """Show schedule NAME: its times, its job, the next five runs, and the last ones."""
    view = with_client(ctx, lambda client: client.schedules.show(schedule_id))
    if as_json:
        print_json(
            {
                **SCHEDULES.json(view.row),
                "overlap": view.overlap,
                "runs": [_RUNS.json(run) for run in view.runs],
            }
        )
        return
    click.echo("\n".join(_lines(view)))
    click.echo(f"\n{_RUNS.table(view.runs)}")


_schedules = click.argument(
    "schedules",
    metavar="NAME...",
    nargs=-1,
    required=True,
    shell_complete=names_of(Kind.SCHEDULES),
)


@schedule.command()
@_schedules
@click.option("--reason", default="", help="Reason, shown by `iris schedule show`.")
@cluster_option
@click.pass_context
def pause(ctx: click.Context, schedules: tuple[str, ...], reason: str) -> None:
    """Start no more runs of each NAME. A run that has started continues."""
    _each(ctx, schedules, lambda client, each: client.schedules.pause(each, reason), "is paused")


@schedule.command()
@_schedules
@cluster_option
@click.pass_context
def resume(ctx: click.Context, schedules: tuple[str, ...]) -> None:
    """Start runs of each NAME again. Times that have passed are left out."""
    _each(ctx, schedules, lambda client, each: client.schedules.resume(each), "is active")


@schedule.command()
@_schedules
@cluster_option
@click.pass_context
def trigger(ctx: click.Context, schedules: tuple[str, ...]) -> None:
    """Start a run of each NAME now, also of a paused schedule."""
    _each(ctx, schedules, lambda client, each: client.schedules.trigger(each), "starts a run")


@schedule.command()
@_schedules
@cluster_option
@click.pass_context
def delete(ctx: click.Context, schedules: tuple[str, ...]) -> None:
    """Delete each schedule NAME. A run that has started continues; `iris cancel NAME` stops it."""
    _each(ctx, schedules, lambda client, each: client.schedules.delete(each), "is deleted")


async def _create(
    cluster: ClusterRef,
    options: Mapping[str, Any],
    when: When,
    overlap: Overlap,
    iris: str,
    *,
    paused: bool,
    as_json: bool,
) -> None:
    client = await AsyncIrisClient.connect(cluster)
    planned = plan_job(options, shares_files=client.record.supervisor is not None)
    print_warnings([planned.spec])
    await check_secrets(client, [planned.spec])
    with nothing_yet("created"):
        (spec,) = await with_files(client.record, [planned], quiet=as_json)
    creation = client.schedules.create(spec, when, overlap=overlap, paused=paused)
    async with created(
        creation,
        announce=lambda row: _announce(row, iris, as_json=as_json),
        what=f"schedule {spec.id}",
        look=f"{iris} schedule show {spec.id}",
    ):
        pass


def _each(
    ctx: click.Context,
    found: tuple[str, ...],
    work: Callable[[AsyncIrisClient, str], Awaitable[str]],
    done: str,
) -> None:
    async def one(client: AsyncIrisClient, name: str) -> str:
        return f"schedule {await work(client, name)} {done}"

    for_each(ctx, found, one)


def _lines(view: ScheduleView) -> list[str]:
    row = view.row
    facts = [
        ("when", row.when),
        ("state", f"PAUSED: {row.note}" if row.paused else "active"),
        ("next", _times(row)),
        ("overlap", view.overlap.value),
        (
            "job",
            f"{view.spec.replicas} x {view.spec.resources}"
            if view.spec.replicas > 1
            else str(view.spec.resources),
        ),
        ("command", row.command),
        (
            "left out",
            f"{view.skipped} because the run before had not ended" if view.skipped else "",
        ),
        ("missed", f"{view.missed} while the cluster was away" if view.missed else ""),
    ]
    return [row.id, *(f"  {name:<9}{text}" for name, text in facts if text)]


def at(time: datetime, time_zone: str) -> str:
    """Returns the text of a time in a zone, or in UTC if this machine does not know the zone."""
    zone: tzinfo = UTC
    with suppress(zoneinfo.ZoneInfoNotFoundError, ValueError):
        zone = zoneinfo.ZoneInfo(time_zone)
    return f"{time.astimezone(zone):%Y-%m-%d %H:%M{':%S' * bool(time.second)} %Z}"


def _times(row: ScheduleRow) -> str:
    return ", ".join(at(time, row.time_zone) for time in row.next_times)


def _in(time: datetime) -> str:
    return f"in {format_duration(max(time - datetime.now(UTC), timedelta()))}"
