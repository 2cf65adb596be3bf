"""Lets the key q end a command that draws on the whole terminal, as Ctrl-C does."""

import contextlib
import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager

#: Interrupts the main thread, also while it waits. Not SIGINT: asyncio has a handler for that,
#: which waits for the event loop.
_SIGNAL = signal.SIGUSR1
#: A signal that arrives just before the main thread begins to wait does not end its wait. The next
#: one does.
_REPEAT_S = 0.1


@contextmanager
def quit_key() -> Iterator[None]:
    """Raises `KeyboardInterrupt` in the block at the key q, and shows no keys that are typed.

    Does nothing if standard input is no terminal.
    """
    if not _can_read_keys():
        yield
        return
    keys = _Keys()
    before, handler = termios.tcgetattr(sys.stdin), signal.signal(_SIGNAL, keys.interrupt)
    try:
        tty.setcbreak(sys.stdin, termios.TCSANOW)
        keys.start()
        yield
    finally:
        keys.stop()
        signal.signal(_SIGNAL, handler)
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(sys.stdin, termios.TCSANOW, before)


def _can_read_keys() -> bool:
    """Returns whether standard input is a terminal, and this process is not in its background."""
    if not sys.stdin.isatty():
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:  # it is not the terminal of this session, so no shell controls it
        return True


class _Keys:
    """A thread that waits for the key q on standard input."""

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
                    signal.pthread_kill(self._main, _SIGNAL)
                    self._quits.wait(_REPEAT_S)
                if not typed:
                    return
