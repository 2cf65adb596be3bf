"""Measures the save and the restore of a checkpoint of 1 GiB in a store on the same disk. The floor
copies and hashes it.
"""

import asyncio
import hashlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.table import Row
from iris.activities.host.files.checkpoint_files import FOLDER
from iris.activities.host.files.checkpoints import End, Saver
from iris.activities.host.files.outputs import AT_ONCE
from iris.activities.host.files.restore import restore
from iris.model.units import GIB
from iris.storage.object_store import Store

PREFIX = "checkpoints/bench/train/run/0"
#: The number of files that have 1 GiB together.
COUNTS = (8, 4096)
LOOKS = 1000
BY_ITSELF = End(by_itself=True, at=0)


def measure(*, quick: bool) -> list[Row]:
    rows = []
    for count in COUNTS:
        saves, restores, floors = [], [], []
        for _ in range(1 if quick else 3):
            with tempfile.TemporaryDirectory(prefix="iris-bench-") as directory:
                floor, saved, restored = asyncio.run(_once(Path(directory), count))
            floors.append(floor)
            saves.append(saved)
            restores.append(restored)
        what = f"1 GiB in {count:,} files"
        note = f"floor {min(floors):.1f} to {max(floors):.1f}"
        rows += [
            Row(
                f"save of a checkpoint of {what}, s",
                median(saves),
                median(floors),
                note=f"cp -r and SHA-256: {note}",
            ),
            Row(
                f"restore of a checkpoint of {what}, s",
                median(restores),
                median(floors),
                note=f"the same: {note}",
            ),
        ]
    with tempfile.TemporaryDirectory(prefix="iris-bench-") as directory:
        look = asyncio.run(_look(Path(directory)))
    return [
        *rows,
        Row(
            "a look at an empty checkpoint directory, CPU µs",
            look * 1e6,
            note="once per second and task",
        ),
    ]


async def _once(directory: Path, count: int) -> tuple[float, float, float]:
    """Returns the seconds that the floor, the save and the restore take."""
    first, second = directory / "first", directory / "second"
    (first / FOLDER).mkdir(parents=True)
    for number in range(count):
        (first / FOLDER / str(number)).write_bytes(os.urandom(GIB // count))
    os.sync()
    begun = time.perf_counter()
    shutil.copytree(first / FOLDER, directory / "copy")
    for path in (directory / "copy").iterdir():
        _hash(path)
    floor = time.perf_counter() - begun
    shutil.rmtree(directory / "copy")
    os.sync()
    store = Store((directory / "store").as_uri(), create=True)
    begun = time.perf_counter()
    await _saver(store, first).finish(BY_ITSELF)
    saved = time.perf_counter() - begun
    os.sync()
    (second / FOLDER).mkdir(parents=True)
    begun = time.perf_counter()
    await restore(store, PREFIX, second, second, None)
    return floor, saved, time.perf_counter() - begun


def _hash(path: Path) -> None:
    with path.open("rb") as file:
        hashlib.file_digest(file, "sha256")


async def _look(directory: Path) -> float:
    """Returns the processor seconds of one look of a task that has no checkpoint."""
    (directory / FOLDER).mkdir()
    saver = _saver(Store((directory / "store").as_uri(), create=True), directory)
    begun = time.process_time()
    for _ in range(LOOKS):
        await saver.finish(BY_ITSELF)
    return (time.process_time() - begun) / LOOKS


def _saver(store: Store, directory: Path) -> Saver:
    return Saver(store, PREFIX, 1, directory, asyncio.Semaphore(AT_ONCE), 2 * GIB, print)
