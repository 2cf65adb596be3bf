"""Measures a planned restart of the control plane of a cluster at rest: the time from its SIGTERM
until a program starts whose job was submitted when the process had ended. The supervisor starts the
next control plane, as in `iris cluster restart`.
"""

import asyncio
import time
from statistics import median

import psutil

from benchmarks.ground import Ground, cluster
from benchmarks.latency import start_of
from benchmarks.table import Row
from iris.client.connect.clusters import read_record
from iris.worker_agents.local.launch import control_plane

#: The seconds between two restarts. A control plane that ends sooner counts as one that does not
#: come up.
PAUSE = 12
TARGET = 3.0


def measure(*, quick: bool) -> list[Row]:
    with cluster(1) as ground:
        return asyncio.run(_measure(ground, 3 if quick else 10))


async def _measure(ground: Ground, restarts: int) -> list[Row]:
    iris = await ground.client()
    await start_of(iris)
    taken = []
    for _ in range(restarts):
        await asyncio.sleep(PAUSE)
        record = read_record(ground.record.name)
        assert record is not None
        running = control_plane(record)
        assert running is not None
        began, process = time.monotonic(), psutil.Process(running.pid)
        process.terminate()
        # It would still place a job that came at once.
        await asyncio.to_thread(psutil.wait_procs, [process])
        ended = time.monotonic() - began
        taken.append(ended + (await start_of(iris)).running / 1000)
    return [
        Row(
            "planned restart of the control plane: s from SIGTERM to a program's start, median",
            median(taken),
            target=TARGET,
            note=f"of {restarts}; {min(taken):.1f} to {max(taken):.1f}",
        )
    ]
