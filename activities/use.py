"""What the processes of the attempts on this host use, all measured in one look."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import psutil


class Use(NamedTuple):
    """What a tree of processes uses now."""

    #: Of one core, since the look before; 0 at the first look, and never more than the machine has: the system counts in ticks
    #: of 10 ms, which are longer than the time between two looks can be.
    cpu_percent: float = 0.0
    #: What is resident. What several of its processes share counts for each of them.
    memory_bytes: int = 0
    processes: int = 0


class Meter:
    """Looks at trees of processes again and again: what they have computed shows from one look to the next."""

    def __init__(self) -> None:
        self._looked_at: float | None = None
        #: Seconds computed so far, by process: its number may be another's at the next look.
        self._computed: dict[tuple[int, float], float] = {}
        self._most = 100.0 * (psutil.cpu_count() or 1)

    def sample(self, programs: Iterable[int] = (), shims: Iterable[int] = ()) -> dict[int, Use]:
        """What each uses, by the number that was given; one that is gone uses nothing.

        Args:
            programs: processes that count with all that is below them, such as a container's first.
            shims: processes that do not count themselves, but what is below them does.
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
                    # One that has begun since the last look has computed all of it since then.
                    before = self._computed.get(key, 0.0 if wall - key[1] < since else computed[key])
                    cpu += computed[key] - before
            percent = min(100 * cpu / since, self._most) if since else 0.0
            found[root] = Use(round(percent, 1), memory, count)
        self._looked_at, self._computed = now, computed
        return found


def _children() -> dict[int, list[int]]:
    """The processes by their parents."""
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
