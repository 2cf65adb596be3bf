"""Shows the state of a followed job on a terminal, below its output."""

import asyncio
import sys
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import Self

import click

from iris.cli.show.live import LiveBlock
from iris.cli.show.live_lines import JobProgress
from iris.cli.show.log_printers import LinePrinter
from iris.client.client import AsyncIrisClient
from iris.client.logs.stored import TaskLine
from iris.model.errors import IrisError

#: The number of seconds before a followed job's state is queried for the first time. For a job that
#: ends earlier, no progress is shown.
FIRST_LOOK_S = 0.5
#: The number of seconds between two queries of the job's state, and between two drawings of its
#: progress. Each query costs the control plane work, and the progress shows whole seconds.
INTERVAL_S = 1.0
#: The time without an answer after which the job's progress shows that the control plane does not
#: answer.
SILENCE = timedelta(seconds=5)


class LiveJob:
    """Shows the progress of one job in a block at the end of the terminal's output.

    As an asynchronous context manager, it queries the job's state and draws the block.

    Args:
        upload: the time that the upload of the job's files took.
    """

    def __init__(self, client: AsyncIrisClient, job: str, run_id: str, upload: timedelta) -> None:
        self._client, self._job, self._run_id = client, job, run_id
        self._answered = datetime.now(UTC)
        self._progress = JobProgress(job, since=self._answered, upload=upload)
        self._block = LiveBlock(lambda look: self._progress.lines(datetime.now(UTC), look))
        self._tasks: list[asyncio.Task[None]] = []

    def above(self, printer: LinePrinter) -> "AboveBlock":
        """Returns a printer whose output appears above the block."""
        return AboveBlock(printer, self._block)

    async def print_remark(self, remark: Awaitable[str]) -> None:
        """Prints a text above the block when it is known. Does not print an empty text."""
        if text := await remark:
            with self._block.above():
                click.echo(text, err=True)

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._watch()), asyncio.create_task(self._draw())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        # a fault of the block must not end the command
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._block.close()

    async def _watch(self) -> None:
        await asyncio.sleep(FIRST_LOOK_S)
        while True:
            try:
                status, refusal = await self._client.jobs.status_and_refusal(
                    self._job, self._run_id
                )
                self._answered = datetime.now(UTC)
                if status.state.ended:
                    return
                phases = self._progress.phases
                self._progress = self._progress.seen(status, refusal, self._answered)
                if self._progress.phases != phases:
                    self._block.draw()
            except IrisError:
                self._progress = self._progress.silent(self._answered)
            await asyncio.sleep(INTERVAL_S)

    async def _draw(self) -> None:
        await asyncio.sleep(FIRST_LOOK_S)
        while True:
            if datetime.now(UTC) - self._answered > SILENCE and not self._tasks[0].done():
                self._progress = self._progress.silent(self._answered)
            self._block.draw()
            await asyncio.sleep(INTERVAL_S)


class AboveBlock:
    """Prints log lines above the block that shows a job's progress (`LiveBlock`)."""

    def __init__(self, printer: LinePrinter, block: LiveBlock) -> None:
        self._printer, self._block = printer, block

    def print(self, lines: list[TaskLine]) -> None:
        with self._block.above(self._in_line):
            self._printer.print(lines)

    def finish(self) -> None:
        """Prints an unfinished last line."""
        with self._block.above(self._in_line):
            self._printer.finish()
            if self._in_line():
                click.echo(err=True)  # ends the line

    def _in_line(self) -> bool:
        return sys.stdout.isatty() and self._printer.in_line
