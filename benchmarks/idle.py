"""Measures what an idle cluster costs with few hosts and with many: history events per hour, from a
window of some minutes.

The few hosts are slices of one scale group; the cluster has the groups of `examples/eu-west4.yaml`,
and the others have no slices. The many hosts are simulated by `crowd`: real agents, several hundred
in a process, that join a cluster without groups.
"""

import asyncio
import contextlib
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.events import added, count_events, of_cluster
from benchmarks.ground import NAME, Ground, child, cluster, cpu_seconds
from benchmarks.table import Row
from iris.client.client import AsyncIrisClient
from iris.client.connect.connection import connect
from iris.config import ClusterConfig, load_config, make_local_config
from iris.model.errors import Unreachable

EXAMPLE = Path(__file__).parents[1] / "examples" / "eu-west4.yaml"
#: The setting in the example that is replaced to get more hosts.
LEAST = "min_slices: 1"
FEW = 10
#: The agents in one process of the crowd.
PER_PROCESS = 250
#: The seconds before the window, in which the last hosts to join are observed and the cluster comes
#: to rest.
SETTLE = 30.0
JOIN_TIMEOUT = 300.0
TARGET = 100


def measure_few(*, quick: bool) -> list[Row]:
    with cluster(_europe()) as ground:
        return asyncio.run(_watch(ground, FEW, _window(quick), list(ground.agents)))


def measure_many(*, quick: bool) -> list[Row]:
    many = 100 if quick else 1_000
    with cluster(0) as ground, contextlib.ExitStack() as stack:
        directory = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="iris-crowd-", ignore_cleanup_errors=True)
        )
        where = (ground.record.address, ground.record.name, ground.record.store, directory)
        crowd = [
            stack.enter_context(
                child("benchmarks.crowd", (*where, str(first), str(min(PER_PROCESS, many - first))))
            )
            for first in range(0, many, PER_PROCESS)
        ]
        return asyncio.run(
            _watch(ground, many, _window(quick), [psutil.Process(process.pid) for process in crowd])
        )


def _europe() -> ClusterConfig:
    """Returns the example's configuration for this machine, with `FEW` hosts that always exist."""
    text = EXAMPLE.read_text()
    assert LEAST in text
    return make_local_config(load_config(text.replace(LEAST, f"min_slices: {FEW}")), NAME)


def _window(quick: bool) -> float:
    return 60.0 if quick else 240.0


async def _watch(
    ground: Ground, hosts: int, window: float, agents: list[psutil.Process]
) -> list[Row]:
    temporal = await connect(ground.record.address)
    await all_there(await ground.client(), hosts)
    await asyncio.sleep(SETTLE)
    watched = [[*ground.servers], [ground.controller], agents]
    used = [cpu_seconds(processes) for processes in watched]
    before, begun = await count_events(temporal, of_cluster(ground.record.name)), time.monotonic()
    await asyncio.sleep(window)
    after, seconds = (
        await count_events(temporal, of_cluster(ground.record.name)),
        time.monotonic() - begun,
    )
    server, controller, all_agents = (
        (cpu_seconds(processes) - was) / seconds
        for processes, was in zip(watched, used, strict=True)
    )
    await all_there(await ground.client(), hosts)
    grown = added(before, after)
    per_hour = 3600 / seconds
    return [
        Row(
            f"idle with {hosts:,} hosts, events per hour",
            sum(grown.values()) * per_hour,
            target=TARGET,
            format="{:,.0f}",
            note=(
                f"{sum(grown.values())} in {seconds:.0f} s:"
                f" {', '.join(f'{kind} {n}' for kind, n in grown.items())}; CPU: server"
                f" {server:.0%}, control plane {controller:.0%}, each agent"
                f" {all_agents / hosts:.2%} of a core"
            ),
        )
    ]


async def all_there(client: AsyncIrisClient, hosts: int) -> None:
    """Returns when the scheduler has that many hosts.

    Raises:
        TimeoutError: some do not join, or have been lost.
    """
    deadline = time.monotonic() + JOIN_TIMEOUT
    there = 0
    while there != hosts:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{there} of {hosts} hosts are in the cluster")
        with contextlib.suppress(Unreachable):  # the scheduler is busy while hosts join
            there = len(await client.hosts.list())
        await asyncio.sleep(1)
