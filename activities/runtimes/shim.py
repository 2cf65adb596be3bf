"""The shim: a small process between the agent and each program, which the program does not notice and the agent can do without.

It starts what `launch.json` says, in the attempt's directory where it lies; waits; ends whatever the program has left; and puts
down in `exit.json` how it ended. An agent that dies takes nothing with it: the next one reads the same files. What the agent
wants is in `orders`, a line of two numbers: the program's lease, which is the moment of this machine's clock until which the
cluster counts it in; and the seconds of grace after SIGTERM once it is to stop, before that -1. Without an agent that has contact
to its cluster the lease runs out, and the program is killed before the cluster may start it elsewhere.

Nothing but the standard library, and little of it: there is one of these for every running task. They come from the `nursery`.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time

TYPE_CHECKING = False  # without `typing`, whose import takes half as long as everything else here
if TYPE_CHECKING:
    import socket
    from typing import Any

    from iris.activities.runtimes.shim_container import Container

LAUNCH, LOCK, ORDERS, STARTED, EXIT = "launch.json", "lock", "orders", "started.json", "exit.json"
#: What the program writes; and where a container finds the pipes into that.
STREAMS, PIPES = ("stdout", "stderr"), ("stdout.pipe", "stderr.pipe")
#: Read at once from a pipe: all that it holds.
PIPE = 64 * 1024
#: Between looks at the orders, in seconds; SIGUSR1 says that there is something new.
LOOK_EVERY = 1.0
#: So long what a program leaves behind is killed again and again, in seconds; what is left then hangs in the kernel.
SWEEP = 10.0
#: Room for what will have to be put down, taken while there still is some: the program may fill the disk.
ROOM_STARTED, ROOM_EXIT, ROOM = "room.started", "room.exit", 4096


def now() -> float:
    """Seconds on a clock that all processes of the machine share and nobody sets."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Output:
    """What the program writes, on its way into files. It goes through pipes: a program that opens its standard output once more,
    as `echo x > /dev/stdout` does, would cut off a file."""

    def __init__(self) -> None:
        #: Bytes for which there was no room on the disk.
        self.lost = 0
        self._files = [os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600) for name in STREAMS]
        #: The files by the ends of the pipes that lead to them.
        self._ways: dict[int, int] = {}

    def pipe(self, stream: int) -> int:
        """The end into which a process writes."""
        reader, writer = os.pipe()
        self._add(reader, stream)
        return writer

    def named_pipes(self) -> None:
        """Have them where a container finds them."""
        for stream, name in enumerate(PIPES):
            os.mkfifo(name)
            os.chmod(name, 0o622)  # whoever the program is in its container; nobody else gets into the directory
            self._add(os.open(name, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC), stream)

    @property
    def readers(self) -> list[int]:
        return list(self._ways)

    def copy(self) -> bool:
        """Take some of what has been written; whether there was any."""
        found = False
        for reader, file in list(self._ways.items()):
            try:
                data = os.read(reader, PIPE)
            except BlockingIOError:
                continue
            if not data:  # nobody has it open any more
                del self._ways[reader]
                os.close(reader)
                continue
            found = True
            while data:
                try:
                    data = data[os.write(file, data) :]
                except OSError:  # the disk is full; the program need not fail for that
                    self.lost += len(data)
                    break
        return found

    def _add(self, reader: int, stream: int) -> None:
        os.set_blocking(reader, False)
        self._ways[reader] = self._files[stream]


class Process:
    """The program as a process: in a session and group of its own, in a cgroup if there is one."""

    def __init__(self, launch: dict[str, Any], output: Output | None = None) -> None:
        self._output = output
        self.pid: int | None = None
        self.wakes_by: list[socket.socket] = []
        self._cgroups: list[str] = launch["cgroups"]
        self._launch = launch

    def start(self) -> tuple[str, int] | None:
        """Returns what went wrong, and the shell's exit code for it; None when nothing did."""
        launch = self._launch
        assert self._output is not None
        out, err = self._output.pipe(0), self._output.pipe(1)
        try:
            self._popen = subprocess.Popen(  # kept: one that is forgotten waits for its process by itself
                launch["argv"], env=launch["env"], cwd=launch["cwd"], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                start_new_session=True, preexec_fn=self._enter,
            )  # fmt: skip
            self.pid = self._popen.pid
        except FileNotFoundError as error:
            if error.filename == launch["cwd"]:
                return f"the working directory {launch['cwd']!r} does not exist on this host", 126
            return f"there is no program {launch['argv'][0]!r} on this host", 127
        except (PermissionError, NotADirectoryError) as error:
            if error.filename == launch["cwd"]:
                return f"the working directory {launch['cwd']!r} cannot be used: {error.strerror}", 126
            return f"{launch['argv'][0]!r} is not a program that may be executed", 126
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return f"{launch['argv'][0]!r} could not be started: {error}", 126
        finally:
            os.close(out)
            os.close(err)
        return None

    def _enter(self) -> None:
        for cgroup in self._cgroups:  # one that has vanished is a limit less, not a failure of the program's
            with contextlib.suppress(OSError), open(os.path.join(cgroup, "cgroup.procs"), "w") as members:
                members.write("0")

    def ended(self) -> int | None:
        """The exit status, negative for a signal; None while it runs. Everybody else who has ended is reaped, too."""
        found = None
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == self.pid:
                    found = os.waitstatus_to_exitcode(status)
        return found

    def signal(self, number: int) -> None:
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.sweep(0.0)

    def sweep(self, patience: float = SWEEP) -> None:
        """Kill what is left of it: in its cgroup, and below this process, which inherits its orphans."""
        deadline = now() + patience
        while _has_children():
            left = {pid for cgroup in self._cgroups for pid in _members(cgroup)} | _children()
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if not left or now() >= deadline:
                return
            time.sleep(0.005)
            self.ended()

    def forget(self) -> None:
        """Remove its cgroups: nobody is in them any more."""
        for cgroup in self._cgroups:
            with contextlib.suppress(OSError):
                os.rmdir(cgroup)

    def facts(self) -> tuple[bool, int]:
        """(whether memory ran out, the most memory it had)"""
        ran_out, peak = False, 0
        for cgroup in self._cgroups:
            for name in ("memory.events", "memory.oom_control"):
                ran_out = ran_out or any(line.startswith("oom_kill ") and line != "oom_kill 0" for line in _lines(cgroup, name))
            for name in ("memory.peak", "memory.max_usage_in_bytes"):
                peak = max([peak, *(int(line) for line in _lines(cgroup, name))])
        if not peak:
            import resource

            unit = 1 if sys.platform == "darwin" else 1024
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit
        return ran_out, peak


def _container(launch: dict[str, Any]) -> Container:
    """The program as a container; what it takes is loaded only then, from beside this file."""
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    made: Container = __import__("shim_container").Container(launch)
    return made


def _members(cgroup: str) -> list[int]:
    return [int(pid) for pid in _lines(cgroup, "cgroup.procs")]


def _lines(directory: str, name: str) -> list[str]:
    try:
        with open(os.path.join(directory, name)) as file:
            return file.read().splitlines()
    except OSError:
        return []


def _has_children() -> bool:
    """Whether anything runs below this process; where orphans are inherited that is all there is of the program."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _children() -> set[int]:
    """The processes whose parent this one is; elsewhere than on Linux nobody is found."""
    found = set()
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                with open(f"/proc/{name}/stat", "rb") as stat:
                    fields = stat.read().rpartition(b")")[2].split()
                if int(fields[1]) == os.getpid() and fields[0] != b"Z":
                    found.add(int(name))
    return found


class Mind:
    """What the shim has in mind with the program: when to end it."""

    def __init__(self) -> None:
        self.fenced = False
        self._lease, _ = orders()
        self._kill_at: float | None = None

    def look(self, program: Process | Container) -> float:
        """Do what is due; returns in how many seconds something else may be."""
        lease, grace = orders()
        self._lease = max(self._lease, lease)
        if grace >= 0 and self._kill_at is None:
            if grace:
                program.signal(signal.SIGTERM)
            self._kill_at = now() + grace
        elif grace == 0 and self._kill_at is not None:
            self._kill_at = min(self._kill_at, now())
        self.fenced = self.fenced or now() >= self._lease
        if self.fenced or (self._kill_at is not None and now() >= self._kill_at):
            program.kill()
        until = min(self._lease, self._kill_at or self._lease) - now()
        return max(0.02, min(LOOK_EVERY, until))


def orders() -> tuple[float, float]:
    """(lease, grace) as they are now; as if there were none while they cannot be read."""
    try:
        with open(ORDERS) as file:
            lease, grace = file.read().split()
            return float(lease), float(grace)
    except (OSError, ValueError):
        return 0.0, -1.0


def _put(name: str, value: dict[str, Any], room: str) -> None:
    """Write it where room was taken; whoever reads the file reads all of it or finds none."""
    with open(room, "r+") as file:
        file.write(json.dumps(value) + "\n")
        file.truncate()  # not brought to the disk: when the machine dies, so does every program on it
    os.replace(room, name)


def _take_room(name: str) -> None:
    with open(name, "w") as room:
        room.write(" " * ROOM)


def see_through(program: Process | Container, output: Output, wake: int) -> dict[str, Any]:
    """Start the program and see it to its end; what is to be put down of it."""
    lease, grace = orders()
    if grace >= 0 or now() >= lease:  # it is over before it has begun
        return {"status": -int(signal.SIGKILL), "fenced": grace < 0}
    failed = program.start()
    if failed is not None:
        return {"error": failed[0], "status": failed[1]}
    _put(STARTED, {"pid": program.pid, "shim": os.getpid(), "at": time.time()}, ROOM_STARTED)
    mind, status, look_at = Mind(), None, 0.0
    while True:
        if now() >= look_at:
            status = program.ended()
            if status is not None:
                break
            look_at = now() + mind.look(program)
        wakers = [wake, *(each.fileno() for each in program.wakes_by)]
        readable, _, _ = select.select([*wakers, *output.readers], [], [], max(0.0, look_at - now()))
        output.copy()
        if any(each in wakers for each in readable):
            look_at = 0.0
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)
    at = time.time()
    program.sweep()
    while output.copy():
        pass
    ran_out, peak = program.facts()
    program.forget()
    found = {"status": status, "fenced": mind.fenced, "out_of_memory": ran_out, "peak_memory_bytes": peak, "at": at}
    return {**found, "lost_output": output.lost}


def locked() -> int | None:
    """A descriptor with the lock of the present directory; None: the attempt has a shim already, or is to have none."""
    lock = os.open(LOCK, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def main(lock: int) -> None:
    """Be the shim of the attempt in the present directory, whose lock this process has for as long as it lives."""
    if os.path.exists(STARTED) or os.path.exists(EXIT):
        return
    with open(LAUNCH) as file:
        launch = json.load(file)
    _take_room(ROOM_STARTED)
    _take_room(ROOM_EXIT)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER, linux/prctl.h: orphans of the program are inherited here
    wake, told = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    # It ends with its program, whatever befalls the agent. Handled, not ignored: the program would inherit that.
    for number in (signal.SIGCHLD, signal.SIGUSR1, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    output = Output()
    if launch["container"]:
        output.named_pipes()
    program = _container(launch) if launch["container"] else Process(launch, output)
    try:
        found = see_through(program, output, wake)
    except Exception as error:
        program.kill()
        why = str(error) if type(error).__name__ == "Lost" else f"the shim failed: {error!r}"
        found = {"error": why, "status": None}
    _put(EXIT, found, ROOM_EXIT)
    os.close(lock)
