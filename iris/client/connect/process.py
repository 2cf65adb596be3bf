"""Helpers of Iris's long-running processes: signals, memory, locks and ports."""

import asyncio
import contextlib
import fcntl
import gc
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

from iris.model.errors import Rejected
from iris.storage.files import make_private, private_file


def stop_event() -> asyncio.Event:
    """Returns an event that is set by SIGTERM, Ctrl-C or the end of the process's terminal."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def rest_memory() -> None:
    """Excludes the present objects from garbage collection, which otherwise costs a tenth of a control plane's CPU."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def be_private() -> int:
    """Makes this process and its children create files and directories that only their user can access.

    Returns:
        The previous umask, which the user's programs get.
    """
    return os.umask(0o077)


@contextlib.contextmanager
def locked(directory: Path, refusal: str) -> Iterator[None]:
    """Holds the lock of this directory. Creates the directory if it is missing, and makes it private.

    Args:
        refusal: the message of the error.

    Raises:
        Rejected: another process holds the lock.
    """
    make_private(directory)
    with private_file(directory / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Rejected(refusal) from None
        yield


def free_ports(wanted: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """Returns these two ports of this machine if both are free, else any two free ports.

    Another process can still take them first.
    """
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
