"""Creates the cgroups of an attempt, with which the kernel limits the memory and the number of
processes of the program, and shares the cores in proportion.

Cgroups are optional. If the system does not permit them, a program runs without them, and `why_not`
returns the reason. Version 1 is used if it has the memory controller; the attempt's group is then a
child of this process's group. In version 2, a group that enables controllers for its children may
not contain processes, and the agent's group contains the agent. Therefore the attempts' groups are
siblings of the agent's group. It would not help to move the agent into a child group, because no
process could be started in its former group any more.
"""

import contextlib
import errno
import hashlib
import os
import re
import signal
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from iris.activities.host.runtimes.process_limit import most_processes
from iris.model.host.resources import Resources

SELF = Path("/proc/self")
#: The time limit within which killed processes must leave a cgroup.
EMPTY_TIMEOUT = timedelta(seconds=2)
#: The smallest and largest CPU weight in cgroup v2, and the smallest and largest CPU share in
#: cgroup v1, that the kernel accepts: docs.kernel.org/admin-guide/cgroup-v2.html and .../cgroup-v1.
_WEIGHTS, _SHARES = (1, 10_000), (2, 262_144)
#: The file with the limit on processes and threads in a cgroup and the cgroups below it.
_PIDS = "pids.max"


class _NoCgroups(Exception):
    """The error if this process cannot create cgroups. The text is the reason; it follows "memory
    limits are not enforced: ".
    """


def make(key: str, resources: Resources, proc: Path = SELF) -> tuple[str, ...]:
    """Creates the attempt's groups, one in each hierarchy, and returns their directories; empty if
    the system does not permit cgroups.

    Groups that exist already are reused with these limits.

    Args:
        resources: the limits. Memory of zero bytes means no limit. Cores are not a limit but a
        share,
            which counts when cores are scarce. The number of processes is always limited to
            `most_processes`.
        proc: the directory in which the system lists this process's groups.
    """
    try:
        return tuple(str(group) for group in _make(_name(key), resources, proc))
    except (_NoCgroups, OSError):
        remove(key, proc=proc)
        return ()


def remove(key: str, *known: str, proc: Path = SELF) -> None:
    """Kills the processes in the attempt's groups and removes the groups. Can be repeated. A group
    that cannot be removed stays.

    Args:
        known: the directories that `make` has returned, perhaps to an earlier agent that was in
            other groups itself.
    """
    name = _name(key)
    groups = {Path(group) for group in known if Path(group).name == name}
    with contextlib.suppress(OSError):
        mounts = _Mounts(proc)
        groups |= {parent / name for parent in mounts.parents()}
    deadline = time.monotonic() + EMPTY_TIMEOUT.total_seconds()
    for group in groups:
        while _still_in_use(group) and time.monotonic() < deadline:
            time.sleep(0.01)


def why_not(proc: Path = SELF) -> str:
    """Returns a text for the host's log: the limits that this host cannot enforce, the reason and a
    remedy. It is empty if the host enforces all limits.
    """
    trial = f"trial of {os.getpid()}"
    try:
        made = _make(_name(trial), Resources(cpu_millis=1000, memory_bytes=1024**3), proc)
        if not any((group / _PIDS).exists() for group in made):
            return (
                "the number of a task's processes is not limited: there is no pids controller;"
                " delegate it to the agent"
            )
    except (_NoCgroups, OSError) as error:
        why = f"{error.strerror} ({error.filename})" if isinstance(error, OSError) else str(error)
        return (
            f"memory limits are not enforced: {why}; run the agent as root, or delegate a cgroup"
            " with the memory controller to it"
        )
    finally:
        remove(trial, proc=proc)
    return ""


def _name(key: str) -> str:
    return f"iris-{hashlib.sha256(key.encode()).hexdigest()[:20]}"


def _make(name: str, resources: Resources, proc: Path) -> list[Path]:
    mounts = _Mounts(proc)
    if mounts.memory is not None:
        return _make_v1(name, resources, mounts.memory, mounts)
    if mounts.unified is not None:
        return [_make_v2(name, resources, mounts.unified)]
    raise _NoCgroups("this system has no memory cgroups")


def _make_v1(name: str, resources: Resources, memory: Path, mounts: "_Mounts") -> list[Path]:
    group = memory / name
    group.mkdir(exist_ok=True)
    if resources.memory_bytes:
        _write(group / "memory.limit_in_bytes", resources.memory_bytes)
        with contextlib.suppress(FileNotFoundError):  # the kernel does not account for swap
            _write(group / "memory.memsw.limit_in_bytes", resources.memory_bytes)
    made = [group]
    with contextlib.suppress(OSError):  # only the memory limit is required
        if mounts.pids is not None:
            (mounts.pids / name).mkdir(exist_ok=True)
            made.append(mounts.pids / name)
            _write(mounts.pids / name / _PIDS, most_processes())
    with contextlib.suppress(OSError):
        if mounts.cpu is not None and resources.cpu_millis:
            (mounts.cpu / name).mkdir(exist_ok=True)
            made.append(mounts.cpu / name)
            _write(
                mounts.cpu / name / "cpu.shares",
                _within(resources.cpu_millis * 1024 // 1000, _SHARES),
            )
    return list(dict.fromkeys(made))  # one hierarchy may have several controllers


def _make_v2(name: str, resources: Resources, parent: Path) -> Path:
    controllers = _words(parent / "cgroup.controllers")
    if "memory" not in controllers:
        raise _NoCgroups(f"the memory controller is not available in {parent}")
    # The agent needs this right in the common parent of both groups:
    # cgroup-v2.html#delegation-containment.
    if not os.access(parent / "cgroup.procs", os.W_OK):
        raise _NoCgroups(f"the agent may not move processes between the cgroups below {parent}")
    missing = {"memory", "cpu", "pids"} & controllers - _words(parent / "cgroup.subtree_control")
    for controller in sorted(missing, reverse=True):
        try:
            _write(parent / "cgroup.subtree_control", f"+{controller}")
        except OSError as error:
            if controller == "memory":
                raise _NoCgroups(
                    f"the memory controller cannot be enabled for the cgroups below {parent}:"
                    f" {error.strerror}"
                ) from None
    group = parent / name
    group.mkdir(exist_ok=True)
    if (kind := _words(group / "cgroup.type")) not in ({"domain"}, set()):
        raise _NoCgroups(
            f"cgroups below {parent} can hold only threads, not processes: their cgroup.type is"
            f" {' '.join(sorted(kind))}"
        )
    if resources.memory_bytes:
        _write(group / "memory.max", resources.memory_bytes)
        # When memory runs out, the kernel kills the whole group. If it killed only one process, the
        # rest of the program would continue.
        _write(group / "memory.oom.group", 1)
        with contextlib.suppress(FileNotFoundError):  # the kernel has no swap
            _write(group / "memory.swap.max", 0)
    with contextlib.suppress(OSError):  # only the memory limit is required
        _write(group / _PIDS, most_processes())
    if resources.cpu_millis:
        with contextlib.suppress(OSError):
            # One core gives the default weight.
            _write(group / "cpu.weight", _within(resources.cpu_millis // 10, _WEIGHTS))
    return group


class _Mounts:
    """The directories in which the cgroups of attempts can be created. They depend on the cgroups
    of this process.

    Raises:
        OSError: the system does not list this process's groups.
    """

    def __init__(self, proc: Path) -> None:
        own = dict(_own_groups((proc / "cgroup").read_text()))
        #: In cgroup v1: this process's own cgroup for memory, in which the attempts' cgroups are
        #: created. None if cgroup v1 does not limit memory here.
        self.memory: Path | None = None
        #: In cgroup v1: this process's own cgroup for CPU; None if there is none.
        self.cpu: Path | None = None
        #: In cgroup v1: this process's own cgroup that limits the number of processes; None if
        #: there is none.
        self.pids: Path | None = None
        #: In cgroup v2: the cgroup in which the attempts' cgroups are created. It is the parent of
        #: this process's own cgroup, or that cgroup itself if it is the root of the hierarchy. None
        #: if no cgroup v2 hierarchy is mounted.
        self.unified: Path | None = None
        for kind, controllers, root, point in _hierarchies((proc / "mountinfo").read_text()):
            if kind == "cgroup2":
                here = _below(point, root, own.get("", "/"))
                self.unified = here if here == point else here.parent
            if "memory" in controllers:
                self.memory = _below(point, root, own.get("memory", "/"))
            if "cpu" in controllers:
                self.cpu = _below(point, root, own.get("cpu", "/"))
            if "pids" in controllers:
                self.pids = _below(point, root, own.get("pids", "/"))

    def parents(self) -> Iterator[Path]:
        yield from (
            each for each in (self.memory, self.cpu, self.pids, self.unified) if each is not None
        )


def _own_groups(text: str) -> Iterator[tuple[str, str]]:
    """Yields (controller, path) of each line; the controller of version 2 is the empty string."""
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, path


def _hierarchies(mountinfo: str) -> Iterator[tuple[str, set[str], str, Path]]:
    """Yields (cgroup or cgroup2, its controllers, the mounted root, the mount point), see
    proc(5).
    """
    for line in mountinfo.splitlines():
        where, _, what = line.partition(" - ")
        root, point = where.split()[3:5]
        kind, _, options = what.split()[:3]
        if kind in ("cgroup", "cgroup2"):
            controllers = set(options.split(",")) if kind == "cgroup" else set()
            yield kind, controllers, _unescaped(root), Path(_unescaped(point))


def _unescaped(path: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), path)


def _below(point: Path, root: str, path: str) -> Path:
    """Returns the directory of a group, or the mount point if the group is outside of the mounted
    part of its hierarchy.
    """
    relative = os.path.relpath(path, root)
    return point if relative.startswith("..") else point / relative


def _still_in_use(group: Path) -> bool:
    """Kills the processes in the group, and removes it and the groups below it. Returns True if a
    further try may succeed.
    """
    with contextlib.suppress(OSError):
        # No process in the group can start another one before it is killed.
        _write(group / _PIDS, 0)
    in_use = False
    groups = [group]
    # The list grows in the loop. A recursion could fail, because a job may nest groups deeply.
    for each in groups:
        with contextlib.suppress(OSError):
            groups += [path for path in each.iterdir() if path.is_dir() and not path.is_symlink()]
    for path in reversed(groups):
        for pid in _words(path / "cgroup.procs"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(pid), signal.SIGKILL)
        try:
            path.rmdir()
        except OSError as error:
            in_use = in_use or error.errno == errno.EBUSY
    return in_use


def _words(file: Path) -> set[str]:
    """Returns the words in a file; empty if it cannot be read."""
    try:
        return set(file.read_text().split())
    except OSError:
        return set()


def _write(file: Path, value: int | str) -> None:
    """Writes to a file of the kernel. Does not create the file if it is missing."""
    with file.open("r+") as opened:
        opened.write(str(value))


def _within(value: int, limits: tuple[int, int]) -> int:
    return max(limits[0], min(limits[1], value))
