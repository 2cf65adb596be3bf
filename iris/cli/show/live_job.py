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

#: Before the first look at the state: a shorter job shows no block.
FIRST_LOOK_S = 0.5
#: Between looks at the state, each of which queries the control plane; and between drawings, which
#: show whole seconds.
INTERVAL_S = 1.0
#: An answer that takes longer is shown as silence.
SILENCE = timedelta(seconds=5)


class LiveJob:
    """The block of a followed job. Use it as an asynchronous context manager, in which it looks at
    the state and draws.

    Args:
        upload: how long the job's files took.
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
        """Prints a text that comes later above the block; an empty one is none."""
        if text := await remark:
            with self._block.above():
                click.echo(text, err=True)

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._look()), asyncio.create_task(self._draw())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(
            *self._tasks, return_exceptions=True
        )  # a fault of the block is not one of the job
        self._block.close()

    async def _look(self) -> None:
        await asyncio.sleep(FIRST_LOOK_S)
        while True:
            try:
                status, refusal = await self._client.jobs.status_and_refusal(
                    self._job, self._run_id
                )
                self._answered = datetime.now(UTC)
                if status.state.ended:
                    return
                before, self._progress = (
                    self._progress,
                    self._progress.seen(status, refusal, self._answered),
                )
                if before.phases != self._progress.phases:
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
    """A printer of lines above a block."""

    def __init__(self, printer: LinePrinter, block: LiveBlock) -> None:
        self._printer, self._block = printer, block

    def print(self, lines: list[TaskLine]) -> None:
        with self._block.above(self._in_line):
            self._printer.print(lines)

    def finish(self) -> None:
        """Prints the text that never got its newline."""
        with self._block.above(self._in_line):
            self._printer.finish()
            if self._in_line():
                click.echo(err=True)  # what follows gets a line of its own

    def _in_line(self) -> bool:
        return sys.stdout.isatty() and self._printer.in_line
