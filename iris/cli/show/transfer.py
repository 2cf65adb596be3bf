"""Shows the progress of uploads and downloads on standard error: a bar on a terminal, else a line
now and then.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from iris.cli.show.terminal import is_live
from iris.model.units import format_bytes, format_duration

if TYPE_CHECKING:
    from iris.cli.show.live import LiveBlock
    from iris.cli.show.live_lines import Look

#: Between two drawings of a bar. A transfer reports each block that it has sent.
DRAW_INTERVAL = timedelta(seconds=0.1)
#: Between two lines without a terminal; a shorter transfer has none.
LINE_INTERVAL = timedelta(seconds=15)
#: A transfer that took longer ends with its time and rate.
_WORTH_A_RATE = timedelta(seconds=1)


class Transfer:
    """Receives the progress of one transfer, and shows it.

    Args:
        label: what is transferred.
        live: whether to draw on the terminal.
        shown: False: shows nothing.
    """

    def __init__(self, label: str, *, live: bool, shown: bool) -> None:
        self._label, self._done, self._total = label, 0, 0
        self._shown = shown
        self._began: float | None = None
        self._reported = 0.0
        self._block = self._new_block() if live and shown else None

    @property
    def called(self) -> bool:
        """Whether anything had to be transferred."""
        return self._began is not None

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self._began is None:
            self._began = now
            self._reported = now if self._block is None else 0.0
        self._done, self._total = done, total
        interval = LINE_INTERVAL if self._block is None else DRAW_INTERVAL
        if self._shown and now - self._reported >= interval.total_seconds():
            self._reported = now
            self._report()

    def summary(self, verb: str) -> str:
        """Returns how the transfer ended, with its time and rate if it took long."""
        took = self._elapsed()
        if took < _WORTH_A_RATE:
            return verb
        return (
            f"{verb} in {format_duration(took)}"
            f" ({format_bytes(round(self._done / took.total_seconds()))}/s)"
        )

    def close(self) -> None:
        """Erases the bar."""
        if self._block is not None:
            self._block.close()

    def _new_block(self) -> "LiveBlock":
        from iris.cli.show.live import LiveBlock  # only a terminal needs it

        return LiveBlock(self._lines)

    def _report(self) -> None:
        if self._block is not None:
            self._block.draw()
            return
        sizes = f"{format_bytes(self._done)} of {format_bytes(self._total)}"
        click.echo(f"{datetime.now().astimezone():%H:%M:%S} {self._label}: {sizes}", err=True)

    def _elapsed(self) -> timedelta:
        return timedelta(seconds=0 if self._began is None else time.monotonic() - self._began)

    def _lines(self, look: "Look") -> list[str]:
        from iris.cli.show.live_lines import transfer_line  # as the block

        return [transfer_line(self._label, self._done, self._total, self._elapsed(), look)]


@contextmanager
def transfer(label: str, *, shown: bool = True) -> Iterator[Transfer]:
    """Shows the progress of a transfer until its end.

    Args:
        label: what is transferred.
        shown: False: shows nothing.
    """
    progress = Transfer(label, live=is_live(), shown=shown)
    try:
        yield progress
    finally:
        progress.close()
