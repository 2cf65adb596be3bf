"""Draws a text again and again on the whole terminal, and leaves the terminal as it was."""

import contextlib
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import click

from iris.cli.show.quit_key import quit_key
from iris.cli.show.terminal import can_redraw, unguarded
from iris.model.terminal_text import fit

#: The screen beside the one with the shell's lines; lines are cut at the edge.
_ENTER = "\x1b[?1049h\x1b[?7l"
_LEAVE = "\x1b[?7h\x1b[?1049l"


class Draw(Protocol):
    """Draws a text in the place of the one before."""

    def __call__(self, text: str) -> None: ...


@contextmanager
def full_screen(remedy: str) -> Iterator[Draw]:
    """Gives the function that draws. Ends quietly with the key q, Ctrl-C, SIGTERM and SIGHUP.

    Args:
        remedy: what to do without a terminal.

    Raises:
        click.UsageError: standard output is no terminal that can be drawn on.
    """
    if not can_redraw(sys.stdout):
        raise click.UsageError(f"standard output is not a terminal that can be redrawn; {remedy}")

    sys.stdout.flush()
    own = unguarded(sys.stdout)
    terminal, encoding = own.buffer, own.encoding

    def write(text: str) -> None:
        terminal.write(text.encode(encoding, "replace"))
        terminal.flush()

    def draw(text: str) -> None:
        height = shutil.get_terminal_size().lines
        lines = fit(text).splitlines()
        if len(lines) > height - 1:
            lines = [*lines[: height - 2], f"… {len(lines) - height + 2} more lines"]
        write("\x1b[H" + "".join(f"{line}\x1b[0m\x1b[K\n" for line in lines) + "\x1b[J")

    before = {each: signal.signal(each, _end) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with quit_key():
            write(_ENTER)
            yield draw
    except KeyboardInterrupt:
        pass
    finally:
        with contextlib.suppress(OSError):  # the terminal is gone
            write(_LEAVE)
        for each, handler in before.items():
            signal.signal(each, handler)


def _end(*_: object) -> None:
    """Ends the command like Ctrl-C, also while it waits for another one, so that it gives the
    terminal back.
    """
    raise KeyboardInterrupt
