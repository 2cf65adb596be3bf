"""The rows that a run writes for the checker."""

import json
import threading
import time
from pathlib import Path
from typing import Any


def now() -> float:
    """The clock of all records."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Journal:
    """The files of a run, to which several threads write. Each row is there after `write`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.Lock()

    def write(self, name: str, row: dict[str, Any]) -> None:
        with self._lock, (self.directory / f"{name}.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
