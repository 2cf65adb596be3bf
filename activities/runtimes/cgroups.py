"""The cgroup of an attempt: the kernel holds its program to the memory it was promised, and shares the cores out as promised.

A convenience, never a condition. Where the system does not let us, a program runs without, and `why_not` says so. Version 1 is
taken where the memory controller lives there: a group below that of this process. In version 2 a group that passes controllers
on may have no processes itself, and the agent is in its own: so the groups of attempts stand beside it, in its parent. Moving the
agent to make room below it would lock out whoever starts the next one there.
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

from iris.resources import Resources

SELF = Path("/proc/self")
#: How long processes that have been killed may take to leave.
PATIENCE = timedelta(seconds=2)
#: The smallest and largest that the kernel takes: docs.kernel.org/admin-guide/cgroup-v2.html and .../cgroup-v1.
_WEIGHTS, _SHARES = (1, 10_000), (2, 262_144)


class _NoCgroups(Exception):
    """Why this process may not make any, to follow "memory limits are not enforced: "."""


def make(key: str, resources: Resources, proc: Path = SELF) -> tuple[str, ...]:
    """The directories of the groups made for the attempt, one in each hierarchy; none where the system does not let us.

    Groups that are there already are taken again, with these limits.

    Args:
        resources: memory of zero bytes is not limited. Cores are no limit but a share, when there are not enough.
        proc: where the system says which groups this process is in.
    """
    try:
        return tuple(str(group) for group in _make(_name(key), resources, proc))
    except (_NoCgroups, OSError):
        remove(key, proc=proc)
        return ()


def remove(key: str, *known: str, proc: Path = SELF) -> None:
    """Kill whoever is in the attempt's groups, and remove them. Safe to repeat; what cannot be removed stays.

    Args:
        known: what `make` has returned, perhaps to an agent that was in other groups itself.
    """
    name = _name(key)
    groups = {Path(group) for group in known if Path(group).name == name}
    with contextlib.suppress(OSError):
        mounts = _Mounts(proc)
        groups |= {parent / name for parent in mounts.parents()}
    deadline = time.monotonic() + PATIENCE.total_seconds()
    for group in groups:
        while _still_in_use(group) and time.monotonic() < deadline:
            time.sleep(0.01)


def why_not(proc: Path = SELF) -> str:
    """What this host cannot do for want of cgroups, and what would help, in words for its log; empty: it can."""
    trial = f"trial of {os.getpid()}"
    try:
        _make(_name(trial), Resources(cpu_millis=1000, memory_bytes=1024**3), proc)
    except (_NoCgroups, OSError) as error:
        why = f"{error.strerror} ({error.filename})" if isinstance(error, OSError) else str(error)
        return (
            f"memory limits are not enforced: {why}; run the agent as root, or delegate a cgroup with the memory controller to it"
        )
    finally:
        remove(trial, proc=proc)
    return ""


def _name(key: str) -> str:
    return f"iris-{hashlib.sha256(key.encode()).hexdigest()[:20]}"


def _make(name: str, resources: Resources, proc: Path) -> list[Path]:
    mounts = _Mounts(proc)
    if mounts.memory is not None:
        return _make_v1(name, resources, mounts.memory, mounts.cpu)
    if mounts.unified is not None:
        return [_make_v2(name, resources, mounts.unified)]
    raise _NoCgroups("this system has no memory cgroups")


def _make_v1(name: str, resources: Resources, memory: Path, cpu: Path | None) -> list[Path]:
    group = memory / name
    group.mkdir(exist_ok=True)
    if resources.memory_bytes:
        _write(group / "memory.limit_in_bytes", resources.memory_bytes)
        with contextlib.suppress(FileNotFoundError):  # a kernel that does not count what is swapped out
            _write(group / "memory.memsw.limit_in_bytes", resources.memory_bytes)
    made = [group]
    if cpu is not None and resources.cpu_millis:
        with contextlib.suppress(OSError):  # the limit of memory is what counts
            (cpu / name).mkdir(exist_ok=True)
            made.append(cpu / name)
            _write(cpu / name / "cpu.shares", _within(resources.cpu_millis * 1024 // 1000, _SHARES))
    return made


def _make_v2(name: str, resources: Resources, parent: Path) -> Path:
    controllers = _words(parent / "cgroup.controllers")
    if "memory" not in controllers:
        raise _NoCgroups(f"the memory controller is not given to {parent}")
    if not os.access(parent / "cgroup.procs", os.W_OK):  # of what is above both groups, see cgroup-v2.html#delegation-containment
        raise _NoCgroups(f"processes may not be moved within {parent}")
    missing = {"memory", "cpu"} & controllers - _words(parent / "cgroup.subtree_control")
    for controller in sorted(missing, reverse=True):
        try:
            _write(parent / "cgroup.subtree_control", f"+{controller}")
        except OSError as error:
            if controller == "memory":
                raise _NoCgroups(
                    f"{parent} does not pass the memory controller on, and cannot be made to: {error.strerror}"
                ) from None
    group = parent / name
    group.mkdir(exist_ok=True)
    if (kind := _words(group / "cgroup.type")) not in ({"domain"}, set()):
        raise _NoCgroups(f"below {parent} there is room for threads only ({' '.join(sorted(kind))})")
    if resources.memory_bytes:
        _write(group / "memory.max", resources.memory_bytes)
        # One of its processes less would leave a program half alive.
        _write(group / "memory.oom.group", 1)
        with contextlib.suppress(FileNotFoundError):  # no swap in this kernel
            _write(group / "memory.swap.max", 0)
    if resources.cpu_millis:
        with contextlib.suppress(OSError):
            _write(group / "cpu.weight", _within(resources.cpu_millis // 10, _WEIGHTS))  # a core has the usual weight
    return group


class _Mounts:
    """Where the groups of attempts may be made, by what the system says of this process.

    Raises:
        OSError: it says nothing.
    """

    def __init__(self, proc: Path) -> None:
        own = dict(_own_groups((proc / "cgroup").read_text()))
        #: Version 1, below this process's own.
        self.memory: Path | None = None
        self.cpu: Path | None = None
        #: Version 2, beside this process's own.
        self.unified: Path | None = None
        for kind, controllers, root, point in _hierarchies((proc / "mountinfo").read_text()):
            if kind == "cgroup2":
                here = _below(point, root, own.get("", "/"))
                self.unified = here if here == point else here.parent
            if "memory" in controllers:
                self.memory = _below(point, root, own.get("memory", "/"))
            if "cpu" in controllers:
                self.cpu = _below(point, root, own.get("cpu", "/"))

    def parents(self) -> Iterator[Path]:
        yield from (each for each in (self.memory, self.cpu, self.unified) if each is not None)


def _own_groups(text: str) -> Iterator[tuple[str, str]]:
    """(controller, path) of each line; the controller of version 2 is the empty one."""
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, path


def _hierarchies(mountinfo: str) -> Iterator[tuple[str, set[str], str, Path]]:
    """(cgroup or cgroup2, its controllers, what of it is mounted, where), see proc(5)."""
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
    """The directory of a group, by what of its hierarchy is mounted there; one that cannot be seen from here: the mount's."""
    relative = os.path.relpath(path, root)
    return point if relative.startswith("..") else point / relative


def _still_in_use(group: Path) -> bool:
    """Kill whoever is in the group, and remove it with those that the program has made below. Whether trying again may help."""
    in_use = False
    for path, _, _ in os.walk(group, topdown=False):
        for pid in _words(Path(path) / "cgroup.procs"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(pid), signal.SIGKILL)
        try:
            Path(path).rmdir()
        except OSError as error:
            in_use = in_use or error.errno == errno.EBUSY
    return in_use


def _words(file: Path) -> set[str]:
    """What stands in a file; nothing where it cannot be read."""
    try:
        return set(file.read_text().split())
    except OSError:
        return set()


def _write(file: Path, value: int | str) -> None:
    """Files of the kernel's: what is not there is not to be made."""
    with file.open("r+") as opened:
        opened.write(str(value))


def _within(value: int, limits: tuple[int, int]) -> int:
    return max(limits[0], min(limits[1], value))
