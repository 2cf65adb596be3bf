"""Kills the processes that a program has left, for shims and for their fork server. Uses only the
standard library.

The shim inherits the program's orphans. A process may start another one and end, before this module
has read a list of all processes. If there is no cgroup, such processes could escape for ever. So
the processes that the system started last are examined first, and each is killed at once, together
with its process group. The kernel lets no process of a group start another one while it kills the
group. So a process escapes only if it starts another process that leaves the group, between two
system calls of this module.
"""

# ruff: noqa: PTH112, PTH118, PTH123, PTH208

from __future__ import annotations

import contextlib
import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

#: The number of the newest pids that are examined first, in search of a program's remaining
#: processes, before all processes of the machine are listed.
_NEWEST = 64
#: The pause after a search for a program's remaining processes that found no new one, in seconds.
_PAUSE = 0.005
#: The number of searches in a row that must find no process before the program counts as gone. One
#: search can miss a process that starts another one.
_PASSES = 3
_PROC = "/proc"
#: The flag of a process that is ending, in proc_pid_stat(5). Its name in linux/sched.h is
#: PF_EXITING.
_EXITING = 4


def sweep(cgroups: Sequence[str], over: Callable[[], bool], reap: Callable[[], object]) -> None:
    """Kills the processes in the cgroups and below this process, until none is left or the time is
    over. Makes at least one pass.

    Args:
        over: returns True if the time is over.
        reap: reaps this process's children that have ended.
    """
    for cgroup in cgroups:  # so that no process there can start another one
        with contextlib.suppress(OSError), open(os.path.join(cgroup, "pids.max"), "r+") as limit:
            limit.write("0")
    known: set[int] = set()
    while has_children():
        found = {pid for cgroup in cgroups for pid in _members(cgroup)}
        for pid in found:
            _kill(os.kill, pid)
        found |= _kill_children()
        if over() or not (found or os.path.isdir(_PROC)):
            return
        if found <= known:
            time.sleep(_PAUSE)
        known |= found
        reap()


def sweep_others(
    spared: Collection[int], over: Callable[[], bool], reap: Callable[[], object]
) -> bool:
    """Kills this process's children, until `_PASSES` passes in a row find none or the time is over.
    Returns True if none is left.

    Args:
        spared: the pids of children that are not killed.
    """
    passes = 0
    while passes < _PASSES:
        found = _kill_children(spared)
        passes = 0 if found else passes + 1
        if found and over():
            return False
        reap()
    return True


def signal_all(number: int, spared: int = 0) -> None:
    """Signals all processes below this one.

    Args:
        spared: a process group that gets no signal.
    """
    below: dict[int, list[tuple[int, int, bytes]]] = {}
    found: list[tuple[int, int, bytes]] = []
    for pid in _all():
        with contextlib.suppress(OSError, ValueError):
            state, parent, group = _read(f"{pid}/stat").rpartition(b")")[2].split()[:3]
            below.setdefault(int(parent), []).append((pid, int(group), state))
    parents = [os.getpid()]
    while parents:
        children = below.pop(parents.pop(), [])
        found += children
        parents += [pid for pid, _, _ in children]
    for pid, its_group, its_state in found:
        if its_state != b"Z" and its_group != spared:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def has_children() -> bool:
    """Returns True if any process is below this one. If this process inherits orphans, all
    processes of the program are below it.
    """
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _members(cgroup: str) -> list[int]:
    with contextlib.suppress(OSError), open(os.path.join(cgroup, "cgroup.procs")) as file:
        return [int(line) for line in file]
    return []


def _newest() -> Iterable[int]:
    """Returns the pids that the system gave out last, in reverse order; empty on other systems than
    Linux.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        last = int(_read("loadavg").split()[-1])
        return range(last, max(1, last - _NEWEST), -1)
    return ()


def _all() -> Iterable[int]:
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir(_PROC) if name.isdigit()]
    return ()


def _kill_children(spared: Collection[int] = ()) -> set[int]:
    """Kills this process's living children, except the spared ones, with their groups. Returns the
    killed pids, and the spared ones that are exiting.
    """
    return _kill_those(_newest(), spared) or _kill_those(_all(), spared)


def _kill_those(pids: Iterable[int], spared: Collection[int]) -> set[int]:
    found, me = set(), os.getpid()
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            state, parent, group, _, _, _, flags = (
                _read(f"{pid}/stat").rpartition(b")")[2].split()[:7]
            )
            if int(parent) != me or state == b"Z":
                continue
            if pid not in spared:
                if int(group) not in (0, os.getpgrp()):  # 0: the group is in another PID namespace
                    _kill(os.killpg, int(group))
                _kill(os.kill, pid)
                found.add(pid)
            elif int(flags) & _EXITING:
                # This shim has released its lock, but this process has not inherited its children
                # yet.
                found.add(pid)
    return found


def _kill(function: Callable[[int, int], None], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        function(number, signal.SIGKILL)


def _read(name: str) -> bytes:
    file = os.open(f"{_PROC}/{name}", os.O_RDONLY)
    try:
        return os.read(file, 4096)
    finally:
        os.close(file)
