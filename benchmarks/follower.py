"""Runs `iris logs -f` as a user does, and measures how late each line is and whether lines are
missing.

Each printed line has a number and the time, by the clock that all processes of the machine share.
"""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.ground import NAME
from iris.model.units import MIB

#: The seconds that a follower may take to end after its job.
PATIENCE = 180.0
#: A program that prints lines in bursts, until all bursts are printed or a file `stop` exists. Then
#: it writes the number of lines to a file. Its arguments: the directory of these files, lines in a
#: burst, seconds from one burst to the next, bursts.
PRINTS = """
import os, sys, time
counts, lines, pause, bursts = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
task, number, begun = os.environ["IRIS_TASK_INDEX"], 0, time.monotonic()
for burst in range(bursts):
    for _ in range(lines):
        sys.stdout.write(f"{task} {number} {time.time_ns()} {'x' * 50}\\n")
        number += 1
    if os.path.exists(os.path.join(counts, "stop")):
        break
    time.sleep(max(0, begun + (burst + 1) * pause - time.monotonic()))
with open(os.path.join(counts, task), "w") as file:
    file.write(str(number))
"""


class Lines(NamedTuple):
    """The measurements of the lines that a follower has shown."""

    #: The milliseconds from print to show, of the lines that were printed while it followed.
    late: list[float]
    #: The number of lines that are missing or were shown twice.
    wrong: int
    #: The lines printed per second.
    rate: float
    #: The seconds from the last print to the last show.
    behind: float

    def p(self, percent: int) -> float:
        return sorted(self.late)[len(self.late) * percent // 100]


class Follower:
    """A process of `iris logs -f`, with the times at which it showed its output."""

    def __init__(self, job: str) -> None:
        command = [sys.executable, "-m", "iris.cli.main", "--cluster", NAME, "logs", "-f", job]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        self._pieces: list[tuple[int, bytes]] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        while piece := os.read(self._process.stdout.fileno(), MIB):
            self._pieces.append((time.time_ns(), piece))

    def lines(self, counts: Path) -> Lines:
        """Waits for the follower's end, and compares what it showed with what the programs report
        to have printed.
        """
        if self._process.wait(PATIENCE):
            raise RuntimeError(f"`iris logs -f` ended with {self._process.returncode}")
        self._reading.join()
        printed = {
            (file.name, number)
            for file in counts.glob("[0-9]*")
            for number in range(int(file.read_text()))
        }
        seen: list[tuple[tuple[str, int], int, int]] = []
        rest = b""
        for at, piece in self._pieces:
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                task, number, stamp, _ = line.split()[-4:]
                seen.append(((task.decode(), int(number)), int(stamp), at))
        first, stamps = self._pieces[0][0], [stamp for _, stamp, _ in seen]
        which = [key for key, _, _ in seen]
        return Lines(
            late=[(at - stamp) / 1e6 for _, stamp, at in seen if stamp > first],
            wrong=len(printed ^ set(which)) + len(which) - len(set(which)),
            rate=len(seen) / ((max(stamps) - min(stamps)) / 1e9),
            behind=(seen[-1][2] - max(stamps)) / 1e9,
        )
