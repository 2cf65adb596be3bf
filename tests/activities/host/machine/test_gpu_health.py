"""The agent's watch over the GPUs of its host, with a stand-in for `nvidia-smi` and a file as the
kernel's log.
"""

import asyncio
import os
from collections.abc import Iterator
from datetime import timedelta
from io import FileIO
from pathlib import Path

import pytest

from iris.activities.host.machine.gpu_health import GpuHealth
from iris.activities.host.machine.gpus import read_gpu_use, read_gpus
from iris.model.host.gpus import GpuUse, Reading, parse_gpus, start_fault
from iris.model.host.resources import parse_device
from iris.model.units import MIB
from tests.fakes.nvidia_smi import FakeNvidiaSmi

TWO = parse_gpus("0, GPU-a, NVIDIA H100 80GB HBM3, 81559\n1, GPU-b, NVIDIA H100 80GB HBM3, 81559\n")
FELL = "6,1,2,-;NVRM: Xid (PCI:0000:2b:00): 79, pid='<unknown>', GPU has fallen off the bus.\n"
#: After a kill, a process of it keeps its output open until `gate` is closed: it stands for a
#: hanging driver.
UNENDING = """\
#!/bin/sh
cd "$(dirname "$0")"
echo >> calls
cat gate &
wait
"""


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvidiaSmi:
    fake = FakeNvidiaSmi(tmp_path / "smi")
    fake.lists("GPU-a", "GPU-b")
    monkeypatch.setenv("PATH", fake.path)
    return fake


async def test_a_lost_gpu_is_a_fault_until_it_is_back(smi: FakeNvidiaSmi) -> None:
    """The host takes tasks again by itself after a repair that needs no restart."""
    health = GpuHealth(TWO)
    found = [await health.check()]
    smi.loses_one()
    found.append(await health.check())
    smi.lists("GPU-b", "GPU-a")
    found.append(await health.check())

    assert [fault[:16] for fault in found] == ["", "nvidia-smi repor", ""]


async def test_a_program_that_hangs_is_a_fault(smi: FakeNvidiaSmi) -> None:
    """It waits for a GPU that does not answer, and no task must be placed there meanwhile."""
    smi.hangs()

    assert (
        await GpuHealth(TWO, patience=timedelta(seconds=0.2)).check()
        == "nvidia-smi has not answered within 0 s"
    )


@pytest.fixture
def gate(smi: FakeNvidiaSmi) -> Iterator[FileIO]:
    """The only writer of `gate`: its readers go on when this is closed."""
    os.mkfifo(smi.directory / "gate")
    with (smi.directory / "gate").open("r+b", buffering=0) as opened:
        yield opened


async def test_a_killed_program_that_does_not_end_is_not_started_again(
    smi: FakeNvidiaSmi, gate: FileIO
) -> None:
    """The driver hung for hours. Each check left one more process, until the agent had no
    descriptors left.
    """
    program = smi.directory / "nvidia-smi"
    answers = program.read_text()
    program.write_text(UNENDING)
    hangs = Reading(problem="nvidia-smi does not end after it was killed; restart the machine")
    for patience in (timedelta(seconds=0.1 * 2**number) for number in range(8)):
        await read_gpus(patience)  # on a busy machine it may be killed before it has begun to hang
        if await read_gpus(timedelta(seconds=0.1)) == hangs:
            break
    calls = (smi.directory / "calls").read_text()
    readings = [await read_gpus(timedelta(seconds=0.1)) for _ in range(2)]

    assert readings == [hangs] * 2
    assert (smi.directory / "calls").read_text() == calls
    program.write_text(answers)
    gate.close()
    assert await GpuHealth(TWO).check() == ""


async def test_a_host_without_gpus_is_not_checked(smi: FakeNvidiaSmi) -> None:
    """Most machines have no driver."""
    smi.fails()

    assert await GpuHealth().check() == ""


async def test_a_message_in_the_kernels_log_lasts_as_long_as_the_incarnation(
    smi: FakeNvidiaSmi, tmp_path: Path
) -> None:
    """The driver lists a GPU whose memory is defective as before. Messages from before the start
    belong to earlier repairs.
    """
    log, kept = tmp_path / "kmsg", list[str]()
    log.write_text(FELL)
    health = GpuHealth(TWO, kernel_log=log, on_lasting=kept.append)
    before = await health.check()
    with log.open("a") as more:
        more.write("6,3,4,-;NVRM: Xid (PCI:0000:03:00): 31, pid=7, MMU Fault\n" + FELL)
    faults = [await health.check(), await health.check()]
    health.close()

    assert before == ""
    assert faults == ["Xid 79 of the GPU at 0000:2b:00: the GPU has fallen off the bus"] * 2
    assert kept == faults[:1]
    assert GpuHealth(TWO, lasting=kept[0], kernel_log=log).fault == kept[0]


async def test_changes_are_reported_once_each(smi: FakeNvidiaSmi) -> None:
    """Also one that a task's failure has brought to light between two regular checks."""
    health, reported = GpuHealth(TWO), asyncio.Queue[str]()

    async def report() -> None:
        reported.put_nowait(health.fault)

    watch = asyncio.create_task(health.watch(timedelta(hours=1), report))
    smi.loses_one()
    await asyncio.gather(health.check(), health.check())
    first = await reported.get()
    smi.lists("GPU-a", "GPU-b")
    await health.check()
    second = await reported.get()
    watch.cancel()

    assert (bool(first), second, reported.empty()) == (True, "", True)


async def test_gpus_that_were_missing_at_the_start_can_be_offered_when_they_are_there(
    smi: FakeNvidiaSmi,
) -> None:
    """An agent may start before the driver. A new incarnation then offers what an old one
    cannot.
    """
    device = parse_device("gpu:H100:2")
    health = GpuHealth(incomplete=(start_fault(Reading(TWO[:1]), device), device))
    smi.lists("GPU-a")
    await health.check()
    before = (health.fault, health.completed)
    smi.lists("GPU-a", "GPU-b")
    await health.check()

    assert before == ("has 1 of 2 H100", False)
    assert health.completed


async def test_the_use_of_each_gpu_is_read_if_the_driver_knows_it(smi: FakeNvidiaSmi) -> None:
    """A GPU in MIG mode has none, and a driver that fails or hangs says nothing at all."""
    smi.uses(85, "[N/A]", memory=61_000)
    assert await read_gpu_use() == {"GPU-a": GpuUse(85.0, 61_000 * MIB, 81_559 * MIB)}
    smi.uses(0, 100)
    uses = await read_gpu_use()
    assert [(use.percent, use.in_use) for use in uses.values()] == [(0.0, False), (100.0, True)]

    smi.hangs()
    assert await read_gpu_use(timedelta(seconds=0.2)) == {}
