"""The record of an attempt's resource use: real programs, and what is in the store afterwards."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from iris.activities.host.attempt import heartbeat, run_task, use
from iris.activities.host.attempt.lifecycle import Event
from iris.activities.host.attempt.run_task import Tasks
from iris.activities.host.attempt.use import UseRecorder
from iris.activities.host.machine.accelerators import Accelerators
from iris.activities.host.machine.usage import Use
from iris.activities.host.runtimes.cleanup.leftover_processes import AttemptFile
from iris.messages.task import RunTask
from iris.model import store_paths
from iris.model.host.gpus import GpuUse, parse_gpus
from iris.model.host.idle_gpus import IdleReport, StopIdle
from iris.model.states import TaskState
from iris.model.units import GIB, MIB
from iris.storage.object_store import Store
from iris.usage.series import Series
from tests.activities.host.attempt.test_attempt import PATIENCE, Bench, a_run, bench, dispatch
from tests.builders import a_host, some
from tests.e2e.cluster import eventually

__all__ = ["bench"]

OBJECT = store_paths.attempt_use("logs/ada/train/run/0/1")
#: Holds 100 MiB and computes until there is a file `go` in the directory of the test.
BUSY = """
import pathlib, sys
block = bytearray(100 * 1024 * 1024)
pathlib.Path(sys.argv[1], "up").write_text("up\\n")
while not pathlib.Path(sys.argv[1], "go").exists():
    sum(range(10_000))
"""


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measures and stores after a fraction of a second."""
    monkeypatch.setattr(run_task, "MEASURE_INTERVAL", timedelta(seconds=0.1))
    monkeypatch.setattr(use, "STORE_INTERVAL", timedelta(seconds=0.3))


def busy(bench: Bench, **changes: Any) -> RunTask:
    return a_run(sys.executable, "-c", BUSY, str(bench.dir), **changes)


@asynccontextmanager
async def measuring(tasks: Tasks) -> AsyncIterator[None]:
    work = asyncio.create_task(tasks.measure())
    try:
        yield
    finally:
        work.cancel()


async def until(condition: Callable[[], object]) -> None:
    await asyncio.to_thread(eventually, condition, PATIENCE, 0.02)


def stored(bench: Bench) -> Series:
    """The stored series; empty if there is none."""
    file = bench.dir / "store" / OBJECT
    return Series.model_validate_json(file.read_text()) if file.exists() else Series()


async def stored_for(bench: Bench, seconds: float) -> Series:
    """The stored series, once it covers this time."""
    await until(lambda: stored(bench).seconds >= seconds)
    return stored(bench)


async def told(bench: Bench) -> None:
    """Returns when an outcome has been reported."""
    await until(lambda: bench.server.told)


async def test_the_next_agent_continues_the_series_of_a_running_program(bench: Bench) -> None:
    """A program outlives its agents, and one chart shows all of its time."""
    first = bench.tasks()
    async with measuring(first):
        await dispatch(first, busy(bench))
        await bench.there_is("up")
        before = await stored_for(bench, 0.5)
        await first.hand_over()
    second = bench.tasks()
    async with measuring(second):
        await second.take_over()
        after = await stored_for(bench, before.seconds + 0.5)
        (bench.dir / "go").touch()
        await told(bench)
        await asyncio.gather(*second._runs.values())
    last = stored(bench)

    assert last.points[0].start == after.points[0].start == before.points[0].start
    assert last.seconds >= after.seconds > before.seconds
    cpu, memory = last.whole.cpu_percent, last.whole.memory_bytes
    assert cpu is not None
    assert memory is not None
    assert 5 < cpu.mean <= cpu.peak
    assert 100 * MIB < memory.peak < GIB
    assert 0 < memory.mean <= memory.peak


async def test_a_short_program_leaves_no_series(bench: Bench) -> None:
    """Most jobs are short, and an object for each of them would cost as much as its log."""
    tasks = bench.tasks()
    async with measuring(tasks):
        await dispatch(tasks, a_run("true"))
        await told(bench)
        await asyncio.gather(*tasks._runs.values())

    assert await bench.store.get(OBJECT) is None


class HangingStore(Store):
    """A store that never answers a write of a series."""

    async def put(self, path: str, data: bytes) -> None:
        if path == OBJECT:
            await asyncio.Event().wait()
        await super().put(path, data)


async def test_a_store_that_hangs_delays_no_outcome(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The use is for people. The job's next step does not wait for it."""
    monkeypatch.setattr(use, "LAST_STORE_TIMEOUT", timedelta(seconds=0.5))
    bench.store = HangingStore(bench.store.url)
    tasks = bench.tasks()
    async with measuring(tasks):
        await dispatch(tasks, busy(bench))
        (run,) = tasks._attempts.values()
        await until(lambda: run.use.series.points)
        (bench.dir / "go").touch()
        await told(bench)
        assert [outcome.state for outcome in bench.server.told] == [TaskState.SUCCEEDED]
        await asyncio.wait_for(asyncio.gather(*tasks._runs.values()), PATIENCE)


def recorder(
    bench: Bench, directory: Path, gpus: Sequence[str] = (), *, found: bool = False, **changes: Any
) -> tuple[UseRecorder, list[IdleReport | None]]:
    record = AttemptFile.of(a_run("true", **changes), b"token", datetime.now(UTC))
    reports: list[IdleReport | None] = []
    given = record.model_copy(update={"gpus": tuple(gpus)})
    return UseRecorder(bench.store, given, directory, reports.append, found=found), reports


async def test_the_gpus_of_an_attempt_are_measured_without_those_of_others(
    bench: Bench, tmp_path: Path
) -> None:
    """Several tasks share a machine of eight."""
    found, _ = recorder(bench, tmp_path, ["GPU-a", "GPU-b"])
    measured = {
        "GPU-a": GpuUse(80.0, 60 * GIB, 80 * GIB),
        "GPU-b": GpuUse(0.0, 4 * MIB, 80 * GIB),
        "GPU-c": GpuUse(100.0, 70 * GIB, 80 * GIB),
    }
    for _ in range(2):
        found.measured(Use(150.0, GIB, 3), measured)

    whole = found.series.whole
    assert whole.gpu_percent is not None
    assert whole.gpu_memory_bytes is not None
    assert whole.gpus_in_use is not None
    assert (whole.gpu_percent.mean, whole.gpus_in_use.peak) == (40.0, 1)
    assert whole.gpu_memory_bytes.peak == 60 * GIB + 4 * MIB
    assert found.series.gpu_memory_total == 160 * GIB
    assert (found.latest["gpu_percent"], found.latest["cpu_percent"]) == (40.0, 150.0)


@pytest.mark.parametrize("measured", [{}, {"GPU-a": GpuUse(1.0, GIB, 80 * GIB)}])
async def test_gpus_that_are_not_all_measured_are_neither_used_nor_idle(
    bench: Bench, tmp_path: Path, measured: dict[str, GpuUse]
) -> None:
    """The driver may hang, and a GPU in MIG mode has no use that it reports."""
    rule = StopIdle.model_construct(after=timedelta(0), below=5.0)
    found, reports = recorder(bench, tmp_path, ["GPU-a", "GPU-b"], stop_idle=rule)
    for _ in range(3):
        found.measured(Use(150.0, GIB, 3), measured)

    assert found.series.whole.gpu_percent is None
    assert found.series.whole.memory_bytes is not None
    assert reports == []


async def test_one_busy_gpu_keeps_all_of_a_task_from_being_idle(
    bench: Bench, tmp_path: Path
) -> None:
    """A program that computes on one of eight has a mean of a few percent."""
    rule = StopIdle.model_construct(after=timedelta(0), below=5.0)
    found, reports = recorder(bench, tmp_path, ["GPU-a", "GPU-b"], stop_idle=rule)
    idle, busy = GpuUse(1.0, GIB, 80 * GIB), GpuUse(6.0, GIB, 80 * GIB)
    found.measured(Use(), {"GPU-a": idle, "GPU-b": busy})
    assert reports == []
    for _ in range(2):
        found.measured(Use(), {"GPU-a": idle, "GPU-b": idle})
    found.measured(Use(), {"GPU-a": busy, "GPU-b": idle})

    began, ended = reports
    assert began is not None
    assert (began.peak_percent, ended) == (1.0, None)


async def test_idleness_goes_on_when_another_agent_goes_on(bench: Bench, tmp_path: Path) -> None:
    """Otherwise upgrades of the agents would keep an idle job alive."""
    idle = {"GPU-a": GpuUse(1.0, GIB, 80 * GIB)}
    one_rule = StopIdle(after=timedelta(hours=1))
    first, _ = recorder(bench, tmp_path, ["GPU-a"], stop_idle=one_rule)
    for _ in range(2):
        first.measured(Use(), idle)
    storing = asyncio.create_task(first.store_on())
    await until(lambda: (tmp_path / "use.json").exists())
    storing.cancel()
    before = datetime.now(UTC)
    short = StopIdle.model_construct(after=timedelta(0), below=5.0)
    second, reports = recorder(bench, tmp_path, ["GPU-a"], found=True, stop_idle=short)
    second.measured(Use(), idle)

    (report,) = reports
    assert report is not None
    assert report.since < before
    assert second.series == first.series


async def test_a_report_of_idleness_that_did_not_arrive_is_sent_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a service that was away for a moment would leave the job running for ever."""
    monkeypatch.setattr(heartbeat, "ANNOUNCE_AFTER", timedelta(0))
    monkeypatch.setattr(heartbeat, "ANNOUNCE_EVERY", timedelta(seconds=0.05))
    rule = StopIdle(after=timedelta(minutes=30))
    attempt = bench.attempt("sleep", "1000", stop_idle=rule)
    running = asyncio.create_task(attempt.run())
    await until(lambda: [each.state for each in bench.server.progress][-1:] == [TaskState.RUNNING])
    bench.server.deaf = 3
    report = IdleReport(since=datetime.now(UTC), peak_percent=1.0)
    attempt._gpus_are_idle(report)
    await until(lambda: bench.server.progress[-1].idle == report)

    assert bench.server.deaf == 0
    assert "30m" in bench.server.progress[-1].reason
    attempt.handle(Event.CANCEL, "the test is over")
    await asyncio.wait_for(running, PATIENCE)


@pytest.mark.parametrize(
    ("device", "taken", "expected"),
    [
        ("gpu:H100:1", ("GPU-b",), ("GPU-b",)),
        # A task that has the whole machine is given no names.
        ("gpu:H100:2", None, ("GPU-a", "GPU-b")),
        ("cpu", None, ()),
    ],
)
async def test_the_gpus_of_a_task_are_known_with_and_without_names(
    bench: Bench, device: str, taken: tuple[str, ...] | None, expected: tuple[str, ...]
) -> None:
    """A task that has all GPUs of its machine is the one that wastes most."""
    h100s = parse_gpus(
        "".join(f"{n}, GPU-{uuid}, NVIDIA H100, 81559\n" for n, uuid in enumerate("ab"))
    )
    offers = some(cpu=4, device="gpu:H100:2")
    context = replace(
        bench.tasks()._context,
        host=a_host("h1", offers),
        accelerators=Accelerators(device=offers.device, gpus=h100s),
    )
    task = a_run("true", resources=some(cpu=1, device=device))
    assert context.usable_gpus(task, taken) == expected
    simulated = replace(context, accelerators=Accelerators())
    assert simulated.usable_gpus(task, taken) == ()
