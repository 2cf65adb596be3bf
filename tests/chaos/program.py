"""The program of every job of a chaos run. It imports nothing of Iris.

    python program.py DIR [--seconds S] [--again S] [--fails N] [--child COMMAND]

It writes what it does into a file of its own below DIR/attempts, outside of Iris. Each line is on
the disk before the program goes on.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

#: The time between two records of a program that runs, in seconds.
EVERY = 0.5
#: The exit code of an attempt that fails as planned.
FAILED = 3


class Attempt:
    """The records of this process."""

    def __init__(self, directory: Path) -> None:
        self.job, self.task = os.environ["IRIS_JOB_ID"], int(os.environ["IRIS_TASK_INDEX"])
        self.attempt = int(os.environ["IRIS_ATTEMPT"])
        self._host = os.environ["IRIS_HOST_ID"]
        directory.mkdir(parents=True, exist_ok=True)
        self._task_name = f"{self.job.replace('/', '~')}#{self.task}@"
        self._directory = directory
        name = f"{self._task_name}{self.attempt}.{os.getpid()}.jsonl"
        self._file = os.open(directory / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        entry = os.open(directory, os.O_RDONLY)
        os.fsync(entry)
        os.close(entry)

    def record(self, event: str, **more: Any) -> None:
        row = {
            "job": self.job,
            "task": self.task,
            "attempt": self.attempt,
            "event": event,
            "pid": os.getpid(),
            "host": self._host,
            "time": time.clock_gettime(time.CLOCK_BOOTTIME),
        }
        os.write(self._file, json.dumps(row | more).encode() + b"\n")
        os.fsync(self._file)

    def failures(self) -> int:
        """The number of attempts of this task that have failed as planned."""
        files = [
            each for each in self._directory.iterdir() if each.name.startswith(self._task_name)
        ]
        return sum(f'"code": {FAILED}}}' in each.read_text() for each in files)


def submits(attempt: Attempt, child: list[str], seconds: float) -> None:
    """Submits a job from inside this one, and repeats that until it is accepted."""
    while True:
        done = subprocess.run(child, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            attempt.record("submitted", child=done.stdout.strip())
            return
        attempt.record("refused", code=done.returncode, said=done.stderr[-300:])
        time.sleep(seconds)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--again", type=float, help="the seconds of later attempts")
    parser.add_argument("--fails", type=int, default=0)
    parser.add_argument("--child", type=json.loads, help="a command that submits a job, as JSON")
    options = parser.parse_args()
    attempt = Attempt(options.directory / "attempts")

    def told(number: int, frame: FrameType | None) -> None:
        attempt.record("told", signal=number)
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, told)
    attempt.record("start")
    is_first = attempt.attempt == 1 or options.again is None
    ends = time.monotonic() + (options.seconds if is_first else options.again)
    if options.child:
        submits(attempt, options.child, EVERY)
    while (left := ends - time.monotonic()) > 0:
        time.sleep(min(EVERY, left))
        attempt.record("alive")
    code = FAILED if attempt.failures() < options.fails else 0
    attempt.record("end", code=code)
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
