"""The shim: a small process between the agent and each program. It is invisible to the program, and
continues to work when the agent is gone.

The shim starts the program of `launch.json` in the attempt's directory, and waits for its end. Then
it ends all processes that the program has left, and records the end in `exit.json`. If the agent
dies, nothing is lost, because the next agent reads the same files.

The file `orders` contains the agent's orders, one line of two numbers. The first number is the
program's lease: the time on this machine's clock until which the cluster counts the program as
running. The second number is -1 while the program may run; then it is the grace after SIGTERM, in
seconds. If no agent has contact with the cluster, the lease runs out, and the shim kills the
program before the cluster may start it elsewhere.

The first process of a program may be a wrapper, such as a shell, that ends before the processes
that it has started. The exit status of the program is that of its first process, but the program
has ended only when its last process has ended. `StopPolicy` decides how much time the others have.

The values of the program's secrets are not in these files. The agent passes them in a file without
a name, which the shim reads before the program starts. The shim also masks the values in the output
before it writes the output.

This module uses only the standard library, and little of it, because every running task has a shim.
`fork_server` forks the shims.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import math
import os
import select
import signal
import stat
import subprocess
import sys
import time

TYPE_CHECKING = False  # without `typing`, whose import takes half as long as all other imports here
if TYPE_CHECKING:
    from typing import Any

    from iris.activities.host.runtimes.shim.container import Container
    from iris.activities.host.runtimes.shim.output import Output

LAUNCH, LOCK, ORDERS, STARTED, EXIT = "launch.json", "lock", "orders", "started.json", "exit.json"
#: The file that records the end of the program's first process, if that process ended by itself and
#: other processes of the program are left.
FIRST_END = "first_end.json"
#: The files with the program's output, and the pipes through which the output of a container comes.
STREAMS, PIPES = ("stdout", "stderr"), ("given/stdout.pipe", "given/stderr.pipe")
#: The pipe from which a container reads its secrets.
SECRETS = "given/secrets.pipe"
#: The pipe through which a container's shell sends the exit code of the program's first process,
#: and the pipe through which the shim makes the shell look whether other processes are left.
CODE, LOOK = "given/code.pipe", "given/look.pipe"
#: The interval between checks for new orders of the agent, in seconds. SIGUSR1 causes an earlier
#: check.
CHECK_INTERVAL_S = 1.0
#: The time for which the shim tries to kill the processes that a program left, in seconds.
#: Processes that are still left then hang in the kernel.
SWEEP = 10.0
#: The time between SIGTERM and SIGKILL for processes that are left after a program ended by itself
#: and that still run after the program's grace, in seconds. If the grace is shorter than this, the
#: grace is used instead.
LAST_NOTICE = 5.0
#: Two files that reserve disk space for the records of the start and the end, and the size of each
#: file in bytes. The files are written early, because the program may fill the disk.
ROOM_STARTED, ROOM_EXIT, ROOM = "room.started", "room.exit", 4096
#: The C function `prctl`. The fork server loads it once, because every shim calls it.
_PRCTL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def now() -> float:
    """Returns the time in seconds on a clock that all processes of the machine share. The clock
    never jumps.
    """
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def open_file(name: str, flags: int = os.O_RDONLY) -> int:
    """Opens a file in the current directory. A job may have put something else in its place.

    Raises:
        OSError: the file is a link or not a regular file, or cannot be opened.
    """
    file = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(
            f"{name} in the attempt's directory was replaced: it is not a regular file; a job must"
            " not change the files of Iris there"
        )
    return file


class Process:
    """The program as a process, in a session and a process group of its own, and in cgroups if the
    system has them.
    """

    def __init__(self, launch: dict[str, Any], output: Output | None = None) -> None:
        self._output = output
        self.pid: int | None = None
        #: The exit status of the program's first process, negative for a signal; None while it
        #: runs.
        self.status: int | None = None
        #: True if other processes of the program were alive after its first process had ended, and
        #: were killed.
        self.cut = False
        #: True if the shim's SIGTERM ended a process other than the first one. Files that this
        #: process was writing may be incomplete.
        self.torn = False
        #: True if the shim has sent SIGTERM to the program.
        self._told = False
        #: The reason why the program did not begin although `start` succeeded. It is always empty
        #: for a process: only a container has such a reason.
        self.failed = ""
        self.wakes_by: list[int] = []
        #: The longest time between two checks whether all processes of the program have ended, in
        #: seconds. SIGCHLD causes an earlier check.
        self.look_interval = CHECK_INTERVAL_S
        self._cgroups: list[str] = launch["cgroups"]
        self._launch = launch

    def start(self) -> tuple[str, int] | None:
        """Starts the program. Returns None, or the error and the shell's exit code for it."""
        launch = self._launch
        assert self._output is not None
        out, err = self._output.pipe(0), self._output.pipe(1)
        user = _beside("user")
        user.let_open(launch, out, err)
        self._user = user
        no_cwd = f"the working directory {launch['cwd']!r} does not exist on this host", 126
        try:
            # The attribute keeps the object: otherwise its finalizer would wait for the process.
            self._popen = subprocess.Popen(
                launch["argv"],
                env=launch["env"],
                cwd=user.root_cwd(launch),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                umask=launch["umask"],
                # Without a function to call, the program starts by vfork, which copies no page
                # tables.
                preexec_fn=self._enter if self._cgroups or launch.get("uid", -1) >= 0 else None,
            )
            self.pid = self._popen.pid
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            missing = isinstance(error, FileNotFoundError) and error.filename == launch["cwd"]
            if missing or (isinstance(error, subprocess.SubprocessError) and user.lost_cwd(launch)):
                return no_cwd
            if isinstance(error, OSError) and error.filename == launch["cwd"]:
                return (
                    f"the working directory {launch['cwd']!r} cannot be used: {error.strerror}",
                    126,
                )
            found: tuple[str, int] = _beside("start_errors").why(
                error, launch["argv"], launch["env"], launch["cwd"], "this host"
            )
            return found
        finally:
            os.close(out)
            os.close(err)
        return None

    def _enter(self) -> None:
        # An error is ignored: without the cgroup a limit is missing, but the program can run.
        for cgroup in self._cgroups:
            with contextlib.suppress(OSError):
                self._user.join(cgroup)
        self._user.become(self._launch)

    def over(self) -> bool:
        """Returns True if no process of the program is left. Reaps the processes that ended."""
        self._reap()
        return self.status is not None and (self.cut or not self._left())

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == self.pid:
                    self.status = os.waitstatus_to_exitcode(status)
                elif self._told and os.waitstatus_to_exitcode(status) == -signal.SIGTERM:
                    self.torn = True  # the process had no handler, and may have been writing

    def _left(self) -> bool:
        if _PRCTL is not None:
            left: bool = _beside("sweep").has_children()
            return left
        self.look_interval = 0.1  # without prctl, this process knows only the process group
        with contextlib.suppress(OSError):
            os.killpg(self.pid or 0, 0)
            return True
        return False

    def signal(self, number: int) -> None:
        """Signals the program's process group, or all processes that are left if the first process
        has ended.
        """
        self._told = self._told or number == signal.SIGTERM
        if self.status is not None and _PRCTL is not None:
            _beside("sweep").signal_all(number)
        elif self.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def signal_strays(self, number: int) -> None:
        """Signals the processes outside of the program's process group."""
        _beside("sweep").signal_all(number, spared=self.pid or 0)

    def kill(self) -> None:
        if self.status is not None:
            if _PRCTL is None:  # without prctl, this process knows only the process group
                self.signal(signal.SIGKILL)
            self.sweep()
            self.cut = True
            return
        self.signal(signal.SIGKILL)
        self.sweep(0.0)

    def sweep(self, patience: float = SWEEP) -> None:
        """Kills the processes of the program that are left: those in its cgroups and those below
        this process, which inherits the program's orphans.
        """
        deadline = now() + patience
        _beside("sweep").sweep(self._cgroups, lambda: now() >= deadline, self._reap)

    def forget(self) -> None:
        """Removes the cgroups, which have no processes any more."""
        for cgroup in self._cgroups:
            with contextlib.suppress(OSError):
                os.rmdir(cgroup)

    def facts(self) -> tuple[bool, int]:
        """Returns (True if memory ran out, the peak memory in bytes)."""
        ran_out, peak = False, 0
        for cgroup in self._cgroups:
            for name in ("memory.events", "memory.oom_control"):
                ran_out = ran_out or any(
                    line.startswith("oom_kill ") and line != "oom_kill 0"
                    for line in _lines(cgroup, name)
                )
            for name in ("memory.peak", "memory.max_usage_in_bytes"):
                peak = max([peak, *(int(line) for line in _lines(cgroup, name))])
        if not peak:
            import resource

            unit = 1 if sys.platform == "darwin" else 1024
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit
        return ran_out, peak


def _beside(name: str) -> Any:
    """Loads a module of this directory by its bare name. In an agent, the same module has another
    name.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    if sys.path[0] != here:  # first, because an installed package may have the same name
        sys.path.insert(0, here)
    return __import__(name)


def _output(secrets: dict[str, str]) -> Output:
    files = [open_file(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT) for name in STREAMS]
    made: Output = _beside("output").Output(files, secrets.values())
    return made


def _program(
    launch: dict[str, Any], secrets: dict[str, str], output: Output
) -> Process | Container:
    if launch["container"]:
        container: Container = _beside("container").Container(launch, SECRETS, CODE, LOOK, secrets)
        return container
    return Process({**launch, "env": {**launch["env"], **secrets}}, output)


def _lines(directory: str, name: str) -> list[str]:
    try:
        with open(os.path.join(directory, name)) as file:
            return file.read().splitlines()
    except OSError:
        return []


class StopPolicy:
    """Decides when the shim stops or kills the program.

    If the agent orders a stop, the program gets SIGTERM, and the processes that are left after the
    order's grace get SIGKILL. If the first process ends by itself, the processes that it left have
    the time `grace` to end. They get no signal before, because a helper without a handler may still
    write. Then they get SIGTERM, and up to `LAST_NOTICE` seconds later SIGKILL.

    Args:
        lease: the end of the lease, on the monotonic clock of `now`, as it was read before the
            program started. The running program may make the agent's file `orders`, which contains
            the lease, unreadable.
        grace: the time for processes that the first process leaves when it ends by itself, in
            seconds. An order to stop has a grace of its own.
    """

    def __init__(self, lease: float, grace: float) -> None:
        self.fenced = False
        #: The time at which the shim kills the remaining processes of the program, in seconds on
        #: the monotonic clock of `now`; infinite while no such time is set.
        self.kill_at = math.inf
        #: The time at which the shim first killed the program's processes, in seconds since 1970;
        #: infinite before that. It limits the recorded end of the program: a killed process that
        #: hangs in the kernel ends later, but writes nothing.
        self.killed_at = math.inf
        #: The time at which the first process ended by itself and other processes of the program
        #: were left, in seconds since 1970; 0 if this did not happen.
        self.first_ended_at = 0.0
        self._lease = lease
        self._grace = grace
        self._stopped = False
        #: The time at which processes that were left after the first process ended get SIGTERM, in
        #: seconds on the monotonic clock of `now`; infinite if they get none or have got it.
        self._notice_at = math.inf

    def look(self, program: Process | Container) -> float:
        """Sends the signals that are due. Returns the seconds until the next check."""
        lease, grace = orders()
        self._lease = max(self._lease, lease)
        if grace >= 0 and not self._stopped:
            self._stopped = True
            if grace:
                program.signal(signal.SIGTERM)
            self.kill_at = min(self.kill_at, now() + grace)
        elif grace == 0:
            self.kill_at = min(self.kill_at, now())
        if not self._stopped and now() >= self._notice_at:
            self._notice_at = math.inf
            program.signal(signal.SIGTERM)
        self.fenced = self.fenced or (now() >= self._lease and program.status is None)
        if self.fenced or now() >= min(self._lease, self.kill_at):
            self.killed_at = min(self.killed_at, time.time())
            program.kill()
        until = min(self._lease, self.kill_at, self._notice_at) - now()
        return max(0.02, min(CHECK_INTERVAL_S, until))

    def first_ended(self, program: Process | Container) -> bool:
        """Sets the time for the processes that the first process left. Returns True if the first
        process ended by itself.
        """
        if self._stopped:
            program.signal_strays(signal.SIGTERM)  # the first process cannot pass the signal on
        elif not self.fenced:
            self.first_ended_at = time.time()
            self._notice_at = now() + self._grace if self._grace else math.inf
            self.kill_at = now() + self._grace + min(self._grace, LAST_NOTICE)
        return not self._stopped and not self.fenced


def orders() -> tuple[float, float]:
    """Returns (lease, grace) from the orders file; (0, -1), which means no orders, if it cannot be
    read.
    """
    try:
        lease, grace = _read(ORDERS).split()
        return float(lease), float(grace)
    except (OSError, ValueError):
        return 0.0, -1.0


def _put(name: str, value: dict[str, Any], room: str) -> None:
    """Writes a record into the reserved file and renames the file. So a reader finds the whole
    record or no file. There is no fsync, because the program does not survive the machine's crash.
    """
    _write(room, os.O_RDWR, json.dumps(value).encode() + b"\n")
    os.replace(room, name)


def _take_room(name: str) -> None:
    _write(name, os.O_WRONLY | os.O_CREAT, b" " * ROOM)


# The next two functions use no file objects, because each costs a shim a dozen system calls.


def _read(name: str) -> bytes:
    """Returns the first bytes of a small file. Raises OSError as `open_file` does."""
    file = open_file(name)
    try:
        return os.read(file, ROOM)
    finally:
        os.close(file)


def _write(name: str, flags: int, data: bytes) -> None:
    """Overwrites the contents of a file. Raises OSError as `open_file` does, or if the disk is
    full.
    """
    file = open_file(name, flags)
    try:
        left = data
        while left:
            left = left[os.write(file, left) :]
        os.ftruncate(file, len(data))
    finally:
        os.close(file)


def see_through(
    program: Process | Container, output: Output, wake: int, grace: float
) -> dict[str, Any]:
    """Starts the program, waits for the end of all its processes, and returns the record of its end
    for `exit.json`.

    Args:
        grace: as for `StopPolicy`.
    """
    lease, stop = orders()
    if stop >= 0 or now() >= lease:  # the order to stop or the end of the lease came first
        return {"status": -int(signal.SIGKILL), "fenced": stop < 0}
    started = time.time()  # a short program has ended when `start` returns
    failed = program.start()
    if failed is not None:
        return {"error": failed[0], "status": failed[1]}
    _put(STARTED, {"pid": program.pid, "shim": os.getpid(), "at": started}, ROOM_STARTED)
    policy = StopPolicy(lease, grace)
    _wait(program, output, wake, policy)
    at = min(time.time(), policy.killed_at)
    output.finish()
    ran_out, peak = program.facts()
    program.forget()
    found = {
        "status": program.status,
        "cut": program.cut or program.torn,
        "fenced": policy.fenced,
        "out_of_memory": ran_out,
        "first_ended_at": policy.first_ended_at,
    }
    return {
        **found,
        "error": program.failed,
        "peak_memory_bytes": peak,
        "at": at,
        "lost_output": output.lost,
    }


def _wait(program: Process | Container, output: Output, wake: int, policy: StopPolicy) -> None:
    """Copies the program's output and sends the signals that are due, until no process of the
    program is left.
    """
    look_at, first_ended = 0.0, False
    while True:
        if now() >= look_at:
            if program.over():
                return
            if program.status is not None and not first_ended:
                first_ended = True
                if policy.first_ended(program):
                    record = {
                        "status": program.status,
                        "at": policy.first_ended_at,
                        "until": policy.kill_at,
                    }
                    # No space is reserved for this record, which is seldom needed. If the disk is
                    # full, it is not written.
                    with contextlib.suppress(OSError):
                        _write(
                            f"{FIRST_END}.new",
                            os.O_WRONLY | os.O_CREAT,
                            json.dumps(record).encode(),
                        )
                        os.replace(f"{FIRST_END}.new", FIRST_END)
            look_at = now() + min(program.look_interval, policy.look(program))
        wakers = [wake, *program.wakes_by]
        readable, _, _ = select.select(
            [*wakers, *output.readers], [], [], max(0.0, look_at - now())
        )
        output.copy()
        if any(each in wakers for each in readable):
            look_at = 0.0
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)


def locked() -> int | None:
    """Locks the current directory and returns the lock's descriptor; None if the attempt has a shim
    already, or its directory is damaged.
    """
    try:
        lock = open_file(LOCK, os.O_WRONLY | os.O_CREAT)
    except OSError:  # the agent reports this
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def read_secrets(file: int) -> dict[str, str]:
    """Returns the values of the secrets by the program's variables, and closes the file."""
    os.lseek(file, 0, os.SEEK_SET)  # a fork server that died may have read a part of it
    with os.fdopen(file, "rb") as opened:
        return dict(json.load(opened))


def main(lock: int, secrets: dict[str, str]) -> None:
    """Runs the shim of the attempt in the current directory. The process holds the directory's lock
    until it ends.

    Args:
        secrets: further variables of the program, with their values.
    """
    if os.path.lexists(STARTED) or os.path.lexists(EXIT):
        return
    with os.fdopen(open_file(LAUNCH)) as file:
        launch = json.load(file)
    _take_room(ROOM_STARTED)
    _take_room(ROOM_EXIT)
    if _PRCTL is not None:
        # PR_SET_CHILD_SUBREAPER, linux/prctl.h: this process inherits the program's orphans.
        _PRCTL(36, 1)
    wake, signalled = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(signalled, False)
    signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)
    # The shim ends with its program, not with the agent. Signals are handled and not ignored,
    # because the program would inherit ignored signals.
    for number in (signal.SIGCHLD, signal.SIGUSR1, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    program = None
    try:
        output = _output(secrets)
        if launch["container"]:
            output.named_pipes(PIPES)
        program = _program(launch, secrets, output)
        found = see_through(program, output, wake, float(launch["grace"]))
    except Exception as error:
        if program is not None:
            program.kill()
        why = str(error) if type(error).__name__ == "Lost" else f"the shim failed: {error!r}"
        found = {"error": why, "status": None}
    _put(EXIT, found, ROOM_EXIT)
    os.close(lock)
