"""Measures the resource usage of the processes of all attempts on this host, in one pass."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import psutil


class Use(NamedTuple):
    """The current resource usage of a process tree."""

    #: The CPU usage since the previous sample, in percent of one core; 0 in the first sample. It is
    #: at most the capacity of the machine. Without this limit it could be higher, because the
    #: system counts in ticks of 10 ms, which can be longer than the time between two samples.
    cpu_percent: float = 0.0
    #: The resident memory, in bytes. Memory that several processes share counts for each of them.
    memory_bytes: int = 0
    processes: int = 0


class Meter:
    """Measures the resource usage of process trees repeatedly. The CPU usage is the difference
    between two samples.
    """

    def __init__(self) -> None:
        self._looked_at: float | None = None
        #: The CPU seconds that each process has used, by process id and creation time. The id alone
        #: is not enough, because another process may have the same id at the next sample.
        self._computed: dict[tuple[int, float], float] = {}
        self._most = 100.0 * (psutil.cpu_count() or 1)

    def sample(self, programs: Iterable[int] = (), shims: Iterable[int] = ()) -> dict[int, Use]:
        """Returns the usage of each given process. A process that is gone uses nothing.

        Args:
            programs: processes that count together with all their descendants, such as a
                container's first process.
            shims: processes of which only the descendants count.
        """
        now, wall = time.monotonic(), time.time()
        since = now - self._looked_at if self._looked_at is not None else 0.0
        children = _children()
        computed: dict[tuple[int, float], float] = {}
        found = {}
        for root, own in [*((pid, True) for pid in programs), *((pid, False) for pid in shims)]:
            cpu, memory, count = 0.0, 0, 0
            for pid in _tree(root, children, own=own):
                with contextlib.suppress(psutil.Error):
                    process = psutil.Process(pid)
                    with process.oneshot():
                        if process.status() == psutil.STATUS_ZOMBIE:
                            continue
                        key, times = (pid, process.create_time()), process.cpu_times()
                        memory += process.memory_info().rss
                    computed[key] = times.user + times.system
                    count += 1
                    # A process that started after the last sample has used all its CPU time since
                    # then.
                    before = self._computed.get(
                        key, 0.0 if wall - key[1] < since else computed[key]
                    )
                    cpu += computed[key] - before
            percent = min(100 * cpu / since, self._most) if since else 0.0
            found[root] = Use(round(percent, 1), memory, count)
        self._looked_at, self._computed = now, computed
        return found


def _children() -> dict[int, list[int]]:
    """Returns the process ids by the id of their parent."""
    children: dict[int, list[int]] = defaultdict(list)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            children[process.ppid()].append(process.pid)
    return children


def _tree(root: int, children: dict[int, list[int]], *, own: bool) -> list[int]:
    found, new = [], [root] if own else list(children.get(root, ()))
    while new:
        pid = new.pop()
        found.append(pid)
        new.extend(children.get(pid, ()))
    return found
