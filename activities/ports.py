"""What the attempts on one machine must not share: ports and single GPUs.

Each is a number with a lock file that all agents of a user on the machine know. The lock is held through open file descriptors,
which the program's shim inherits: whatever becomes of the agent, a number is free when the program is gone, and not before.
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

from iris.activities.runtimes.base import HostUnable

#: Gangs meet from 30000 on (`placement.FIRST_PORT`), lowest first: the first thousand are left to them.
#: From 32768 on Linux gives ports to outgoing connections, so those come last.
PORTS, LAST_RESORT = range(31_000, 32_768), range(32_768, 40_000)


class TakenPorts(NamedTuple):
    """Ports by their names, and the descriptors of their locks: for the program's shim to inherit, and then to be closed."""

    numbers: dict[str, int]
    keep: tuple[int, ...]


class TakenGpus(NamedTuple):
    """GPUs by their numbers, and the descriptors of their locks: for the program's shim to inherit, and then to be closed."""

    numbers: tuple[int, ...]
    keep: tuple[int, ...]


class Ports:
    """The ports of this machine.

    Args:
        directory: of the locks; the usual one is shared by all agents of this user.
        numbers: the ports to give away, those first that come first.
    """

    def __init__(self, directory: Path | None = None, numbers: Sequence[Sequence[int]] = (PORTS, LAST_RESORT)) -> None:
        self._locks = _Locks("ports", directory)
        self._numbers = numbers

    def take(self, names: Sequence[str]) -> TakenPorts:
        """A port for each name that nobody else has or listens on.

        Raises:
            HostUnable: there are not so many.
        """
        # In no order: who still calls for the last program that had the port should not find this one.
        numbers = [number for group in self._numbers for number in random.sample(group, len(group))] if names else []
        taken = self._locks.take(numbers, len(names), _nobody_listens)
        return TakenPorts(dict(zip(names, taken, strict=True)), tuple(taken.values()))


class Gpus:
    """The GPUs of this machine.

    Args:
        directory: as for ports.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._locks = _Locks("gpus", directory)

    def take(self, count: int, of: int) -> TakenGpus:
        """So many of the machine's GPUs, which are numbered from 0.

        Raises:
            HostUnable: others have them, or what is left of others.
        """
        taken = self._locks.take(range(of), count, lambda _: True)
        return TakenGpus(tuple(taken), tuple(taken.values()))


class _Locks:
    """Numbers that one attempt alone has, until everybody who has its descriptors has closed them."""

    def __init__(self, kind: str, directory: Path | None) -> None:
        self._kind = kind
        self._dir = directory or Path(tempfile.gettempdir(), f"iris-ports-{os.getuid()}")

    def take(self, numbers: Iterable[int], count: int, usable: Callable[[int], bool]) -> dict[int, int]:
        """So many of the numbers that nobody has, each with its descriptor.

        Raises:
            HostUnable: there are not so many, or the locks cannot be used. Nothing is held then.
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
                raise HostUnable(f"{count} {self._kind} are wanted, and {len(taken)} are free on this host", self._kind)
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


def _nobody_listens(port: int) -> bool:
    """On any address of the machine."""
    dual = socket.has_dualstack_ipv6()
    with socket.socket(socket.AF_INET6 if dual else socket.AF_INET) as trial, contextlib.suppress(OSError):
        if dual:
            trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        trial.bind(("", port))
        return True
    return False
