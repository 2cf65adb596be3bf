"""Measures a host: the preparation of a program, the delivery of its log, an agent with many tasks,
and an agent that is killed.

There is one host, which declares many cores; everything runs on this machine's real cores. Each
printed line has a number and the time, by the clock that all processes here share. So a follower's
output shows how late each line was and which lines are missing.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from zipfile import ZipFile

import psutil
from temporalio.client import Client

from benchmarks.follower import PRINTS, Follower, Lines
from benchmarks.ground import NAME, Ground, cluster, cpu_seconds
from benchmarks.latency import PAUSE, STAMP, WARM_UP
from benchmarks.table import Row
from iris.client.client import AsyncIrisClient
from iris.client.connect.clusters import cluster_dir
from iris.client.connect.connection import connect
from iris.client.jobs.submit.start import Submitted
from iris.client.logs.stored import LogReader
from iris.client.workspace.pack import pack
from iris.client.workspace.upload import upload
from iris.config import load_config, make_local_config
from iris.model import names
from iris.model.host.resources import Resources
from iris.model.job.bundles import Bundle
from iris.model.job.environments import EnvironmentSpec
from iris.model.job.spec import JobSpec
from iris.model.job.status import JobStatus
from iris.model.states import JobState
from iris.model.units import MIB
from iris.platforms.local import MACHINES, homes
from iris.storage.log_format import Stream
from iris.storage.object_store import Store
from iris.worker_agents.local.cluster import machines_dir
from iris.worker_agents.local.local_machines import LocalMachines

HOST = """
platform: {local: {}}
scale_groups:
  host: {type: local_vm, resources: {cpu: 64}, min_slices: 1, max_slices: 1}
"""
SMALL = Resources(cpu_millis=100)
#: The time limit of every wait, in seconds.
PATIENCE = 180.0
LOOK_EVERY = 0.05
#: The programs for the latency of logs: lines in a burst, seconds between bursts, and the target in
#: milliseconds. Chunks are stored a second apart, so lines that are printed more often than that
#: wait for the next chunk.
PRINTERS = {
    "a line every 1.7 s": (1, 1.7, 500.0),
    "a line every 0.3 s": (1, 0.3, 1_500.0),
    "1,000 lines per second": (10, 0.01, 1_500.0),
}


def measure(*, quick: bool) -> list[Row]:
    config = make_local_config(load_config(HOST), NAME)
    with (
        tempfile.TemporaryDirectory(prefix="iris-bench-") as directory,
        _packages(Path(directory)),
        cluster(config) as ground,
    ):
        return asyncio.run(_measure(ground, Path(directory), quick=quick))


async def _measure(ground: Ground, directory: Path, *, quick: bool) -> list[Row]:
    iris = await ground.client()
    return [
        *await _building(iris, directory, 10 if quick else 50),
        *await _latency(iris, directory, 10 if quick else 30),
        *await _throughput(iris, directory, 5 if quick else 20),
        *await _crowd(iris, 5 if quick else 20),
        *await _adoption(iris, await connect(ground.record.address), directory, 1 if quick else 5),
        *await _upload(iris, directory),
    ]


# -- the preparation of a program
# ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _packages(directory: Path) -> Iterator[None]:
    """Creates a package that a project can depend on, and makes agents get packages only from here,
    without a network.
    """
    with ZipFile(directory / "toy-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("toy.py", "")
        wheel.writestr(
            "toy-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n"
        )
        wheel.writestr(
            "toy-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr("toy-1.0.dist-info/RECORD", "")
    ways = {"UV_FIND_LINKS": str(directory), "UV_NO_INDEX": "1"}
    before = {name: os.environ.get(name) for name in ways}
    os.environ.update(ways)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


async def _building(iris: AsyncIrisClient, directory: Path, count: int) -> list[Row]:
    """Measures from submission to the time that the program prints: bare, with a workspace, and
    with its environment too.
    """
    project = directory / "project"
    project.mkdir()
    (project / "train.py").write_text("import toy\n")
    (project / "pyproject.toml").write_text(
        '[project]\nname = "bench"\nversion = "1.0"\nrequires-python = ">=3.11"\ndependencies ='
        ' ["toy"]\n'
    )
    bundle, _, _ = await _send(iris, project)
    bare = JobSpec(user="bench", name="bare", command=STAMP, resources=SMALL)
    files = bare.model_copy(update={"bundle": bundle, "environment": EnvironmentSpec(sync=False)})
    whole = bare.model_copy(update={"bundle": bundle})
    cold = await _start(iris, whole)
    took: dict[str, list[float]] = {"bare": [], "files": [], "whole": []}
    for _ in range(WARM_UP + count):
        for name, spec in (("bare", bare), ("files", files), ("whole", whole)):
            took[name].append(await _start(iris, spec))
            await asyncio.sleep(PAUSE)
    without, with_files, with_all = (times[WARM_UP:] for times in took.values())
    more = median(ours - theirs for ours, theirs in zip(with_all, without, strict=True))
    p95 = f"p95 {_p95(with_all):.0f}, bare {_p95(without):.0f}"
    return [
        Row(
            "p50 submit → program, workspace and environment, ms (floor: bare)",
            median(with_all),
            median(without),
            note=p95,
        ),
        Row("the same without the environment, ms", median(with_files), median(without)),
        Row(
            "BUILDING with everything cached, ms",
            more,
            target=100.0,
            note=f"median of {count} differences; uncached start {cold:.0f}",
        ),
    ]


async def _start(iris: AsyncIrisClient, spec: JobSpec) -> float:
    """Returns the milliseconds from submission to the time that the program prints."""
    begun = time.time_ns()
    submitted = await iris.jobs.submit(_named(spec))
    await _succeeds(iris, submitted)
    reader = LogReader(
        Store(iris.record.store), submitted.id, submitted.run_id, streams={Stream.STDOUT}
    )
    (stamp,) = [int(line.line.data) async for lines in reader.new_lines() for line in lines]
    return (stamp - begun) / 1e6


async def _send(iris: AsyncIrisClient, directory: Path) -> tuple[Bundle, float, int]:
    """Uploads the workspace; returns its bundle, the seconds that this took, and the bytes sent."""
    sent, begun = 0, time.perf_counter()

    def progress(done: int, _: int) -> None:
        nonlocal sent
        sent = done

    with await asyncio.to_thread(pack, directory) as packed:
        bundle = await upload(Store(iris.record.store), packed, progress)
    return bundle, time.perf_counter() - begun, sent


async def _upload(iris: AsyncIrisClient, directory: Path) -> list[Row]:
    """Measures the upload of a workspace of 500 files that do not compress."""
    workspace = directory / "workspace"
    workspace.mkdir()
    for number in range(500):
        (workspace / f"{number}.bin").write_bytes(os.urandom(MIB // 10))
    _, first, sent = await _send(iris, workspace)
    same, changed = [], []
    for number in range(3):
        same.append((await _send(iris, workspace))[1:])
        (workspace / f"{number}.bin").write_bytes(os.urandom(MIB // 10))
        changed.append((await _send(iris, workspace))[1:])
    again = sum(bytes_sent for _, bytes_sent in same) / MIB
    seconds, more = (
        median(took for took, _ in changed),
        max(bytes_sent for _, bytes_sent in changed) / MIB,
    )
    looked = f"after {median(took for took, _ in same):.2f} s: packed for the comparison"
    return [
        Row(
            "50 MiB workspace, first time, s",
            first,
            format="{:.2f}",
            note=f"{sent / MIB:.0f} MiB sent",
        ),
        Row("50 MiB workspace, unchanged, MiB sent", again, target=0.0, note=looked),
        Row(
            "50 MiB workspace, one file changed, s",
            seconds,
            target=5.0,
            format="{:.2f}",
            note=f"{more:.0f} MiB sent",
        ),
    ]


# -- the log of a program
# --------------------------------------------------------------------------------------------------


async def _latency(iris: AsyncIrisClient, directory: Path, seconds: int) -> list[Row]:
    rows = []
    for what, (lines, pause, target) in PRINTERS.items():
        shown = await _followed(iris, directory, 1, lines, pause, int(seconds / pause))
        note = f"p95 {shown.p(95):.0f}, maximum {max(shown.late):.0f}; of {len(shown.late):,} lines"
        rows.append(
            Row(
                f"p50 print → `iris logs -f`, {what}, ms",
                shown.p(50),
                target=target,
                format="{:.0f}",
                note=note,
            )
        )
    return rows


async def _throughput(iris: AsyncIrisClient, directory: Path, seconds: int) -> list[Row]:
    """Measures 10,000 lines a second from four tasks, on the same cores as the programs that print
    and read them.
    """
    agent = _agent()
    before, used = agent.memory_info().rss, cpu_seconds([agent])
    with _most_memory(agent) as most:
        shown = await _followed(iris, directory, 4, 25, 0.01, 100 * seconds)
    per_line = 1e6 * (cpu_seconds([agent]) - used) / (10_000 * seconds)
    late = f"p50 {shown.p(50):.0f} ms, p95 {shown.p(95):.0f} ms from print to `iris logs -f`"
    return [
        Row(
            "10,000 lines per second from 4 tasks: lines missing or shown twice",
            shown.wrong,
            target=0.0,
            format="{:.0f}",
        ),
        Row("lines per second, achieved", shown.rate, format="{:,.0f}", note=f"for {seconds} s"),
        Row("last line printed → shown, s", shown.behind, target=5.0, note=late),
        Row("agent CPU, µs per line", per_line),
        Row("agent RSS, maximum, MiB (floor: just before)", most() / MIB, before / MIB, target=2.0),
    ]


async def _followed(
    iris: AsyncIrisClient, directory: Path, tasks: int, lines: int, pause: float, bursts: int
) -> Lines:
    counts = Path(tempfile.mkdtemp(dir=directory))
    submitted = await iris.jobs.submit(_prints(counts, tasks, lines, pause, bursts))
    follower = Follower(submitted.id)
    await _succeeds(iris, submitted)
    return await asyncio.to_thread(follower.lines, counts)


def _prints(counts: Path, tasks: int, lines: int, pause: float, bursts: int) -> JobSpec:
    command = (sys.executable, "-c", PRINTS, str(counts), str(lines), str(pause), str(bursts))
    return _named(
        JobSpec(user="bench", name="prints", command=command, replicas=tasks, resources=SMALL)
    )


# -- the agent
# --------------------------------------------------------------------------------------------------


async def _crowd(iris: AsyncIrisClient, window: float) -> list[Row]:
    """Measures what an agent needs for 100 programs that do nothing."""
    agent, tasks = _agent(), 100
    (idle,), before = await _cpu_shares([[agent]], window), agent.memory_info().rss
    sleep = JobSpec(
        user="bench", name="sleep", command=("sleep", "86400"), replicas=tasks, resources=SMALL
    )
    submitted = await iris.jobs.submit(_named(sleep))
    await _until(lambda: len(_started()) == tasks, "100 tasks run")
    await asyncio.sleep(window / 2)  # until all tasks are reported as running
    shims = [shim for fork_server in agent.children() for shim in fork_server.children()]
    (busy, theirs), after = await _cpu_shares([[agent], shims], window), agent.memory_info().rss
    memory = [shim.memory_full_info() for shim in shims]
    await iris.jobs.cancel(submitted.id)
    await iris.jobs.wait_until_ended(submitted.id, submitted.run_id)
    rss, pss = sum(each.rss for each in memory) / MIB, sum(each.pss for each in memory) / MIB
    unshared = f"{pss / len(shims):.1f} each; RSS, which counts shared memory for each: {rss:,.0f}"
    used = f"without tasks {100 * idle:.1f}; all shims {100 * theirs:.1f}"
    return [
        Row(
            "agent RSS with 100 tasks, MiB (floor: without tasks, just before)",
            after / MIB,
            before / MIB,
            target=2.0,
        ),
        Row(f"memory (PSS) of {len(shims)} shims, MiB", pss, note=unshared),
        Row("agent CPU with 100 quiet tasks, % of a core", 100 * busy, target=30.0, note=used),
    ]


async def _adoption(
    iris: AsyncIrisClient, temporal: Client, directory: Path, rounds: int
) -> list[Row]:
    """Measures the time from `kill -9` of an agent with 20 programs until the server has a
    heartbeat of each again.
    """
    tasks = 20
    counts = Path(tempfile.mkdtemp(dir=directory))
    submitted = await iris.jobs.submit(_prints(counts, tasks, 1, 0.1, 1_000_000))
    follower = Follower(submitted.id)
    await _until(lambda: len(_started()) == tasks, "20 tasks run")
    took = []
    for _ in range(rounds):
        # An agent that dies within ten seconds is restarted with a growing delay.
        await asyncio.sleep(12)
        agent, killed = _agent(), datetime.now(UTC)
        os.kill(agent.pid, signal.SIGKILL)
        await asyncio.gather(
            *(_wait_for_heartbeat(temporal, submitted.id, index, killed) for index in range(tasks))
        )
        took.append((datetime.now(UTC) - killed).total_seconds())
        await _until(partial(_replaced, agent.pid), "another agent runs")
    (counts / "stop").touch()
    status = await _succeeds(iris, submitted)
    shown = await asyncio.to_thread(follower.lines, counts)
    again = sum(task.attempt > 1 for task in status.tasks)
    late = (
        f"p50 {shown.p(50):.0f} ms, p95 {shown.p(95):.0f} ms, maximum {max(shown.late) / 1e3:.1f} s"
        " from print to show"
    )
    times = " ".join(f"{seconds:.1f}" for seconds in took)
    return [
        Row(
            "agent killed with 20 tasks → a heartbeat of each, s",
            median(took),
            target=10.0,
            note=times,
        ),
        Row(
            "their lines: missing or shown twice",
            shown.wrong,
            target=0.0,
            format="{:.0f}",
            note=late,
        ),
        Row("their attempts after the first", again, target=0.0, format="{:.0f}"),
    ]


async def _wait_for_heartbeat(temporal: Client, job: str, index: int, since: datetime) -> None:
    """Returns when the server has received a heartbeat of the task after that time."""
    handle = temporal.get_workflow_handle(names.task_workflow(NAME, names.task_id(job, index)))
    async with asyncio.timeout(PATIENCE):
        while True:
            pending = (await handle.describe()).raw_description.pending_activities
            if any(activity.last_heartbeat_time.ToDatetime(UTC) > since for activity in pending):
                return
            await asyncio.sleep(5 * LOOK_EVERY)


# -- helpers
# --------------------------------------------------------------------------------------------------


def _agent() -> psutil.Process:
    """Returns the process of the host's current agent."""
    (home,) = homes(machines_dir(cluster_dir(NAME)))
    (agent,) = LocalMachines.model_validate_json((home / MACHINES).read_bytes()).agents.values()
    return psutil.Process(agent.pid)


def _replaced(pid: int) -> bool:
    return _agent().pid != pid


def _started() -> list[Path]:
    return list(machines_dir(cluster_dir(NAME)).glob("*/hosts/*/attempts/*/started.json"))


def _named(spec: JobSpec) -> JobSpec:
    return spec.model_copy(update={"name": f"{spec.name}-{secrets.token_hex(4)}"})


def _p95(times: list[float]) -> float:
    return sorted(times)[len(times) * 95 // 100]


async def _succeeds(iris: AsyncIrisClient, submitted: Submitted) -> JobStatus:
    await iris.jobs.wait_until_ended(submitted.id, submitted.run_id)
    status = await iris.jobs.final_status(submitted.id, submitted.run_id)
    assert status.state is JobState.SUCCEEDED, status.reason
    return status


async def _until(look: Callable[[], bool], what: str) -> None:
    """Returns when `look` returns true.

    Raises:
        TimeoutError: it does not within `PATIENCE`.
    """
    deadline = time.monotonic() + PATIENCE
    while not look():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE:g} s: {what}")
        await asyncio.sleep(LOOK_EVERY)


async def _cpu_shares(groups: list[list[psutil.Process]], window: float) -> list[float]:
    """Returns the share of a core that each group uses, over a window in seconds."""
    used, begun = [cpu_seconds(group) for group in groups], time.monotonic()
    await asyncio.sleep(window)
    seconds = time.monotonic() - begun
    return [
        (cpu_seconds(group) - before) / seconds for group, before in zip(groups, used, strict=True)
    ]


@contextlib.contextmanager
def _most_memory(process: psutil.Process) -> Iterator[Callable[[], int]]:
    """Samples the process's resident memory during the context; yields a function that returns the
    largest sample.
    """
    most, over = 0, threading.Event()

    def look() -> None:
        nonlocal most
        while not over.wait(LOOK_EVERY):
            most = max(most, process.memory_info().rss)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield lambda: most
    finally:
        over.set()
        looking.join()
