"""Measures throughput and the cost of a job: many trivial jobs, of which a fixed number are in
progress at the same time. There are two loads: there is room for all of them, or the cluster is
full, so that two run and the others wait. In the second load, the floor's activity worker also runs
two activities at a time.

The same code drives both sides: start, wait for the result. Iris and the floor take turns, in
changing order. The results are medians, and a ratio is the median of the ratios of neighbouring
rounds, because other load may share the machine's cores. Server CPU is that of the server's process
from the start of a round until a second after its end, when the server has done the work that it
deferred. Events are those of all workflows of a side, with those of the scheduler and the
autoscaler.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from statistics import median

from benchmarks import floor
from benchmarks.events import FLOOR, added, count_events, of_cluster
from benchmarks.ground import Ground, beside_floor, cpu_seconds, official_beside_floor
from benchmarks.table import Row
from iris.client.client import AsyncIrisClient
from iris.client.connect.connection import connect
from iris.model.job.spec import JobSpec

#: The jobs in progress.
CONCURRENCY = 32
SETTLE = 1.0
#: The most jobs that a full cluster runs at the same time.
FULL_AT_ONCE = 2

One = Callable[[str], Awaitable[None]]


@dataclass(frozen=True)
class Round:
    """The jobs per second, and the CPU milliseconds per job of the server, of the workflow worker
    and of what runs the jobs.
    """

    rate: float
    server: float
    workflows: float
    jobs: float


@dataclass(frozen=True)
class Load:
    """One of the two loads, and its targets.

    Args:
        cores: how many cores the host offers. Each job takes one.
        at_once: the most activities that the floor runs at the same time; None for no limit.
    """

    name: str
    cores: int
    at_once: int | None
    rate: float
    events: float
    server: float


ROOM = Load("room for all", CONCURRENCY, None, rate=0.70, events=13.5, server=1.35)
FULL = Load("full cluster", FULL_AT_ONCE, FULL_AT_ONCE, rate=0.70, events=20, server=1.5)


def measure(*, quick: bool) -> list[Row]:
    return _measure(beside_floor, ROOM, quick)


def measure_full(*, quick: bool) -> list[Row]:
    return _measure(beside_floor, FULL, quick)


def measure_official(*, quick: bool) -> list[Row]:
    return _measure(official_beside_floor, ROOM, quick)


def measure_full_official(*, quick: bool) -> list[Row]:
    return _measure(official_beside_floor, FULL, quick)


def _measure(
    on: Callable[..., AbstractContextManager[Ground]], load: Load, quick: bool
) -> list[Row]:
    with on(cores=load.cores, at_once=load.at_once) as ground:
        return asyncio.run(_take_turns(ground, load, quick))


async def _take_turns(ground: Ground, load: Load, quick: bool) -> list[Row]:
    jobs, rounds = (100, 3) if quick else (300, 7)
    iris = await ground.client()
    temporal = await connect(ground.record.address)

    async def bare(name: str) -> None:
        await (await floor.start(temporal, name)).result()

    sides: dict[str, tuple[One, str]] = {
        "floor": (bare, FLOOR),
        "iris": (job(iris), of_cluster(ground.record.name)),
    }
    for one, _ in sides.values():
        await drive(one, 2 * CONCURRENCY)
    before = {side: await count_events(temporal, query) for side, (_, query) in sides.items()}
    results: dict[str, list[Round]] = {"floor": [], "iris": []}
    for number in range(rounds):
        for side in ("floor", "iris") if number % 2 == 0 else ("iris", "floor"):
            results[side].append(await take_round(ground, side, sides[side][0], jobs))
    grown = {
        side: added(before[side], await count_events(temporal, query))
        for side, (_, query) in sides.items()
    }
    return _rows(load, results, grown, jobs)


def _rows(
    load: Load, results: dict[str, list[Round]], grown: dict[str, dict[str, int]], jobs: int
) -> list[Row]:
    pairs = list(zip(results["iris"], results["floor"], strict=True))

    def row(
        what: str,
        of: Callable[[Round], float],
        target: float | None = None,
        *,
        note: str = "",
        at_least: bool = False,
    ) -> Row:
        iris, bare = ([of(one) for one in results[side]] for side in ("iris", "floor"))
        ratio = median(of(ours) / of(theirs) for ours, theirs in pairs)
        named = f"{load.name}: {what}"
        return Row(named, median(iris), median(bare), target, at_least, ratio, note=note)

    done = jobs * len(pairs)
    others = ", ".join(f"{kind} {count / done:.2f}" for kind, count in grown["iris"].items())
    rates = " ".join(f"{ours.rate:.0f}/{theirs.rate:.0f}" for ours, theirs in pairs)
    note = f"{jobs} jobs, {CONCURRENCY} in progress; rounds: {rates}"
    iris, bare = (sum(grown[side].values()) / done for side in ("iris", "floor"))
    return [
        row("jobs per second", lambda one: one.rate, load.rate, note=note, at_least=True),
        row("server CPU, ms per job", lambda one: one.server, load.server),
        row(
            "control plane CPU, ms per job",
            lambda one: one.workflows,
            note="floor: its workflow worker",
        ),
        row(
            "agent CPU, ms per job",
            lambda one: one.jobs,
            note="with the programs it runs; floor: its activity worker",
        ),
        Row(
            f"{load.name}: history events per job",
            iris,
            target=load.events,
            format="{:.2f}",
            note=f"{others}; floor {bare:.2f}",
        ),
    ]


def job(client: AsyncIrisClient, user: str = "bench") -> One:
    """Returns what submits one job of the user and waits for its end."""

    async def one(name: str) -> None:
        submitted = await client.jobs.submit(JobSpec(user=user, name=name, command=("true",)))
        await client.jobs.wait_until_ended(submitted.id, submitted.run_id)

    return one


async def take_round(ground: Ground, side: str, one: One, jobs: int) -> Round:
    """Runs this number of jobs of one side."""
    workflows, runs = (
        ((ground.floor[0],), (ground.floor[1],))
        if side == "floor"
        else ((ground.controller,), ground.agents)
    )

    def spent() -> tuple[float, float, float]:
        return ground.server_seconds(), cpu_seconds(workflows), cpu_seconds(runs, children=True)

    before = spent()
    begun = time.perf_counter()
    await drive(one, jobs)
    seconds = time.perf_counter() - begun
    await asyncio.sleep(SETTLE)
    server, workflow, job = (
        1000 * (after - was) / jobs for was, after in zip(before, spent(), strict=True)
    )
    return Round(jobs / seconds, server, workflow, job)


async def drive(one: One, jobs: int) -> None:
    """Runs this number of jobs, at most `CONCURRENCY` at once."""
    prefix = f"load-{secrets.token_hex(4)}"
    numbers = iter(range(jobs))

    async def work() -> None:
        with contextlib.suppress(StopIteration):
            while True:
                await one(f"{prefix}-{next(numbers)}")

    await asyncio.gather(*(work() for _ in range(CONCURRENCY)))
