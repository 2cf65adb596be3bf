"""Follows the output and the state of a job until the job ends."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Collection, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from iris.cli import show
from iris.cli.show.log_printers import LinePrinter, Printer, iso_time
from iris.cli.show.terminal import is_live
from iris.client.client import AsyncIrisClient
from iris.client.logs.follow import new_lines
from iris.client.logs.reading import Reader
from iris.client.logs.stored import LogReader
from iris.model.errors import IrisError
from iris.model.job.cancelling import state_text
from iris.model.job.status import JobStatus
from iris.model.states import JobState
from iris.storage.object_store import Store

#: The number of seconds between two queries of a job's state. Each query costs the control plane
#: work.
STATE_INTERVAL_S = 1.0


def attempt_mark(task: int, attempt: int, *, prefixed: bool) -> str:
    """Returns the line that separates the output of two attempts."""
    return f"-- task {task}, attempt {attempt} --" if prefixed else f"-- attempt {attempt} --"


async def follow_lines(
    reader: Reader, printer: Printer, ended: "asyncio.Future[None]", title: str
) -> None:
    """Prints output until `ended` is done, and then the output that was written before that.

    Raises:
        IrisError: the store is gone.
    """
    async for lines in new_lines(reader, ended, title):
        printer.print(lines)
    printer.finish()


async def follow_logs(
    client: AsyncIrisClient,
    reader: LogReader,
    printer: Printer,
    job: str,
    run_id: str,
    *,
    utc: bool = False,
) -> None:
    """Prints output until the job has ended and all its output is printed.

    Prints on standard error why no program runs yet.

    Args:
        utc: print times of states in UTC, because each line of output has its time in UTC.
    """
    async with _beside(
        _print_states(client, job, run_id, {JobState.PENDING, JobState.BUILDING}, utc=utc)
    ):
        await _follow_output(client, reader, printer, job, run_id)


async def follow_job(
    client: AsyncIrisClient,
    job: str,
    run_id: str,
    *,
    prefixed: bool,
    upload: timedelta,
    remark: Awaitable[str],
) -> JobStatus:
    """Follows logs and state until the job ends, and returns its last status.

    A terminal shows the state in a block below the output.

    Args:
        prefixed: print the number of its task before each line.
        upload: the time that the upload of the job's files took.
        remark: a text for standard error that is known only later. An empty text is not printed.
    """
    reader = LogReader(Store(client.record.store), job, run_id)
    printer = LinePrinter(
        prefixed=prefixed,
        growing=True,
        next_attempt=lambda task, attempt: attempt_mark(task, attempt, prefixed=prefixed),
    )
    if is_live():
        async with (
            show.live_job.LiveJob(client, job, run_id, upload) as live,
            _beside(live.print_remark(remark)),
        ):
            await _follow_output(client, reader, live.above(printer), job, run_id)
        return await client.jobs.final_status(job, run_id)
    states = _print_states(client, job, run_id, {state for state in JobState if not state.ended})
    async with _beside(states), _beside(_print_remark(remark)):
        await _follow_output(client, reader, printer, job, run_id)
    return await client.jobs.final_status(job, run_id)


@contextlib.asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Runs the work while the block runs."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()


async def _print_remark(remark: Awaitable[str]) -> None:
    if text := await remark:
        click.echo(text, err=True)


async def _follow_output(
    client: AsyncIrisClient, reader: LogReader, printer: Printer, job: str, run_id: str
) -> None:
    ended = asyncio.create_task(client.jobs.wait_until_ended(job, run_id))
    try:
        await follow_lines(reader, printer, ended, f"the log of {job}")
        await ended
    finally:
        ended.cancel()


async def _print_states(
    client: AsyncIrisClient,
    job: str,
    run_id: str,
    shown: Collection[JobState],
    *,
    utc: bool = False,
) -> None:
    """Prints changes of the job's state or reason on standard error.

    Args:
        shown: the states that are printed.
    """
    printed = ""
    while True:
        await asyncio.sleep(STATE_INTERVAL_S)
        with contextlib.suppress(IrisError):
            status = await client.jobs.status(job, run_id)
            shows = state_text(status)
            now = f"{shows}: {status.reason}" if status.reason else shows
            if now != printed and status.state in shown:
                time = (
                    iso_time(datetime.now(UTC))
                    if utc
                    else f"{datetime.now().astimezone():%H:%M:%S}"
                )
                click.echo(f"{time} {job} is {now}", err=True)
                printed = now
