"""Computes how many processes and threads one task may have at a time, in every runtime."""

import contextlib
from pathlib import Path

#: The maximum number of processes and threads of one task. JAX and data loaders start a few threads
#: for each core, so they need some thousands on a machine with 200 cores.
MOST = 32_768
#: A task gets at most the machine's own limits divided by this number. If the kernel's limit is
#: 32,768 processes, a task gets 8,192.
PART = 4
#: The directory of the kernel's settings.
_KERNEL = Path("/proc/sys/kernel")


def most_processes(kernel: Path = _KERNEL) -> int:
    """Returns how many processes and threads a task may have at a time.

    Args:
        kernel: the directory of the kernel's settings. A setting that cannot be read does not
            count.
    """
    return min(MOST, *(limit // PART for limit in _limits_of_the_machine(kernel)))


def _limits_of_the_machine(kernel: Path) -> list[int]:
    found = []
    for name in ("pid_max", "threads-max"):
        with contextlib.suppress(OSError, ValueError):
            found.append(int((kernel / name).read_text()))
    return found or [PART * MOST]
