"""Implements `iris logs`."""

import asyncio
import sys
from collections.abc import Sequence
from typing import NamedTuple

import click

from iris.cli.command import Command
from iris.cli.job_names import job_and_task
from iris.cli.name_completion import Kind, names_of
from iris.cli.parameters import Parsed, cluster_option
from iris.cli.show.follow import attempt_mark, follow_lines, follow_logs
from iris.cli.show.jobs import print_end
from iris.cli.show.log_printers import JsonPrinter, LinePrinter, Printer, RawPrinter
from iris.client.connect.identity import job_and_run
from iris.client.jobs.status import check_task
from iris.client.logs.follow import present_lines
from iris.client.logs.reading import Reader
from iris.client.logs.selection import STREAMS, milliseconds_since
from iris.client.logs.stored import AgentReader, LogReader
from iris.client.operate.archive import Archive, archive_of, cluster_of
from iris.model import names, store_paths
from iris.model.errors import NotFound, Unreachable
from iris.model.job.status import why_no_output
from iris.storage.log_format import Stream
from iris.storage.object_store import Store

#: The type of an option whose value is a duration or a time. It returns milliseconds since 1970.
SINCE = Parsed("duration|time", milliseconds_since)


@click.command(cls=Command)
@click.argument("job", required=False, shell_complete=names_of(Kind.JOBS))
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the job has ended.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.")
@click.option(
    "--since",
    type=SINCE,
    metavar="10m|TIME",
    help="Only lines of the last 10 minutes, or since TIME.",
)
@click.option(
    "--timestamps", is_flag=True, help="Show the time (UTC) at which each line was complete."
)
@click.option(
    "--stream",
    "streams",
    type=click.Choice(list(STREAMS)),
    multiple=True,
    help="Only this stream. Repeatable.",
)
@click.option("--build", is_flag=True, help="Only the set-up of the environment: --stream build.")
@click.option("--task", type=click.IntRange(min=0), help="Only this task.")
@click.option(
    "--all-tasks", is_flag=True, help="All tasks, each line with its task's number.  [default]"
)
@click.option("--attempt", type=click.IntRange(min=1), help="Only this attempt.")
@click.option(
    "--agent",
    metavar="HOST",
    shell_complete=names_of(Kind.HOSTS),
    help="Show the log of this host's agent instead of a job.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each line.")
@click.option(
    "--raw",
    is_flag=True,
    help=(
        "Write the unchanged bytes of one task into a file or a pipe; the host's lines go to"
        " standard error."
    ),
)
@click.option(
    "--exit-code",
    is_flag=True,
    help="With -f: exit as `iris wait` does, with 125 if the job failed.",
)
@cluster_option
@click.pass_context
def logs(
    ctx: click.Context,
    job: str | None,
    follow: bool,
    tail: int | None,
    since: int | None,
    timestamps: bool,
    streams: Sequence[str],
    build: bool,
    task: int | None,
    all_tasks: bool,
    attempt: int | None,
    agent: str | None,
    as_json: bool,
    raw: bool,
    exit_code: bool,
) -> None:
    """Show the output of JOB (NAME, USER/NAME, one task: NAME:3, or an earlier run: NAME#1),
    ordered by time.

    Works without hosts and control plane, and after a local cluster was stopped.

    \b
    iris logs -f train
    iris logs train:3 --since 10m --timestamps
    iris logs train --build
    iris logs --agent tpu-7-w-0 --tail 50
    """
    if (job is None) == (agent is None):
        raise click.UsageError("give either JOB or --agent HOST")
    output = _Output(
        since=since, tail=tail, follow=follow, timestamps=timestamps, as_json=as_json, raw=raw
    )
    _check_output(output, agent, exit_code=exit_code)
    cluster = ctx.find_root().obj["cluster"]
    if agent is not None:
        if task is not None or all_tasks or attempt is not None or streams or build:
            raise click.UsageError(
                "--agent excludes --task, --all-tasks, --attempt, --stream and --build: an agent's"
                " log has none of these"
            )
        asyncio.run(_show_agent(cluster, agent, output))
        return
    assert job is not None
    job, number = job_and_run(job)
    _, task = job_and_task(job, task)
    if all_tasks and task is not None:
        raise click.UsageError(f"--all-tasks and task {task} exclude each other")
    wanted = {STREAMS[stream] for stream in streams} | ({Stream.BUILD} if build else set())

    async def show() -> None:
        archive = await find_archive(cluster, job.partition(":")[0], task, number)
        selection = _Selection(archive, task, attempt, frozenset(wanted))
        await _show_job(selection, output, exit_code=exit_code)

    asyncio.run(show())


class _Output(NamedTuple):
    """The options of `iris logs` that decide how lines are printed."""

    #: Print only lines written at this time or later, in milliseconds since 1970. None prints all
    #: lines.
    since: int | None
    #: Print only this number of last lines. None prints all lines.
    tail: int | None
    follow: bool
    timestamps: bool
    as_json: bool
    raw: bool


def _check_output(output: _Output, agent: str | None, *, exit_code: bool) -> None:
    """Rejects options of the output that exclude each other."""
    if output.raw and (output.as_json or output.timestamps or agent is not None):
        raise click.UsageError("--raw excludes --json, --timestamps and --agent")
    if output.raw and sys.stdout.isatty():
        raise click.UsageError(
            "--raw is for files and other programs, as in: iris logs --raw JOB > FILE; "
            "a terminal gets the log without this option"
        )
    if exit_code and (not output.follow or agent is not None):
        raise click.UsageError("--exit-code needs -f and JOB: it waits for the job's end")


class _Selection(NamedTuple):
    """Selects the lines of a job's log that are printed."""

    archive: Archive
    task: int | None
    attempt: int | None
    #: The streams to print. An empty set means all streams.
    streams: frozenset[Stream]

    @property
    def prefixed(self) -> bool:
        """Whether each line has the number of its task."""
        return self.task is None and self.archive.source.tasks > 1


async def _show_job(selection: _Selection, output: _Output, *, exit_code: bool) -> None:
    """Prints the present output of a job, and what follows if `--follow` was given.

    Args:
        exit_code: raise the error that `iris wait` would raise at the job's end.
    """
    archive, attempt = selection.archive, selection.attempt
    name, run = archive.job, archive.source.run_id
    if output.raw and selection.prefixed:
        raise click.UsageError(
            f"--raw needs one task: {name} has {archive.source.tasks}; name one with {name}:NUMBER"
        )
    reader = LogReader(
        Store(archive.cluster.store),
        name,
        run,
        selection.task,
        attempt,
        streams=selection.streams or None,
        since_ms=output.since,
    )
    printer = _job_printer(selection, output)
    await _show_now(reader, printer, f"the log of {name}", output)
    if output.follow and archive.client is not None:
        await follow_logs(archive.client, reader, printer, name, run, utc=output.timestamps)
        if exit_code:
            print_end(await archive.client.jobs.final_status(name, run))
    elif exit_code:
        raise Unreachable(f"{archive.note}; so the exit code of {name} is unknown")
    elif attempt is not None and reader.empty:
        raise NotFound(
            f"the store has no output of attempt {attempt} of {name}; see the attempts with:"
            f" iris explain {name}"
        )
    if reader.empty and not exit_code:
        await _say_why_empty(archive, name, selection.task)


def _job_printer(selection: _Selection, output: _Output) -> Printer:
    if output.raw:
        return RawPrinter(apart=not selection.streams)
    if output.as_json:
        return JsonPrinter()
    prefixed = selection.prefixed

    def mark(task: int, number: int) -> str:
        return attempt_mark(task, number, prefixed=prefixed)

    return LinePrinter(
        prefixed=prefixed,
        timestamps=output.timestamps,
        growing=output.follow,
        next_attempt=mark if selection.attempt is None else None,
    )


async def _say_why_empty(archive: Archive, job: str, task: int | None) -> None:
    """Prints on standard error why there is no output, so that it does not look like a fault."""
    if archive.client is None:
        click.echo(f"the store has no output of {job}", err=True)
        return
    status = await archive.client.jobs.status(job, archive.source.run_id)
    click.echo(why_no_output(status, task), err=True)


async def _show_agent(cluster: str | None, host: str, output: _Output) -> None:
    """Prints the log of the agent on a host."""
    record = await cluster_of(cluster)
    store = Store(record.store)
    name = names.check_name("agent", host)
    reader = AgentReader(store, record.name, name, since_ms=output.since)
    printer: Printer = JsonPrinter(host)
    if not output.as_json:
        printer = LinePrinter(
            prefixed=False,
            timestamps=output.timestamps,
            next_attempt=lambda _, run: f"-- part {run} --",
        )
    title = f"the log of the agent on {host}"
    await _show_now(reader, printer, title, output)
    if reader.empty and not output.follow:
        existing = await store.folders(store_paths.agent_logs(record.name, "").rstrip("/"))
        raise NotFound(
            f"the store has no log of an agent on host {host}; there are logs of:"
            f" {', '.join(existing) or 'none'}"
        )
    if output.follow:
        endless: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await follow_lines(reader, printer, endless, title)


async def _show_now(reader: Reader, printer: Printer, title: str, output: _Output) -> None:
    """Prints the present output. If the output is followed, an unfinished line stays open."""
    async for lines in present_lines(reader, title, output.tail):
        printer.print(lines)
    if not output.follow:
        printer.finish()


async def find_archive(
    cluster: str | None, named: str, task: int | None, run: int | None = None
) -> Archive:
    """Returns where to read the logs and files of a job that the user names.

    Prints a note if only the store could be asked.

    Raises:
        NotFound: there is no such job, or it has no such task.
    """
    archive = await archive_of(cluster, named, run)
    if archive.note:
        click.echo(archive.note, err=True)
    if task is not None:
        check_task(archive.job, task, archive.source.numbers)
    return archive
