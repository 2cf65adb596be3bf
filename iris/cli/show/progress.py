"""Shows on standard error how far a command is: its steps, and its uploads and downloads.

A terminal shows a line that changes and disappears at the end. Elsewhere, each step is a line, and
a transfer prints a line now and then.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Self

import click

from iris.cli import show
from iris.cli.show.terminal import is_live
from iris.model.units import format_bytes, format_duration

if TYPE_CHECKING:  # only a terminal needs these
    from iris.cli.show.live import LiveBlock
    from iris.cli.show.live_lines import Look

#: The time between two drawings of the current step, whose duration so far is shown in whole
#: seconds.
STEP_INTERVAL = timedelta(seconds=1)
#: The minimum time between two drawings of a transfer's progress bar. A transfer reports its
#: progress after each block that it sends, which may be much more often.
DRAW_INTERVAL = timedelta(seconds=0.1)
#: The time between two progress lines of a transfer if there is no terminal. A shorter transfer
#: prints no progress line.
LINE_INTERVAL = timedelta(seconds=15)
#: The minimum duration of a transfer whose duration and rate are shown at its end.
_WORTH_A_RATE = timedelta(seconds=1)
#: The width of a transfer's progress bar in characters.
_BAR = 24
#: The width of a transfer's progress bar in characters if the terminal has fewer than 70 columns.
_NARROW_BAR = 8
#: The time after which the rate of a transfer is shown. The rate changes too much before.
_MIN_RATE_TIME = timedelta(seconds=0.5)


class Steps:
    """Prints the steps of a long operation, such as the start of a cluster.

    Call it with the text of each step when the step begins. As a context manager, it shows on a
    terminal how long the current step has taken.

    Args:
        first: the step with which the operation begins. Only a terminal shows it.
    """

    def __init__(self, first: str) -> None:
        self._step, self._began, self._prints = first, 0.0, False
        self._block: LiveBlock | None = None

    def __call__(self, text: str) -> None:
        if self._block is None:
            click.echo(text, err=True)
            return
        with self._block.above():
            self._print_step()
            self._step, self._began, self._prints = text, time.monotonic(), True

    def update(self, text: str) -> None:
        """Changes the text of the current step. Only a terminal shows it."""
        self._step = text
        if self._block is not None:
            self._block.draw()

    def __enter__(self) -> Self:
        if is_live():
            self._began = time.monotonic()
            self._block = show.live.LiveBlock(self._lines)
            self._ended = threading.Event()
            threading.Thread(target=self._tick, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._block is not None:
            self._ended.set()
            self._block.close()
            self._block = None
            self._print_step()

    def _print_step(self) -> None:
        """Prints the current step for good, because it has ended."""
        if self._prints:
            click.echo(self._step, err=True)
        self._prints = False

    def _tick(self) -> None:
        block = self._block
        while block is not None and not self._ended.wait(STEP_INTERVAL.total_seconds()):
            block.draw()

    def _lines(self, look: "Look") -> list[str]:
        return [step_line(self._step, timedelta(seconds=time.monotonic() - self._began), look)]


class Transfer:
    """Shows the progress of one transfer. Call it with the number of bytes sent so far and the
    total number of bytes.

    Args:
        label: names what is transferred.
        live: whether to draw a bar on the terminal instead of printing lines.
        shown: whether to show the progress at all.
    """

    def __init__(self, label: str, *, live: bool, shown: bool) -> None:
        self._label, self._done, self._total = label, 0, 0
        self._shown = shown
        self._began: float | None = None
        self._reported = 0.0
        self._block = show.live.LiveBlock(self._lines) if live and shown else None

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
        """Returns the verb, with the transfer's time and rate if it took long."""
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

    def _report(self) -> None:
        if self._block is not None:
            self._block.draw()
            return
        sizes = f"{format_bytes(self._done)} of {format_bytes(self._total)}"
        click.echo(f"{datetime.now().astimezone():%H:%M:%S} {self._label}: {sizes}", err=True)

    def _elapsed(self) -> timedelta:
        return timedelta(seconds=0 if self._began is None else time.monotonic() - self._began)

    def _lines(self, look: "Look") -> list[str]:
        return [transfer_line(self._label, self._done, self._total, self._elapsed(), look)]


@contextmanager
def transfer(label: str, *, shown: bool = True) -> Iterator[Transfer]:
    """Shows the progress of a transfer until its end.

    Args:
        label: names what is transferred.
        shown: whether to show the progress at all.
    """
    progress = Transfer(label, live=is_live(), shown=shown)
    try:
        yield progress
    finally:
        progress.close()


def transfer_line(label: str, done: int, total: int, elapsed: timedelta, look: "Look") -> str:
    """Returns the progress of a transfer of bytes: a bar, the sizes, the rate and the time left.

    The end is cut if the terminal is narrow.
    """
    wide = _BAR if look.width >= 70 else _NARROW_BAR
    full = wide * done // total if total else wide
    texts = [f"{format_bytes(done)} of {format_bytes(total)}"]
    if done and elapsed >= _MIN_RATE_TIME:
        rate = done / elapsed.total_seconds()
        texts.append(f"{format_bytes(round(rate))}/s")
        if done < total:
            texts.append(
                f"{format_duration(timedelta(seconds=max(1, round((total - done) / rate))))} left"
            )
    return look.line(
        (f"{label}  ", ""),
        ("━" * full, "green"),
        ("─" * (wide - full), "dim"),
        (f"  {texts[0]}", ""),
        *((f"  {text}", "dim") for text in texts[1:]),
    )


def step_line(text: str, elapsed: timedelta, look: "Look") -> str:
    """Returns a step of a long operation, with the time that the step has taken so far."""
    seconds = timedelta(seconds=int(elapsed.total_seconds()))
    took = f"  {format_duration(seconds)}" if seconds else ""
    return look.line((look.cut(text, len(took)), ""), (took, "dim"))
