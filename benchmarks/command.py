"""Measures the start of the command line: the processor time of `iris --help`."""

import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from benchmarks.table import Row

TIMES = 10


def measure(*, quick: bool) -> list[Row]:
    iris = str(Path(sys.executable).with_name("iris"))
    taken = sorted(_cpu_seconds([iris, "--help"]) for _ in range(TIMES))
    return [Row("`iris --help`, CPU s", median(taken), target=0.2, format="{:.3f}", note=f"{taken[0]:.3f} to {taken[-1]:.3f}")]


def _cpu_seconds(command: list[str]) -> float:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)
    return used.ru_utime + used.ru_stime
