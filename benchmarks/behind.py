"""Measures how soon a small job starts behind a crowd of jobs that do not fit.

It also measures how soon the scheduler answers again, with the whole crowd, after its control plane
was killed.

The cluster has two hosts: a busy one, for which the crowd waits, and a free one that is too small
for any job of the crowd. The start is the agent's `started_at`, as in `latency`.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import time
from statistics import median

from benchmarks.ground import NAME, Ground, cluster
from benchmarks.latency import PAUSE, WARM_UP, start_of
from benchmarks.table import Row
from iris.client.client import AsyncIrisClient
from iris.config import load_config, make_local_config
from iris.model.errors import Unreachable
from iris.model.host.resources import Resources
from iris.model.job.spec import JobSpec

#: The most concurrent submissions.
AT_ONCE = 64
#: The cores that the crowd requests: more than the small host has, less than the large one has when
#: it is idle.
CORES = (3, 4, 5, 6, 7)
HOSTS = """
platform: {local: {}}
scale_groups:
  large: {type: local_vm, resources: {cpu: 8}, min_slices: 1, max_slices: 1}
  small: {type: local_vm, resources: {cpu: 2}, min_slices: 1, max_slices: 1}
"""
#: The most seconds until all submitted jobs wait, and until the scheduler answers again.
PATIENCE = 300.0
LOOK_EVERY = 0.1


def measure(*, quick: bool) -> list[Row]:
    with cluster(make_local_config(load_config(HOSTS), NAME)) as ground:
        return asyncio.run(
            _measure(ground, crowd=1_000 if quick else 10_000, count=20 if quick else 50)
        )


async def _measure(ground: Ground, crowd: int, count: int) -> list[Row]:
    iris = await ground.client()
    await iris.jobs.submit(a_job("blocker", cores=8, command=("sleep", "86400")))
    alone = await _starts(iris, count)
    began = time.monotonic()
    await submit_crowd(iris, crowd)
    await all_wait(iris, crowd)
    gathered = time.monotonic() - began
    behind = await _starts(iris, count)
    started, answered = await _killed(ground, iris)
    rows = sorted(behind)
    return [
        Row(
            f"p50 submit → start behind {crowd:,} waiting, ms (floor: empty queue)",
            median(behind),
            median(alone),
            target=1.5,
            note=(
                f"p95 {rows[len(rows) * 95 // 100]:.0f}, alone"
                f" {sorted(alone)[len(alone) * 95 // 100]:.0f}; submitted in {gathered:.0f} s,"
                f" {crowd / gathered:.0f} per second"
            ),
        ),
        Row(
            f"control plane killed with {crowd:,} waiting, s to a new job's start",
            started,
            target=10.0,
            note=(
                f"the scheduler answers a query after {answered:.1f} s; the supervisor restarts the"
                " control plane after 1 s"
            ),
        ),
    ]


def a_job(name: str, cores: int, command: tuple[str, ...] = ("true",)) -> JobSpec:
    """Returns a job of its own name."""
    spec = JobSpec(user="bench", name=f"{name}-{secrets.token_hex(4)}", command=command)
    return spec.model_copy(update={"resources": Resources(cpu_millis=1000 * cores)})


async def _starts(iris: AsyncIrisClient, count: int) -> list[float]:
    """Returns the milliseconds from submission until the agent took the job, for several jobs one
    after the other.
    """
    taken = []
    for _ in range(WARM_UP + count):
        taken.append((await start_of(iris)).taken)
        await asyncio.sleep(PAUSE)
    return taken[WARM_UP:]


async def submit_crowd(iris: AsyncIrisClient, crowd: int) -> None:
    """Submits jobs that only the large host can run."""
    numbers = iter(range(crowd))

    async def work() -> None:
        for number in numbers:
            await iris.jobs.submit(a_job("crowd", cores=CORES[number % len(CORES)]))

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


async def all_wait(iris: AsyncIrisClient, crowd: int) -> None:
    """Returns when the scheduler knows the whole crowd.

    Raises:
        TimeoutError: it does not within `PATIENCE`.
    """
    async with asyncio.timeout(PATIENCE):
        while True:
            with contextlib.suppress(Unreachable):
                if (await iris.cluster.status()).waiting >= crowd:
                    return
            await asyncio.sleep(1)


async def _killed(ground: Ground, iris: AsyncIrisClient) -> tuple[float, float]:
    """Returns the seconds from the control plane's death until a job submitted then starts, and
    until the scheduler answers.
    """
    os.kill(ground.controller.pid, signal.SIGKILL)
    killed = time.monotonic()

    async def answered() -> float:
        async with asyncio.timeout(PATIENCE):
            while True:
                with contextlib.suppress(Unreachable):
                    await iris.cluster.status()
                    return time.monotonic() - killed
                await asyncio.sleep(LOOK_EVERY)

    async def started() -> float:
        return (await start_of(iris)).taken / 1000

    return await asyncio.gather(started(), answered())
