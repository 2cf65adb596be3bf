"""What long-running processes of Iris need: signals, memory, umask, locks and ports."""

import asyncio
import contextlib
import fcntl
import gc
import os
import random
import signal
import socket
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

from iris.model.errors import Rejected
from iris.storage.files import make_private, private_file

#: The beginning of a command line that runs `iris` with the Python interpreter of this process.
IRIS = (sys.executable, "-m", "iris.cli.main")


def stop_event() -> asyncio.Event:
    """Returns an event that is set by SIGTERM, Ctrl-C or the end of the process's terminal."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def rest_memory() -> None:
    """Excludes the present objects from garbage collection, which would take a tenth of a control
    plane's CPU time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def be_private() -> int:
    """Sets the umask of this process and its children: only their user can access the files that
    they create.

    Returns:
        The previous umask, which the user's programs get.
    """
    return os.umask(0o077)


async def uninterrupted(work: Coroutine[Any, Any, None]) -> None:
    """Runs work that cannot be undone to its end. A cancellation takes effect after the work, when
    its result can be found.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    finally:
        await asyncio.wait({task})


@contextlib.contextmanager
def locked(directory: Path, refusal: str) -> Iterator[None]:
    """Holds the lock of this directory. Creates the directory if it is missing, and makes it
    private.

    Args:
        refusal: the message of the error if another process holds the lock.

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


#: The ports among which `free_ports` chooses. They are below the ports that Linux (from 32768) and
#: macOS (from 49152) give to outgoing connections. So no outgoing connection takes the port of a
#: server that restarts.
SERVER_PORTS = range(20_000, 32_000)


def free_ports(wanted: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """Returns these two ports of this machine if both are free. Otherwise returns two free ports of
    `SERVER_PORTS`.

    Another server can still take the ports before the caller uses them.

    Args:
        wanted: the two ports to prefer; (0, 0) for any two.
    """
    draw = random.SystemRandom()
    ports = wanted
    while not all(ports) or not _are_free(ports):
        first, second = draw.sample(SERVER_PORTS, 2)
        ports = first, second
    return ports


def free_port(wanted: int = 0, taken: tuple[int, ...] = ()) -> int:
    """Returns this port of this machine if it is free, else a free port of `SERVER_PORTS`.

    Args:
        wanted: the port to prefer; 0 for any.
        taken: ports that another server is about to use.
    """
    if wanted and wanted not in taken and _are_free((wanted,)):
        return wanted
    return next(port for port in (*free_ports(), *free_ports()) if port not in taken)


def _are_free(ports: tuple[int, ...]) -> bool:
    with contextlib.ExitStack() as stack:
        for port in ports:
            listener = stack.enter_context(socket.socket())
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", port))
            except (OSError, OverflowError):
                return False
    return True
