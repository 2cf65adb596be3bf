"""Following a job in a terminal: its logs on standard output, what happens to it on standard error."""

import asyncio
import codecs
import contextlib
import sys

import click
from obstore.exceptions import BaseError

from iris.client.client import IrisClient
from iris.client.logs import LogReader, TaskLine
from iris.errors import IrisError, JobCancelled, JobFailed
from iris.jobs import JobStatus
from iris.logs import Stream
from iris.states import JobState
from iris.units import format_duration

#: Between looks for new output: short enough to feel immediate.
LOOK_EVERY = 0.25
#: Failures in a row, some seconds' worth, after which the store counts as away for good.
MAX_FAILURES = 40
#: Between looks at the state; each asks the control plane.
STATE_EVERY = 1.0


class LinePrinter:
    """Prints lines of one or several tasks to standard output, whole lines only; a task's number goes before its lines."""

    def __init__(self, *, prefixed: bool) -> None:
        self._prefixed = prefixed
        # What is not UTF-8 is replaced: a terminal must not be fed arbitrary bytes. A piece's end may cut a character in two.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        #: Pieces of lines that go on, by task, attempt and stream.
        self._pieces: dict[tuple[int, int, Stream], bytes] = {}

    def print(self, lines: list[TaskLine]) -> None:
        out = []
        for task, attempt, line in lines:
            data = line.data
            if self._prefixed:
                key = (task, attempt, line.stream)
                data = self._pieces.pop(key, b"") + data
                if line.goes_on:
                    self._pieces[key] = data
                    continue
                out.append(b"[%d] " % task)
            out.append(data if line.goes_on else data + b"\n")
        self._write(b"".join(out))

    def finish(self) -> None:
        """Print what never got its newline."""
        self._write(b"".join(b"[%d] %s\n" % (task, data) for (task, _, _), data in self._pieces.items()), last=True)
        self._pieces.clear()

    def _write(self, data: bytes, *, last: bool = False) -> None:
        sys.stdout.buffer.write(self._decoder.decode(data, last).encode())
        sys.stdout.buffer.flush()


async def follow_logs(client: IrisClient, reader: LogReader, printer: LinePrinter, job: str, run_id: str) -> None:
    """Print what is written until the job has ended and everything is printed."""
    ended = asyncio.create_task(client.ended(job, run_id))
    try:
        last = False
        failures = 0
        while True:
            try:
                async for lines in reader.new_lines():
                    printer.print(lines)
                if last:
                    break
                failures = 0
            except BrokenPipeError:  # nobody reads on
                raise
            except (OSError, BaseError) as error:  # a store that is away for a moment; nothing is skipped
                failures += 1
                if failures == MAX_FAILURES:
                    raise IrisError(f"the logs of {job} cannot be read: {error}") from None
                await asyncio.sleep(LOOK_EVERY)
            await asyncio.wait({ended}, timeout=LOOK_EVERY)
            # All output is stored before a job ends, so one look after the end sees all of it.
            last = ended.done()
        printer.finish()
        await ended
    finally:
        ended.cancel()


async def follow_job(client: IrisClient, reader: LogReader, job: str, run_id: str, *, prefixed: bool) -> JobStatus:
    """Follow logs and state until the job's end; its last status."""
    teller = asyncio.create_task(_tell_states(client, job, run_id))
    try:
        await follow_logs(client, reader, LinePrinter(prefixed=prefixed), job, run_id)
    finally:
        teller.cancel()
    return await client.end(job, run_id)


async def _tell_states(client: IrisClient, job: str, run_id: str) -> None:
    """Say on standard error when the job's state or reason changes."""
    told = ""
    while True:
        await asyncio.sleep(STATE_EVERY)
        with contextlib.suppress(IrisError):
            status = await client.status(job, run_id)
            now = f"{status.state}: {status.reason}" if status.reason else str(status.state)
            if now != told and not status.state.ended:
                click.echo(f"{job} is {now}", err=True)
                told = now


def tell_end(status: JobStatus) -> None:
    """Say how the job ended.

    Raises:
        JobFailed, JobCancelled: so that the exit code says it too.
    """
    ran = f" after {format_duration(status.finished_at - status.started_at)}" if status.started_at and status.finished_at else ""
    if status.state is JobState.SUCCEEDED:
        click.echo(f"{status.id} SUCCEEDED{ran}", err=True)
        return
    kind = JobCancelled if status.state is JobState.KILLED else JobFailed
    raise kind(f"{status.id} {status.state}{ran}: {status.reason}")
