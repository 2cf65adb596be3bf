"""A program under its shim, as the agent sees it: whether it has started it itself, or found it when it came."""

import asyncio
import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from iris.activities.runtimes import nursery, shim
from iris.activities.runtimes.base import Launch
from iris.files import write_whole

#: Between looks for the end of a program, where the system cannot wake us.
POLL = timedelta(milliseconds=100)
#: Python as light as it comes: no site-packages, no user's settings.
_NURSERY = (sys.executable, "-I", "-S", nursery.__file__)


class _Nursery:
    """The process that shims are forks of."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # With nothing of the agent's environment, which may hold what no program may see.
            subprocess.Popen([*_NURSERY, str(theirs.fileno())], pass_fds=[theirs.fileno()], env={}, start_new_session=True)

    def bring_forth(self, directory: Path, keep: Sequence[int]) -> int:
        """A shim for the attempt in this directory: its process number; 0: the attempt has or had one.

        Raises:
            OSError: the nursery is gone.
        """
        socket.send_fds(self._socket, [os.fsencode(directory.absolute())], list(keep))
        if not (answer := self._socket.recv(100)):
            raise ConnectionResetError("the nursery is gone")
        return int(answer)


_nursery_of_this_process: _Nursery | None = None


def _bring_forth(directory: Path, keep: Sequence[int]) -> int:
    """By the nursery there is, or by a new one: whoever has killed it meant no harm to what comes."""
    global _nursery_of_this_process
    if _nursery_of_this_process is not None:
        with suppress(OSError):
            return _nursery_of_this_process.bring_forth(directory, keep)
    _nursery_of_this_process = _Nursery()
    return _nursery_of_this_process.bring_forth(directory, keep)


class Exit(BaseModel):
    """How a program ended, as its shim put it down."""

    model_config = ConfigDict(frozen=True)

    #: The exit code; negative: the signal that killed it; None: nobody knows, the shim itself was killed or failed.
    status: int | None = None
    #: Why it could not be started; empty: it was.
    error: str = ""
    #: It was killed because no agent with contact to the cluster stood behind it.
    fenced: bool = False
    out_of_memory: bool = False
    peak_memory_bytes: int = 0
    #: So many bytes of its output found no room on the disk.
    lost_output: int = 0
    #: When, in seconds since 1970.
    at: float = 0.0


class Started(BaseModel):
    """What runs."""

    model_config = ConfigDict(frozen=True)

    #: Of the program, on the host; None: its engine does not say.
    pid: int | None
    shim: int
    at: float

    @property
    def started_at(self) -> datetime:
        return datetime.fromtimestamp(self.at, UTC)


class Program:
    """One program. There is one directory for each, in which it is started at most once."""

    def __init__(self, directory: Path) -> None:
        self._dir = directory
        #: The process number of a shim that this agent has started.
        self._shim = 0
        self._lease, self._grace = 0.0, -1.0
        with suppress(OSError, ValueError):  # those of an earlier agent
            lease, grace = (directory / shim.ORDERS).read_text().split()
            self._lease, self._grace = float(lease), float(grace)

    def start(self, launch: Launch, lease: float, keep: Sequence[int] = ()) -> None:
        """Have it started; how that went is told by `started` and `exit`.

        Args:
            lease: until when the cluster counts it in, on the clock of `shim.now`.
            keep: file descriptors, locks for instance, that stay open for as long as the program lives.
        """
        self._lease = lease
        self._order()
        write_whole(self._dir / shim.LAUNCH, launch.model_dump_json(), mode=0o600)  # its environment may hold secrets
        self._shim = _bring_forth(self._dir, keep)

    @property
    def lease(self) -> float:
        """Until when it may live without another word, on the clock of `shim.now`; 0: nobody has said."""
        return self._lease

    @property
    def launched(self) -> bool:
        """Whether anybody ever wanted it started."""
        return (self._dir / shim.LAUNCH).exists()

    @property
    def launch(self) -> Launch:
        """What was wanted.

        Raises:
            OSError: nothing was, or it is gone.
        """
        return Launch.model_validate_json((self._dir / shim.LAUNCH).read_bytes())

    @property
    def started(self) -> Started | None:
        """What runs or ran; None: it has not been started yet, or could not be."""
        with suppress(OSError, ValidationError):
            return Started.model_validate_json((self._dir / shim.STARTED).read_bytes())
        return None

    @property
    def exit(self) -> Exit | None:
        """How it ended; None: it has not, as far as is known."""
        with suppress(OSError, ValidationError):
            return Exit.model_validate_json((self._dir / shim.EXIT).read_bytes())
        return None

    async def wait(self) -> Exit:
        """How it ended, once it has."""
        while (found := self.exit) is None:
            with self._shim_away() as away:
                if away:
                    # Between the look and the lock it may have ended. One that is only on its way finds this, and does not start.
                    found = self.exit or Exit()
                    with suppress(OSError):
                        (self._dir / shim.EXIT).write_text(found.model_dump_json())
                    return found
            await self._shim_ends()
        return found

    def stop(self, grace: timedelta) -> None:
        """Have it ended: SIGTERM, the grace, SIGKILL, whatever becomes of this agent; with no grace at once."""
        self._grace = grace.total_seconds() if self._grace < 0 else min(self._grace, grace.total_seconds())
        self._order()
        if (pid := self._shim_pid()) is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGUSR1)

    def keep_until(self, lease: float) -> None:
        """The cluster counts it in until this moment at least, on the clock of `shim.now`."""
        self._lease = max(self._lease, lease)
        self._order()

    # -- inside --------------------------------------------------------------------------------------------------------------

    def _order(self) -> None:
        """Always as many bytes, so that they go where the last ones were: a full disk stays no order."""
        path = self._dir / shim.ORDERS
        # The directory may be gone; whoever looks after the attempt finds that out.
        with suppress(OSError), path.open("r+b" if path.exists() else "wb") as file:
            file.write(b"%020.3f %020.3f\n" % (self._lease, self._grace))

    @contextmanager
    def _shim_away(self) -> Iterator[bool]:
        """Whether there is no shim; meanwhile none can begin."""
        with (self._dir / shim.LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    def _shim_pid(self) -> int | None:
        """The number of a shim that is there, not of who may have got its number since."""
        with self._shim_away() as away:
            if away:
                return None
        return self._shim or (started.shim if (started := self.started) is not None else None)

    async def _shim_ends(self) -> None:
        """Wait until the shim has ended, or for a while."""
        pid = self._shim_pid()
        if pid is None or not hasattr(os, "pidfd_open"):
            await asyncio.sleep(POLL.total_seconds())
            return
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(fd, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(fd)
            os.close(fd)
