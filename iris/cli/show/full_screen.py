"""Draws a text again and again on the whole terminal, until the user presses q or Ctrl-C.

Afterwards the terminal is as it was before.
"""

import contextlib
import os
import select
import shutil
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import click

from iris.cli.show.terminal import can_redraw, unguarded
from iris.model.terminal_text import fit

#: The control sequences that switch to the terminal's alternate screen and cut long lines at its
#: edge.
_ENTER = "\x1b[?1049h\x1b[?7l"
_LEAVE = "\x1b[?7h\x1b[?1049l"
#: The signal that interrupts the main thread when the user presses the key q. SIGINT cannot be
#: used: asyncio handles it, and waits for the event loop.
_QUIT = signal.SIGUSR1
#: The number of seconds after which the signal `_QUIT` is sent again. A signal that arrives just
#: before the main thread starts to wait does not interrupt it.
_REPEAT_S = 0.1


class Draw(Protocol):
    """A function that replaces the text on the screen."""

    def __call__(self, text: str) -> None: ...


@contextmanager
def full_screen(remedy: str) -> Iterator[Draw]:
    """Yields the function that draws. The key q, Ctrl-C, SIGTERM and SIGHUP end the block quietly.

    Args:
        remedy: tells users what to do without a terminal.

    Raises:
        click.UsageError: standard output is not a terminal that can be redrawn.
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
        with _quit_key():
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
    """Ends the block like Ctrl-C at a signal, so that the terminal is restored."""
    raise KeyboardInterrupt


@contextmanager
def _quit_key() -> Iterator[None]:
    """Raises `KeyboardInterrupt` in the block at the key q, and does not echo typed keys.

    Does nothing if standard input is not a terminal.
    """
    if not _can_read_keys():
        yield
        return
    keys = _Keys()
    before, handler = termios.tcgetattr(sys.stdin), signal.signal(_QUIT, keys.interrupt)
    try:
        tty.setcbreak(sys.stdin, termios.TCSANOW)
        keys.start()
        yield
    finally:
        keys.stop()
        signal.signal(_QUIT, handler)
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(sys.stdin, termios.TCSANOW, before)


def _can_read_keys() -> bool:
    """Returns whether standard input is a terminal with this process in its foreground."""
    if not sys.stdin.isatty():
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:  # the terminal of another session: no shell controls it
        return True


class _Keys:
    """A thread that waits until the user presses the key q."""

    def __init__(self) -> None:
        self._main = threading.get_ident()
        self._keys = sys.stdin.fileno()
        self._quits = threading.Event()
        self._stopped, self._stop = os.pipe()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._quits.set()
        os.close(self._stop)
        if self._thread.ident is not None:
            self._thread.join()
        os.close(self._stopped)

    def interrupt(self, *_: object) -> None:
        """Handles the signal in the main thread."""
        if not self._quits.is_set():
            self._quits.set()
            raise KeyboardInterrupt

    def _watch(self) -> None:
        with contextlib.suppress(OSError):  # the terminal is gone
            while not self._quits.is_set():
                readable, _, _ = select.select([self._keys, self._stopped], [], [])
                if self._stopped in readable:
                    return
                typed = os.read(self._keys, 1024)
                while b"q" in typed.lower() and not self._quits.is_set():
                    signal.pthread_kill(self._main, _QUIT)
                    self._quits.wait(_REPEAT_S)
                if not typed:
                    return
