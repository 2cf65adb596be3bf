"""A task without an image that starts processes without end: it stops at its own limit, and none of
them outlives it.
"""

import asyncio
import fcntl
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from iris.activities.host.runtimes import process_limit
from iris.activities.host.runtimes.process import cgroups
from iris.activities.host.runtimes.process_limit import MOST, most_processes
from iris.activities.host.runtimes.program import Program
from iris.activities.host.runtimes.shim import shim
from iris.model import names
from tests.activities.host.runtimes.test_process import ENV, Bench
from tests.builders import some
from tests.e2e.cluster import eventually

LIMIT = 50
#: Tries to start 200 processes, prints how many started, and ends with them.
BOMB = """
import os, signal, time
started, why = 0, "no limit"
for _ in range(200):
    try:
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        started += 1
    except OSError as error:
        why = error.strerror
print(started, why, flush=True)
signal.pause()
"""
#: Every process starts others, and goes on when it cannot: as soon as one is killed, another one
#: takes its place. Each ends by itself after 20 s. Only for a group with a limit.
REFILL = """
import os, time
until = time.monotonic() + 20
print("up", flush=True)
while time.monotonic() < until:
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        pass
"""


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    if why := cgroups.why_not():
        pytest.skip(why)
    bench = Bench(tmp_path)
    yield bench
    await bench.runtime.clear()


def members(groups: Sequence[str]) -> int:
    """How many processes a task has now."""
    (current,) = (path for group in groups if (path := Path(group, "pids.current")).exists())
    return int(current.read_text())


def of_the_attempt(key: str) -> list[int]:
    """The processes that have the attempt's key in their environment, as every process that a
    program starts.
    """
    found = []
    for process in psutil.process_iter():
        try:
            if (
                process.environ().get(names.ENV_ATTEMPT_KEY) == key
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


async def test_a_fork_bomb_stops_at_the_tasks_limit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the machine's limit, neither the agent nor an operator could start a process that ends
    it.
    """
    monkeypatch.setattr(process_limit, "MOST", LIMIT)
    program = await bench.start(sys.executable, "-c", BOMB)
    out = bench.dir / "stdout"
    await asyncio.to_thread(
        eventually, lambda: out.exists() and out.read_text().endswith("\n"), 60, 0.02
    )
    started, why = out.read_text().split(maxsplit=1)
    program.stop(timedelta())
    await asyncio.wait_for(program.wait(), 60)

    assert (int(started) < LIMIT, why) == (True, "Resource temporarily unavailable\n")
    eventually(lambda: not of_the_attempt(bench.key), 60, 0.02)


async def test_a_set_up_step_has_the_limit_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its command is the user's, and nothing limits it in time."""
    monkeypatch.setattr(process_limit, "MOST", LIMIT)
    status = await bench.step(
        sys.executable, "-c", BOMB.replace("signal.pause()", "os.killpg(0, 9)")
    )

    assert status == -9
    assert int(bench.output.read_text().split()[0]) < LIMIT


async def test_no_process_takes_the_place_of_one_that_is_killed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On many cores a bomb starts processes faster than one core kills them, while the host is
    promised to the next task.
    """
    monkeypatch.setattr(process_limit, "MOST", LIMIT)
    program = await bench.start(sys.executable, "-c", REFILL)
    await asyncio.to_thread(eventually, lambda: members(program.launch.cgroups) == LIMIT, 60, 0.02)
    program.stop(timedelta())
    ended = await asyncio.wait_for(program.wait(), 60)

    assert of_the_attempt(bench.key) == []
    assert ended.status == -9


def test_a_group_with_a_bomb_can_be_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By an agent that finds an attempt without its shim."""
    if why := cgroups.why_not():
        pytest.skip(why)
    monkeypatch.setattr(process_limit, "MOST", LIMIT)
    key = f"ada/train:0@0/{uuid4().hex}"
    made = cgroups.make(key, some(cpu=1))
    enter = f"for group in {json.dumps(made)}: open(group + '/cgroup.procs', 'w').write('0')\n"
    bomb = subprocess.Popen(
        [sys.executable, "-c", enter + REFILL],
        stdout=subprocess.DEVNULL,
        env={names.ENV_ATTEMPT_KEY: key},
    )
    eventually(lambda: members(made) == LIMIT, 60, 0.02)
    cgroups.remove(key, *made)

    assert of_the_attempt(key) == []
    assert [group for group in made if Path(group).exists()] == []
    assert bomb.wait(60) == -9


@pytest.mark.parametrize(
    ("pids", "threads", "limit"),
    [(32_768, 192_730, 8_192), (4_194_304, 1_027_000, 32_768), (4_194_304, 40_000, 10_000)],
)
def test_one_task_never_gets_more_than_a_quarter_of_the_machine(
    tmp_path: Path, pids: int, threads: int, limit: int
) -> None:
    """With the kernel's defaults on a small machine, a fixed number would be all that there is."""
    (tmp_path / "pid_max").write_text(f"{pids}\n")
    (tmp_path / "threads-max").write_text(f"{threads}\n")

    assert most_processes(tmp_path) == limit


def test_a_machine_that_does_not_tell_its_limits_has_the_usual_one(tmp_path: Path) -> None:
    """Such as one that runs no Linux."""
    assert most_processes(tmp_path) == MOST


#: Each process starts the next one and ends: a list of processes never has the one that runs. All
#: have the lock of the file that is named. Ends by itself after 40 s.
CHAIN = """
import fcntl, os, sys, time
lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(lock, fcntl.LOCK_EX)
until = time.monotonic() + 40
print("up", flush=True)
os.fork()
os.fork()
while time.monotonic() < until:
    if os.fork():
        os._exit(0)
    {escape}
"""


@pytest.mark.parametrize("escape", ["os.setsid()", "os.setpgid(0, 0)", "pass"])
async def test_a_chain_of_processes_ends_with_its_task_without_cgroups(
    tmp_path: Path, escape: str
) -> None:
    """It has no other limit: each process is gone before a search for it ends, and may leave its
    session and its group.
    """
    bench = Bench(tmp_path)
    argv = [sys.executable, "-c", CHAIN.format(escape=escape), str(tmp_path / "held")]
    launch = await bench.runtime.launch(argv, ENV, tmp_path)
    program = Program(tmp_path)
    program.start(launch.model_copy(update={"cgroups": ()}), lease=shim.now() + 60)
    await asyncio.wait_for(program.wait(), 60)

    with (tmp_path / "held").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody has it
