"""The agent's view of a program under its shim, both for programs that this agent started and for
those that it found.

A program can stop its shim, because both have the same user, and a stopped shim carries out no
order. Therefore the agent sends SIGCONT to the shim with every order and every extension of the
lease. If the program still runs some seconds after it should have been killed, the agent itself
kills the processes below the shim, and then the shim.
"""

import asyncio
import fcntl
import logging
import math
import os
import signal
import stat
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, NamedTuple

import psutil
from pydantic import Field, ValidationError

from iris.activities.host.runtimes.base import Launch
from iris.activities.host.runtimes.cleanup import links
from iris.activities.host.runtimes.shim import shim
from iris.activities.host.runtimes.shim.starter import fork_server_pid, start_shim
from iris.activities.host.runtimes.threads import in_thread
from iris.model.frozen import Frozen

logger = logging.getLogger(__name__)

#: The interval between checks whether a program has ended, on systems that cannot wake the agent at
#: its end.
POLL = timedelta(milliseconds=100)
#: If a program still runs this long after the time at which its shim should have killed it, the
#: agent itself kills it. In seconds.
OVERDUE = 5.0
#: How long the agent waits for the shim's record after it has killed the program, in seconds. Then
#: it kills the shim. The key is True if the program is a container: its shim first asks the
#: container engine how the program ended.
LAST_WORD = {False: 1.0, True: 8.0}
#: The interval between two log messages about a program that cannot be killed, in seconds.
STILL_THERE = 30.0
#: The size limit of the file that describes a launch, in bytes. Arguments and environment variables
#: may be large.
MOST_LAUNCH = 64 * 1024**2

#: A time in seconds since 1970, except in `FirstEnd.until`. It is limited to times that `datetime`
#: supports, because a job may have written the value.
Moment = Annotated[float, Field(ge=0, le=10**11)]


class Exit(Frozen):
    """The end of a program, as its shim recorded it."""

    #: The exit code of the program's first process, or the negative number of the signal that
    #: killed it. None if it is not known, because the shim itself was killed or failed.
    status: int | None = None
    #: True if the first process left other processes, and they were killed or ended by SIGTERM. In
    #: a container, it is enough that they got SIGTERM. Files that they were writing may be
    #: incomplete.
    cut: bool = False
    #: The reason why the program could not be started; empty if it was started.
    error: str = ""
    #: True if the program was killed because its lease ran out: no agent with contact to the
    #: cluster extended the lease.
    fenced: bool = False
    out_of_memory: bool = False
    peak_memory_bytes: int = 0
    #: The number of bytes of output for which the disk had no space.
    lost_output: int = 0
    #: The time at which the program's last process ended or was killed; 0 if it is not known.
    at: Moment = 0.0
    #: The time at which the first process ended by itself and other processes of the program were
    #: left; 0 if this did not happen.
    first_ended_at: Moment = 0.0


class FirstEnd(Frozen):
    """The end of a program's first process by itself, while other processes of the program still
    run.
    """

    #: The exit code, or the negative number of the signal that killed the process.
    status: int
    at: Moment
    #: The time at which the remaining processes are killed. Unlike other moments, it is in seconds
    #: on the monotonic clock of the host (`shim.now`).
    until: Moment


class Started(Frozen):
    """The pids of a program that was started and of its shim."""

    #: The program's pid on the host; None if the container engine does not report it.
    pid: Annotated[int, Field(gt=1)] | None
    shim: int = Field(gt=1)
    at: Moment

    @property
    def started_at(self) -> datetime:
        return datetime.fromtimestamp(self.at, UTC)


class Running(NamedTuple):
    """The running program of an attempt. Commands and profilers beside it use this object."""

    #: The key of the attempt.
    key: str
    attempt: int
    directory: Path
    launch: Launch
    #: The program's pid on the host; None if the container engine does not report it.
    pid: int | None
    #: The pid of the shim.
    shim: int


class Root(NamedTuple):
    """The root process of a program's process tree."""

    pid: int
    #: True if `pid` is the program's first process, as in a container. False if `pid` is the shim,
    #: which is the parent of a program outside of a container.
    own: bool


class Program:
    """One program and its directory. It is started at most once."""

    def __init__(self, directory: Path) -> None:
        self._dir = directory
        #: The pid of the shim, if this agent started it; 0 otherwise.
        self._shim = 0
        self._lease, self._grace = 0.0, -1.0
        #: The time at which the program must have ended after an order to stop it, in seconds on
        #: the monotonic clock of the host (`shim.now`); infinite if there is no such order.
        self._kill_at = math.inf
        #: The descriptor of the shim's lock file, open until `close` or the end of this object. The
        #: process that holds the lock is the shim, even if the file is replaced.
        self._lock: int | None = None
        self._close_lock: Callable[[], object] = lambda: None
        self._launch: Launch | None = None
        #: Set when the shim ends, or when an order makes `_kill_at` earlier.
        self._news = asyncio.Event()
        with suppress(OSError, ValueError):  # the orders of an earlier agent
            lease, grace = links.read(directory / shim.ORDERS).split()
            self._lease, self._grace = float(lease), float(grace)
            if self._grace >= 0:
                self._kill_at = shim.now() + self._grace

    def start(
        self,
        launch: Launch,
        lease: float,
        keep: Sequence[int] = (),
        secrets: Mapping[str, str] = {},
    ) -> None:
        """Starts a shim, which starts the program. `started` and `exit` show the result.

        Args:
            lease: the time until which the cluster counts the program as running, on the clock of
                `shim.now`.
            keep: file descriptors, for instance locks, that stay open as long as the program lives.
            secrets: the values of further variables of the program, which are in no record.
        """
        self._lease = lease
        self._order()
        self._lock_file()  # opened before the job can replace the file
        self._launch = launch
        links.write(self._dir / shim.LAUNCH, launch.model_dump_json())
        self._shim = start_shim(self._dir, keep, secrets)

    @property
    def lease(self) -> float:
        """The time until which the program may run without a further extension, on the clock of
        `shim.now`; 0 if there is no lease.
        """
        return self._lease

    @property
    def launched(self) -> bool:
        """True if an agent ordered the start of the program."""
        return os.path.lexists(self._dir / shim.LAUNCH)

    @property
    def launch(self) -> Launch:
        """The order to start the program.

        Raises:
            OSError: the order does not exist, or was deleted.
        """
        if self._launch is None:
            self._launch = Launch.model_validate_json(
                links.read(self._dir / shim.LAUNCH, MOST_LAUNCH)
            )
        return self._launch

    @property
    def started(self) -> Started | None:
        """The program's first process and its shim; None if the program was not started yet, or
        could not be started.
        """
        with suppress(OSError, ValidationError):
            return Started.model_validate_json(links.read(self._dir / shim.STARTED))
        return None

    def first_end(self) -> FirstEnd | None:
        """Returns the end of the first process, if it ended by itself and others may be left. From
        then on, the program should be dead at the time `until` of the result.
        """
        with suppress(OSError, ValidationError):
            found = FirstEnd.model_validate_json(links.read(self._dir / shim.FIRST_END))
            if found.until < self._kill_at:
                self._kill_at = found.until
                self._news.set()
            return found
        return None

    @property
    def exit(self) -> Exit | None:
        """The end of the program; None if no end is recorded. A record is ignored while the shim
        lives, because the shim did not write it.
        """
        with suppress(OSError), self._shim_away() as away:
            return self._written_exit() if away else None
        return None

    async def wait(self) -> Exit:
        """Waits for the end of the program and returns it. Kills a program that still runs when it
        should be dead.
        """
        while True:
            with self._shim_away() as away:
                if away:
                    if (found := self._written_exit()) is None:
                        found = Exit()
                        with suppress(
                            OSError
                            # a shim that has yet to start the program finds this file and does not
                            # start it
                        ):
                            links.write(self._dir / shim.EXIT, found.model_dump_json())
                    return found
            if (left := self._overdue_at - shim.now()) > 0:
                await self._shim_ends(left)
            else:
                await in_thread(self.kill)

    def check(self) -> None:
        """Checks that the files beside the program are there and unchanged.

        Raises:
            FileNotFoundError: a file was deleted.
            links.Replaced: a file was replaced.
        """
        for name in (shim.LAUNCH, shim.ORDERS, shim.LOCK):
            status = (self._dir / name).lstat()
            if not stat.S_ISREG(status.st_mode):
                raise links.Replaced(self._dir / name)
        if not os.path.samestat(status, os.fstat(self._lock_file())):
            raise links.Replaced(self._dir / shim.LOCK)

    def stop(self, grace: timedelta) -> None:
        """Orders the shim to end the program: SIGTERM, the grace, SIGKILL. Without a grace, the
        shim sends SIGKILL at once.

        The shim carries out the order even if this agent dies.
        """
        self._grace = (
            grace.total_seconds() if self._grace < 0 else min(self._grace, grace.total_seconds())
        )
        self._kill_at = min(self._kill_at, shim.now() + grace.total_seconds())
        written = self._order()
        self._wake(signal.SIGUSR1)
        if not written:  # the shim cannot read the order, so the agent kills the program at once
            self._kill_at = -math.inf
        self._news.set()

    def keep_until(self, lease: float) -> None:
        """Extends the lease at least to this time, on the clock of `shim.now`."""
        self._lease = max(self._lease, lease)
        self._order()
        self._wake()

    def kill(self, stop: threading.Event | None = None) -> None:
        """Kills all processes below the shim, and then the shim if it does not end by itself in
        time. Returns when all are gone.

        This is for a program whose shim does not carry out its orders. A process cannot leave its
        shim, even if it moves to another session.

        Args:
            stop: ends the work early, because the caller no longer waits.
        """
        dead_since, logged_at = None, time.monotonic()
        while (shims := self._shims()) and not (stop is not None and stop.is_set()):
            living = self._living(shims)
            for process in living:
                with suppress(psutil.Error):
                    process.kill()
            now = time.monotonic()
            dead_since = None if living else dead_since or now
            # The shim gets some time to record the end of the program.
            over = dead_since is not None and now - dead_since >= LAST_WORD[bool(self._container())]
            for pid in shims:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL if over else signal.SIGCONT)
            if living and now - logged_at >= STILL_THERE:
                logged_at = now
                logger.error("processes of %s cannot be killed: %s", self._dir, living)
            time.sleep(0.02 if living else 0.1)

    def close(self) -> None:
        """Closes the lock file of a program that is gone. The garbage collector would close it only
        after hundreds of attempts.
        """
        self._lock = None
        self._close_lock()

    # -- inside ------------------------------------------------------------------------------------

    @property
    def _overdue_at(self) -> float:
        """The time at which the agent itself has to kill the program, on the clock of
        `shim.now`.
        """
        return min(self._kill_at, self._lease or math.inf) + OVERDUE

    def _order(self) -> bool:
        """Writes the orders file and returns True if that succeeded.

        The text always has the same length and overwrites the last text, so it can be written when
        the disk is full.
        """
        # If the directory is gone or the file was replaced, `check` will find out.
        with (
            suppress(OSError),
            os.fdopen(
                links.open_file(self._dir / shim.ORDERS, os.O_WRONLY | os.O_CREAT), "wb"
            ) as file,
        ):
            file.write(b"%020.3f %020.3f\n" % (self._lease, self._grace))
            return True
        return False

    def _written_exit(self) -> Exit | None:
        with suppress(OSError, ValidationError):
            return Exit.model_validate_json(links.read(self._dir / shim.EXIT))
        return None

    def _lock_file(self) -> int:
        if self._lock is None:
            self._lock = links.open_file(self._dir / shim.LOCK, os.O_WRONLY | os.O_CREAT)
            self._close_lock = weakref.finalize(self, os.close, self._lock)
        return self._lock

    @contextmanager
    def _shim_away(self) -> Iterator[bool]:
        """Yields True if no shim runs. Then no shim can start inside the block."""
        lock = self._lock_file()
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        try:
            yield True
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)

    def _shim_pid(self) -> int | None:
        """Returns the pid of the shim if it lives. The lock shows that, because another process may
        have the pid of a shim that has ended.
        """
        with self._shim_away() as away:
            if away:
                return None
        return self._shim or (started.shim if (started := self.started) is not None else None)

    def _wake(self, *signals: signal.Signals) -> None:
        """Sends these signals and SIGCONT to the shim, which a job may have stopped."""
        with suppress(OSError):
            if (pid := self._shim_pid()) is not None:
                for number in (*signals, signal.SIGCONT):
                    os.kill(pid, number)

    def _shims(self) -> list[int]:
        """Returns the processes that hold the lock: the shim, whatever its files say; empty if the
        shim is gone.
        """
        with self._shim_away() as away:
            if away:
                return []
        if not Path("/proc/self/fdinfo").is_dir():
            return [pid] if (pid := self._shim_pid()) is not None else []
        lock, others = os.fstat(self._lock_file()), {os.getpid(), fork_server_pid()}
        return [pid for pid in psutil.pids() if pid not in others and _has_locked(pid, lock)]

    def _living(self, shims: Sequence[int]) -> list[psutil.Process]:
        """Returns the living processes of the program."""
        found: list[psutil.Process] = []
        with suppress(psutil.Error):
            found += [
                each for pid in shims for each in psutil.Process(pid).children(recursive=True)
            ]
        if (
            (container := self._container())
            and (started := self.started) is not None
            and started.pid is not None
        ):
            with suppress(psutil.Error, OSError):
                # A container ends with its first process, so the others need not be listed.
                if container in Path(f"/proc/{started.pid}/cgroup").read_text():
                    found.append(psutil.Process(started.pid))
        return [each for each in found if _lives(each)]

    def _container(self) -> str:
        with suppress(OSError, ValidationError):
            return self.launch.container
        return ""

    async def _shim_ends(self, patience: float) -> None:
        """Waits until the shim ends, or an order changes the time to kill the program, or
        `patience` seconds have passed. Without a pidfd, waits no longer than `POLL`.
        """
        pid = self._shim_pid()
        if pid is None or not hasattr(os, "pidfd_open"):
            await asyncio.sleep(min(POLL.total_seconds(), patience))
            return
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return
        loop = asyncio.get_running_loop()
        self._news.clear()
        loop.add_reader(fd, self._news.set)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if patience == math.inf else patience):
                    await self._news.wait()
        finally:
            loop.remove_reader(fd)
            os.close(fd)


def _has_locked(pid: int, file: os.stat_result) -> bool:
    """Returns True if the process has the file open with a lock on it, see proc_pid_fdinfo(5)."""
    process = Path("/proc", str(pid))
    with suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with suppress(OSError):
                if (
                    os.path.samestat(descriptor.stat(), file)
                    and "FLOCK" in (process / "fdinfo" / descriptor.name).read_text()
                ):
                    return True
    return False


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return bool(process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD))
    return False
