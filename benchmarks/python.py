"""Measures the Python client: its submissions, its import, and the time until a new program has its
first result.

Each side submits in a loop, one after the other. The cluster places nothing until the last job is
submitted, because the programs would run on the same cores; the floor's workflows do run. The sides
take turns in changing order; a ratio is the median of the ratios of neighbouring rounds.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from statistics import median

from benchmarks import floor
from benchmarks.ground import NAME, beside_floor
from benchmarks.table import Row
from iris.client.client import AsyncIrisClient
from iris.client.connect.connection import connect
from iris.model import names

One = Callable[[int], Awaitable[Callable[[], Awaitable[object]]]]

FIRST_RESULT = """
import iris
with iris.IrisClient.local() as client:
    print(client.submit(abs, -42).result(), flush=True)
"""
#: The floor, what a user writes first, and what the first call needs.
IMPORTS = (
    "import temporalio.client",
    "import iris",
    "import iris; iris.IrisClient; iris.Resources",
)
IMPORT_ROUNDS = 15


def measure(*, quick: bool) -> list[Row]:
    with beside_floor() as ground:
        rows = asyncio.run(_submissions(ground.record.address, *((100, 2) if quick else (500, 3))))
    return [*rows, *_imports(), _first_result(3 if quick else 7)]


async def _submissions(address: str, jobs: int, rounds: int) -> list[Row]:
    iris, temporal = await AsyncIrisClient.connect(NAME), await connect(address)
    number = iter(range(1_000_000))

    async def bare(_: int) -> Callable[[], Awaitable[object]]:
        return (await floor.start(temporal, f"python-{next(number)}")).result

    async def program(_: int) -> Callable[[], Awaitable[object]]:
        return (await iris.submit("true", workspace=False)).wait

    async def function(each: int) -> Callable[[], Awaitable[object]]:
        return (await iris.submit(abs, -each, workspace=False)).wait

    sides = {"floor": bare, "program": program, "function": function}
    taken: dict[str, list[float]] = {side: [] for side in sides}
    cpu: dict[str, list[float]] = {side: [] for side in sides}
    await asyncio.gather(*[(await one(number))() for one in sides.values() for number in range(20)])
    for turn in range(rounds):
        for side in list(sides) if turn % 2 == 0 else list(sides)[::-1]:
            await iris.cluster.pause("submissions are measured")
            begun, own = time.perf_counter(), time.process_time()
            ends = [await sides[side](number) for number in range(jobs)]
            taken[side].append((time.perf_counter() - begun) / jobs)
            cpu[side].append((time.process_time() - own) / jobs)
            await iris.cluster.resume()
            await asyncio.gather(*(end() for end in ends))
    return [
        Row(
            f"submit a {side}, {what}",
            1000 * median(of[side]),
            1000 * median(of["floor"]),
            ratio=median(ours / theirs for ours, theirs in zip(of[side], of["floor"], strict=True)),
            format="{:.2f}",
            note=f"{rounds} rounds of {jobs} in a loop; floor: start_workflow",
        )
        for what, of in (("ms", taken), ("CPU ms of the program", cpu))
        for side in ("program", "function")
    ]


def _imports() -> list[Row]:
    """Returns the CPU time of the imports, that of Python's own start included."""
    taken: dict[str, list[float]] = {code: [] for code in IMPORTS}
    for _ in range(IMPORT_ROUNDS):
        for code in IMPORTS:
            process = subprocess.Popen([sys.executable, "-c", code])
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            assert process.returncode == 0
            taken[code].append(used.ru_utime + used.ru_stime)
    theirs = median(taken[IMPORTS[0]])
    note = "floor: import temporalio.client"
    return [
        Row(f"`{code}`, CPU s", median(taken[code]), theirs, format="{:.3f}", note=note)
        for code in IMPORTS[1:]
    ]


def _first_result(times: int) -> Row:
    """Returns the time from the start of an interpreter to the result of a function on the cluster
    that it starts.
    """
    taken, whole = [], []
    for _ in range(times):
        with tempfile.TemporaryDirectory(prefix="iris-bench-") as directory:
            begun = time.perf_counter()
            with subprocess.Popen(
                [sys.executable, "-c", FIRST_RESULT],
                env={**os.environ, names.ENV_STATE_DIR: directory},
                cwd=directory,
                stdout=subprocess.PIPE,
            ) as process:
                assert process.stdout is not None
                assert process.stdout.readline() == b"42\n"
                taken.append(time.perf_counter() - begun)
            whole.append(time.perf_counter() - begun)
    note = (
        f"{min(taken):.2f} to {max(taken):.2f}; until the program has ended with its cluster:"
        f" {median(whole):.2f}"
    )
    return Row(
        "`IrisClient.local()` from a new interpreter to its first result, s",
        median(taken),
        format="{:.2f}",
        note=note,
    )
