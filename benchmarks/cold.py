"""Measures a cluster without hosts: how soon a slice is requested for a job, and how soon many
slices are ready.

A slice counts as requested when the local platform has written its request file, by the time stamp
of that file. Before that come the submission, a scheduling pass that finds no hosts, the
autoscaler's evaluation, and the slice's workflow with its call of the platform. The agents that
start then are real, with two processes each.
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TypeVar

from benchmarks.ground import NAME, Ground, cluster
from benchmarks.table import Row
from iris.client.connect.clusters import cluster_dir
from iris.config import ClusterConfig, load_config, make_local_config
from iris.model.host.resources import Resources
from iris.model.job.spec import JobSpec
from iris.platforms.local import REQUEST, homes
from iris.worker_agents.local.cluster import machines_dir

#: Slices of one host, each filled by one task. The rate limits of the group are too high to matter.
CONFIG = """
platform: {local: {}}
defaults: {autoscaler: {scale_down_delay: DELAY, scale_ups_per_minute: 1000, scale_downs_per_minute: 1000}}
scale_groups:
  hosts: {type: local_vm, resources: {cpu: 1}, max_slices: MOST}
"""
#: Seconds.
TARGET = 1.0
PATIENCE = 300.0
LOOK_EVERY = 0.02
#: The seconds between two jobs, so that each finds the cluster at rest.
PAUSE = 4.0
T = TypeVar("T")


def measure(*, quick: bool) -> list[Row]:
    many = 8 if quick else 50
    with cluster(_config("1s", 2)) as ground:
        first = asyncio.run(_first(ground, 3 if quick else 5))
    with cluster(_config("10m", many)) as ground:
        there = asyncio.run(_many(ground, many))
    return [first, there]


def _config(delay: str, most: int) -> ClusterConfig:
    return make_local_config(
        load_config(CONFIG.replace("DELAY", delay).replace("MOST", str(most))), NAME
    )


async def _first(ground: Ground, times: int) -> Row:
    iris, took = await ground.client(), []
    for _ in range(times):
        began = time.time_ns()
        submitted = await iris.jobs.submit(_job())
        (home,) = await _until(lambda: homes(_machines()))
        took.append(((home / REQUEST).stat().st_mtime_ns - began) / 1e9)
        await iris.jobs.wait_until_ended(submitted.id, submitted.run_id)
        await _until(lambda: not homes(_machines()))  # until the idle slice is deleted
        await asyncio.sleep(PAUSE)
    took.sort()
    times_taken = " ".join(f"{seconds:.2f}" for seconds in took)
    return Row(
        "without slices: submit → the first slice is requested, s",
        median(took),
        target=TARGET,
        format="{:.2f}",
        note=times_taken,
    )


async def _many(ground: Ground, many: int) -> Row:
    iris = await ground.client()
    began = time.time()
    await iris.jobs.submit(_job(many, ("sleep", "86400")))
    reached: dict[str, float] = {}
    async with asyncio.timeout(PATIENCE):
        while "all ready" not in reached:
            asked, there, now = (
                len(homes(_machines())),
                len(await iris.hosts.list()),
                time.time() - began,
            )
            events = {
                "all requested": asked == many,
                "first ready": there > 0,
                "all ready": there == many,
            }
            reached |= {event: now for event, so in events.items() if so and event not in reached}
            await asyncio.sleep(10 * LOOK_EVERY)
    note = ", ".join(f"{event} after {seconds:.1f} s" for event, seconds in reached.items())
    return Row(f"from 0 to {many} slices of one host, s", reached["all ready"], note=note)


def _job(replicas: int = 1, command: tuple[str, ...] = ("true",)) -> JobSpec:
    name = f"cold-{secrets.token_hex(4)}"
    return JobSpec(
        user="bench",
        name=name,
        command=command,
        replicas=replicas,
        resources=Resources(cpu_millis=1000),
    )


def _machines() -> Path:
    return machines_dir(cluster_dir(NAME))


async def _until(look: Callable[[], T]) -> T:
    """Returns the result of `look` once it is true.

    Raises:
        TimeoutError: it is not within `PATIENCE`.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        if seen := look():
            return seen
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE:.0f} s")
        await asyncio.sleep(LOOK_EVERY)
