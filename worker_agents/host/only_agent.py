"""Prevents two agents of one host on one machine."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from iris.model.errors import Rejected


@contextlib.contextmanager
def only_agent(directory: Path, host_id: str) -> Iterator[None]:
    """Holds the lock of the agent's directory. Two agents would take each other's attempts for orphans.

    Raises:
        Rejected: another agent has the directory.
    """
    with (directory / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Rejected(f"an agent for host {host_id} runs on this machine already") from None
        yield
