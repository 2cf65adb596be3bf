"""Draws progress as a block of lines below the output of a terminal, and erases it at the end.

The cursor is always at the start of the line below the block. So the terminal stays usable when
the user types, and when the command is killed. `is_live` says where progress is drawn.
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

#: The columns and lines that are assumed if a terminal does not report its size.
_DEFAULT_SIZE = (80, 24)


def look_of(stream: TextIO) -> Look:
    """Returns what the terminal of a stream can show."""
    width, _ = _size(stream)
    unicode = (stream.encoding or "ascii").lower().replace("-", "") in ("utf8", "utf16", "utf32")
    return Look(width=width, colours=shows_colours(stream), unicode=unicode)


def _size(stream: TextIO) -> tuple[int, int]:
    """Returns the columns and lines of the terminal."""
    try:
        columns, lines = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return _DEFAULT_SIZE
    # a terminal without a size reports 0
    return columns or _DEFAULT_SIZE[0], lines or _DEFAULT_SIZE[1]


class LiveBlock:
    """A block of lines at the end of a terminal's output that is drawn again and again. Several
    threads may use it.

    Args:
        render: returns the current lines of the block for a terminal with the given properties.
        stream: by default standard error.
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
        """Draws the block in place of the previous one."""
        with self._lock:
            if not (self._hidden or self._closed):
                _, height = _size(self._stream)
                # A block as high as the terminal would scroll. It could not be erased then.
                lines = list(self._render(look_of(self._stream)))[: max(1, height - 2)]
                self._write(self._erasure() + "".join(f"{fit(line)}\n" for line in lines))
                self._drawn = lines

    @contextmanager
    def above(self, in_line: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Lets other output of the same terminal appear above the block.

        Args:
            in_line: returns whether the output ended without a newline. Then the block stays
                hidden, because it would tear the line.
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
        """Returns the control sequences that erase the block."""
        width, _ = _size(self._stream)
        # A terminal that became narrower since the last drawing has wrapped the lines.
        rows = sum(max(1, -(-cell_len(click.unstyle(line)) // width)) for line in self._drawn)
        return f"\r\x1b[{rows}A\x1b[J" if rows else ""

    def _write(self, text: str) -> None:
        if not text:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:  # the terminal is gone; the error must not hide the end of the job
            self._closed = True
