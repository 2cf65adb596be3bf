"""Draws progress on a terminal: a block of lines below the output, which is erased when the command
ends.

The cursor is always at the start of the line below the block. So what a user types there, and a
command that is killed, leave a terminal that can be used. Without a terminal, in CI and on a dumb
terminal nothing is drawn.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

import click
from rich.cells import cell_len

from iris.cli.show.live_lines import Look
from iris.cli.show.terminal import shows_colours, unguarded
from iris.model.terminal_text import fit

_DEFAULT_SIZE = (80, 24)


def look_of(stream: TextIO) -> Look:
    width, _ = _size(stream)
    unicode = (stream.encoding or "ascii").lower().replace("-", "") in ("utf8", "utf16", "utf32")
    return Look(width=width, colours=shows_colours(stream), unicode=unicode)


def _size(stream: TextIO) -> tuple[int, int]:
    try:
        columns, lines = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return _DEFAULT_SIZE
    return columns or _DEFAULT_SIZE[0], lines or _DEFAULT_SIZE[
        1
    ]  # a terminal without a size says 0


class LiveBlock:
    """A block of lines at the end of a terminal. Threads may share it.

    Args:
        render: returns the lines for a terminal of this look. None: there is nothing to show.
    """

    def __init__(
        self, render: Callable[[Look], Sequence[str]], stream: TextIO | None = None
    ) -> None:
        self._render = render
        self._stream = unguarded(stream or sys.stderr)
        self._lock = threading.RLock()
        self._drawn: Sequence[str] = ()
        self._hidden = False
        self._closed = False

    def draw(self) -> None:
        """Draws the block in the place of the one before."""
        with self._lock:
            if not (self._hidden or self._closed):
                _, height = _size(self._stream)
                # A block as high as the terminal would scroll, and could not be erased.
                lines = list(self._render(look_of(self._stream)))[: max(1, height - 2)]
                self._write(self._erasure() + "".join(f"{fit(line)}\n" for line in lines))
                self._drawn = lines

    @contextmanager
    def above(self, in_line: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Lets other output of the same terminal appear above the block.

        Args:
            in_line: whether that output has ended within a line, so that the block must stay away
                from it.
        """
        with self._lock:
            self._write(self._erasure())
            self._drawn = ()
            try:
                yield
            finally:
                self._hidden = in_line()
                self.draw()

    def close(self) -> None:
        """Erases the block for good."""
        with self._lock:
            self._closed = True
            self._write(self._erasure())
            self._drawn = ()

    def _erasure(self) -> str:
        """Returns what moves the cursor to the start of the block and erases all from there."""
        width, _ = _size(self._stream)
        # A terminal that became narrower has wrapped the lines.
        rows = sum(max(1, -(-cell_len(click.unstyle(line)) // width)) for line in self._drawn)
        return f"\r\x1b[{rows}A\x1b[J" if rows else ""

    def _write(self, text: str) -> None:
        if not text:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:  # the terminal is gone; that must not hide the end of the job
            self._closed = True
