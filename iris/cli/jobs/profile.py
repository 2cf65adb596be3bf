"""Implements `iris profile`."""

from datetime import timedelta
from pathlib import Path

import click

from iris.cli.command import Command
from iris.cli.job_names import job_and_task, named_job
from iris.cli.parameters import DURATION, cluster_option, task_argument
from iris.cli.run import with_client
from iris.client.client import AsyncIrisClient
from iris.client.jobs.exec.session import TaskLocation, new_session
from iris.messages.exec import Profile, ProfileFormat, ProfileRequest
from iris.model.errors import InvalidValue

#: The file suffix of each profile format.
_ENDINGS = {
    ProfileFormat.FLAMEGRAPH: "svg",
    ProfileFormat.SPEEDSCOPE: "speedscope.json",
    ProfileFormat.RAW: "txt",
}
#: The formats of a profile that is recorded over time. DUMP is not included, because a dump is a
#: single sample.
_RECORDED = [each.value for each in ProfileFormat if each is not ProfileFormat.DUMP]


@click.command(cls=Command)
@task_argument
@click.option("--dump", is_flag=True, help="Show the current stack of every thread.  [default]")
@click.option("--duration", type=DURATION, help="Record for this time, such as 10s.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(_RECORDED),
    help="Format of the recording.  [default: flamegraph]",
)
@click.option(
    "--rate",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="Samples per second.",
)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write it to this file."
)
@cluster_option
@click.pass_context
def profile(
    ctx: click.Context,
    job: str,
    dump: bool,
    duration: timedelta | None,
    format_: str | None,
    rate: int,
    output: Path | None,
) -> None:
    """Profile the Python processes of a running task with py-spy, on its host. The task keeps
    running.

    \b
    iris profile train:3                     the current stack of every thread
    iris profile train:3 --duration 10s      a flame graph, as an SVG file
    """
    recorded = duration is not None or format_ is not None
    if dump and recorded:
        raise click.UsageError("--dump excludes --duration and --format: it takes one sample")
    if duration is not None and duration < timedelta(seconds=1):
        raise InvalidValue(
            "duration", f"{duration.total_seconds():g}s", "is too short", "use at least 1s"
        )
    kind = ProfileFormat(format_ or ProfileFormat.FLAMEGRAPH) if recorded else ProfileFormat.DUMP
    _, task = job_and_task(job)

    async def work(client: AsyncIrisClient) -> tuple[bytes, Profile, TaskLocation]:
        where = await client.exec.locate(await named_job(client, job), task)
        request = ProfileRequest(
            session=new_session(), job=where.job, index=where.task, format=kind, rate=rate
        )
        if duration is not None:
            request = request.model_copy(update={"duration": duration})
        return *await client.exec.profile(where, request), where

    data, found, where = with_client(ctx, work)
    if kind is ProfileFormat.DUMP and output is None:
        click.echo(data, nl=False)
        return
    name = where.job.partition("/")[2]
    file = output or Path(f"{name}-{where.task}.{_ENDINGS.get(kind, 'txt')}")
    try:
        file.write_bytes(data)
    except OSError as error:
        raise InvalidValue(
            "output", str(file), f"cannot be written: {error.strerror}", "name another file with -o"
        ) from None
    pids = ", ".join(str(pid) for pid in found.pids)
    click.echo(f"{kind} of process {pids} on host {where.host}: {file}", err=True)
