"""What Iris' long-running processes have in common."""

import asyncio
import contextlib
import fcntl
import gc
import signal
from collections.abc import Iterator
from pathlib import Path

from iris.errors import Rejected


def stop_event() -> asyncio.Event:
    """Set when the process is asked to stop, by SIGTERM, Ctrl-C, or the end of its terminal."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def rest_memory() -> None:
    """Keep the garbage collector from going through all modules and models again and again: a tenth of a control plane's CPU."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@contextlib.contextmanager
def locked(directory: Path, refusal: str) -> Iterator[None]:
    """Be the only one who works in this directory, which is made when there is none.

    Raises:
        Rejected: somebody else does; with these words.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Rejected(refusal) from None
        yield
