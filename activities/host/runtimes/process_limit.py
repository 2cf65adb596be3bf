"""Decides how many processes one task may have, so that a fork bomb stops at its own limit and not at the machine's."""

import contextlib
from pathlib import Path

#: The most processes and threads of one task. JAX and data loaders start a few threads for each core, on a machine of 200 cores
#: some thousands.
MOST = 32_768
#: A task gets at most this part of what the machine has. Where the kernel numbers only 32,768 processes, that is 8,192.
PART = 4
_KERNEL = Path("/proc/sys/kernel")


def most_processes(kernel: Path = _KERNEL) -> int:
    """Returns how many processes and threads a task may have at a time. Each thread counts.

    Args:
        kernel: the directory of the kernel's settings. A setting that cannot be read does not count.
    """
    return min(MOST, *(limit // PART for limit in _machines(kernel)))


def _machines(kernel: Path) -> list[int]:
    """Returns the limits of the whole machine."""
    found = []
    for name in ("pid_max", "threads-max"):
        with contextlib.suppress(OSError, ValueError):
            found.append(int((kernel / name).read_text()))
    return found or [PART * MOST]
