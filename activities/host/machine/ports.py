"""Allocates ports and single GPUs, which the attempts on one machine must not share.

Each port and each GPU has a lock file, which all agents of one user on the machine share. The lock
is held through open file descriptors, which the program's shim inherits. So a port or GPU becomes
free when the program is gone and not before, even if the agent dies.
"""

import contextlib
import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from iris.activities.host.runtimes.base import HostFault

#: The ports that attempts get, and the ports that they get if all of the former are in use. Linux
#: uses ports from 32768 on for outgoing connections. The thousand ports from 30000 on
#: (`place.FIRST_PORT`) are for the coordinators of gangs.
PORTS, LAST_RESORT = range(31_000, 32_768), range(32_768, 40_000)
#: The name of the fault of a host on which the port for a gang's coordinator is in use.
COORDINATOR_FAULT = "coordinator-port"

Name = TypeVar("Name", int, str)


class TakenPorts(NamedTuple):
    """The reserved ports by name, and the descriptors of their locks. The caller closes the
    descriptors after the program's shim has inherited them.
    """

    numbers: dict[str, int]
    keep: tuple[int, ...]


class TakenGpus(NamedTuple):
    """The names of the reserved GPUs, and the descriptors of their locks. The caller closes the
    descriptors after the program's shim has inherited them.
    """

    names: tuple[str, ...]
    keep: tuple[int, ...]


class Ports:
    """Reserves ports of this machine for attempts.

    Args:
        directory: contains the lock files; all agents of this user share the default one.
        numbers: groups of ports; the ports of the first group are allocated first.
    """

    def __init__(
        self, directory: Path | None = None, numbers: Sequence[Sequence[int]] = (PORTS, LAST_RESORT)
    ) -> None:
        self._locks = _Locks("ports", directory)
        self._numbers = numbers

    def take(self, names: Sequence[str]) -> TakenPorts:
        """Allocates a port for each name. No other attempt has the port and no process listens on
        it.

        Raises:
            HostFault: too few ports are free.
        """
        # The order is random, so that a client that still calls the previous program of a port
        # seldom reaches this program.
        numbers = (
            [number for group in self._numbers for number in random.sample(group, len(group))]
            if names
            else []
        )
        taken = self._locks.take(numbers, len(names), _is_free)
        return TakenPorts(dict(zip(names, taken, strict=True)), tuple(taken.values()))

    def hold(self, port: int) -> tuple[int, ...]:
        """Locks the port on which a gang's coordinator will listen. Returns the descriptors of the
        lock, as in `TakenPorts`.

        Raises:
            HostFault: another attempt has the port, or a process listens on it. The gang's next
                attempt gets another port.
        """
        try:
            return tuple(self._locks.take([port], 1, _is_free).values())
        except HostFault as error:
            raise HostFault(
                f"port {port} of the gang's coordinator is in use on this host: {error}",
                COORDINATOR_FAULT,
            ) from None


class Gpus:
    """Reserves GPUs of this machine for attempts.

    Args:
        directory: contains the lock files, as in `Ports`.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._locks = _Locks("gpus", directory)

    def take(self, count: int, of: Iterable[str]) -> TakenGpus:
        """Allocates `count` of the machine's GPUs.

        Args:
            of: the names of the GPUs.

        Raises:
            HostFault: other attempts, or processes that they left, hold too many GPUs.
        """
        taken = self._locks.take(of, count, lambda _: True)
        return TakenGpus(tuple(taken), tuple(taken.values()))


class _Locks:
    """Locks resources by their names. A resource is locked until every process with the lock's
    descriptor has closed it.
    """

    def __init__(self, kind: str, directory: Path | None) -> None:
        self._kind = kind
        self._dir = directory or _shared_directory()

    def take(
        self, names: Iterable[Name], count: int, usable: Callable[[Name], bool]
    ) -> dict[Name, int]:
        """Locks `count` of the resources that are free and usable. Returns the descriptor of each.

        Raises:
            HostFault: too few resources are free, or the lock files cannot be used. No lock is held
                then.
        """
        taken: dict[Name, int] = {}
        with contextlib.ExitStack() as undo:
            try:
                self._dir.mkdir(mode=0o700, parents=True, exist_ok=True)
                if self._dir.stat().st_uid != os.getuid():
                    raise PermissionError("the directory belongs to another user")
                for name in names:
                    if len(taken) == count:
                        break
                    if (fd := self._lock(name, usable)) is not None:
                        undo.callback(os.close, fd)
                        taken[name] = fd
            except OSError as error:
                raise HostFault(
                    f"the locks in {self._dir} cannot be used: {error}", self._kind
                ) from None
            if len(taken) < count:
                raise HostFault(
                    f"{count} {self._kind} are requested and {len(taken)} are free on this host",
                    self._kind,
                )
            undo.pop_all()
        return taken

    def _lock(self, name: Name, usable: Callable[[Name], bool]) -> int | None:
        # Before driver 470, the names of MIG instances contain slashes.
        file = self._dir / f"{self._kind}-{name}".replace("/", "_")
        fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if usable(name):
                return fd
        os.close(fd)
        return None


def _shared_directory() -> Path:
    """Returns the directory of the locks of all agents of this user on this machine.

    The directory of root is in /run, where no job can create it first. In the directories for
    temporary files, every user could take its name.
    """
    if os.getuid() == 0 and os.access("/run", os.W_OK):
        return Path("/run/iris-ports")
    return Path(tempfile.gettempdir(), f"iris-ports-{os.getuid()}")


def _is_free(port: int) -> bool:
    """Returns True if no process listens on the port on any address of the machine."""
    dual = socket.has_dualstack_ipv6()
    with (
        socket.socket(socket.AF_INET6 if dual else socket.AF_INET) as trial,
        contextlib.suppress(OSError),
    ):
        if dual:
            trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        trial.bind(("", port))
        return True
    return False
