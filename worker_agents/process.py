"""What Iris' long-running processes have in common."""

import asyncio
import contextlib
import fcntl
import gc
import signal
import socket
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


def free_ports(wanted: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """These two ports of this machine if nobody has them, else any two. Somebody may be quicker than who asks."""
    with contextlib.ExitStack() as stack:
        try:
            first, second = (stack.enter_context(_bound(port)) for port in wanted)
        except OSError:
            first, second = (stack.enter_context(_bound(0)) for _ in range(2))
        return first.getsockname()[1], second.getsockname()[1]


def _bound(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError:
        listener.close()
        raise
    return listener
