"""Allocates ports and single GPUs, which the attempts on one machine must not share.

Each is a number with a lock file, which all agents of one user on the machine share. The lock is held through open file
descriptors, which the program's shim inherits. So a number becomes free when the program is gone and not before, even if the
agent dies.
"""

import contextlib
import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from iris.activities.host.runtimes.base import HostUnable

#: The coordinators of gangs get ports from 30000 on (`placement.FIRST_PORT`), the lowest first: the first thousand are left to
#: them. Linux gives ports from 32768 on to outgoing connections, so those are used last.
PORTS, LAST_RESORT = range(31_000, 32_768), range(32_768, 40_000)


class TakenPorts(NamedTuple):
    """Ports by name, and the descriptors of their locks. The caller closes them after the program's shim has inherited them."""

    numbers: dict[str, int]
    keep: tuple[int, ...]


class TakenGpus(NamedTuple):
    """GPU numbers, and the descriptors of their locks. The caller closes them after the program's shim has inherited them."""

    numbers: tuple[int, ...]
    keep: tuple[int, ...]


class Ports:
    """The ports of this machine.

    Args:
        directory: contains the lock files; all agents of this user share the default one.
        numbers: groups of ports; the ports of the first group are allocated first.
    """

    def __init__(self, directory: Path | None = None, numbers: Sequence[Sequence[int]] = (PORTS, LAST_RESORT)) -> None:
        self._locks = _Locks("ports", directory)
        self._numbers = numbers

    def take(self, names: Sequence[str]) -> TakenPorts:
        """Allocates a port for each name. No other attempt has the port and no process listens on it.

        Raises:
            HostUnable: too few ports are free.
        """
        # In random order: a client that still calls the previous program of a port should not reach this one.
        numbers = [number for group in self._numbers for number in random.sample(group, len(group))] if names else []
        taken = self._locks.take(numbers, len(names), _is_free)
        return TakenPorts(dict(zip(names, taken, strict=True)), tuple(taken.values()))


class Gpus:
    """The GPUs of this machine.

    Args:
        directory: contains the lock files, as in `Ports`.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._locks = _Locks("gpus", directory)

    def take(self, count: int, of: int) -> TakenGpus:
        """Allocates `count` of the machine's GPUs, which are numbered from 0.

        Raises:
            HostUnable: other attempts, or processes that they left, hold too many of them.
        """
        taken = self._locks.take(range(of), count, lambda _: True)
        return TakenGpus(tuple(taken), tuple(taken.values()))


class _Locks:
    """Locks on numbers. An attempt holds a number until every process that has its descriptor has closed it."""

    def __init__(self, kind: str, directory: Path | None) -> None:
        self._kind = kind
        self._dir = directory or _shared_directory()

    def take(self, numbers: Iterable[int], count: int, usable: Callable[[int], bool]) -> dict[int, int]:
        """Locks `count` of the numbers that are free and usable; returns each with the descriptor of its lock.

        Raises:
            HostUnable: too few are free, or the lock files cannot be used. No lock is held then.
        """
        taken: dict[int, int] = {}
        with contextlib.ExitStack() as undo:
            try:
                self._dir.mkdir(mode=0o700, parents=True, exist_ok=True)
                if self._dir.stat().st_uid != os.getuid():
                    raise PermissionError("it belongs to another user")
                for number in numbers:
                    if len(taken) == count:
                        break
                    if (fd := self._lock(number, usable)) is not None:
                        undo.callback(os.close, fd)
                        taken[number] = fd
            except OSError as error:
                raise HostUnable(f"the locks in {self._dir} cannot be used: {error}", self._kind) from None
            if len(taken) < count:
                raise HostUnable(f"{count} {self._kind} are requested and {len(taken)} are free on this host", self._kind)
            undo.pop_all()
        return taken

    def _lock(self, number: int, usable: Callable[[int], bool]) -> int | None:
        fd = os.open(self._dir / f"{self._kind}-{number}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if usable(number):
                return fd
        os.close(fd)
        return None


def _shared_directory() -> Path:
    """Returns the directory of the locks of all agents of this user on this machine.

    That of root is where no job can create it first: in the directories for temporary files, every user can take its name.
    """
    if os.getuid() == 0 and os.access("/run", os.W_OK):
        return Path("/run/iris-ports")
    return Path(tempfile.gettempdir(), f"iris-ports-{os.getuid()}")


def _is_free(port: int) -> bool:
    """Returns True if no process listens on the port, on any address of the machine."""
    dual = socket.has_dualstack_ipv6()
    with socket.socket(socket.AF_INET6 if dual else socket.AF_INET) as trial, contextlib.suppress(OSError):
        if dual:
            trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        trial.bind(("", port))
        return True
    return False
