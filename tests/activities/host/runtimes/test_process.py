"""Commands as plain processes of the host: steps of the set-up, and what a shim is given to
start.
"""

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from iris.activities.host.runtimes.base import JobFault
from iris.activities.host.runtimes.process import cgroups
from iris.activities.host.runtimes.process.runtime import ProcessRuntime
from iris.activities.host.runtimes.program import Exit, Program
from iris.activities.host.runtimes.shim import shim
from iris.model.units import GIB, MIB
from tests.activities.host.runtimes.test_cgroups import groups_left
from tests.builders import some
from tests.e2e.cluster import alive, eventually

ENV = {"PATH": "/usr/bin:/bin"}
#: Starts a child in a session of its own, says who they are, and stays.
FAMILY = """
import os, subprocess, time
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
print(os.getpid(), child.pid, flush=True)
time.sleep(1000)
"""


class Bench:
    """One attempt, with its directory."""

    def __init__(self, directory: Path, memory: float = 0) -> None:
        self.dir = directory
        # whatever has it is killed: no other test, nor another run of this one
        self.key = f"ada/train:0@1/{uuid4().hex}"
        self.runtime = ProcessRuntime(self.key, directory, some(cpu=1, memory=memory))
        self.output = directory / "build"

    async def step(self, *argv: str) -> int:
        return await self.runtime.step(argv, ENV, self.dir, self.output)

    async def start(self, *argv: str) -> Program:
        launch = await self.runtime.launch(argv, ENV, self.dir)
        program = Program(self.dir)
        program.start(launch, lease=shim.now() + 60)
        return program

    async def run(self, *argv: str) -> Exit:
        return await asyncio.wait_for((await self.start(*argv)).wait(), 60)

    async def said(self, name: str) -> list[int]:
        """The numbers in the line that a command has printed, once it has."""
        file = self.dir / name
        await asyncio.to_thread(
            eventually, lambda: file.exists() and file.read_text().endswith("\n"), 20, 0.02
        )
        return [int(word) for word in file.read_text().split()]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def dead(pids: list[int]) -> bool:
    eventually(lambda: not any(alive(pid) for pid in pids), 60, 0.02)
    return True


# -- steps of the set-up
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", -15)]
)
async def test_a_step_comes_to_its_exit_code_or_minus_the_signal(
    bench: Bench, script: str, status: int
) -> None:
    """Users are told what their set-up did, so the two must not be mixed up."""
    assert await bench.step("/bin/sh", "-c", script) == status


async def test_what_steps_print_stands_one_after_the_other_in_one_file(bench: Bench) -> None:
    """Both streams: it is the log of the set-up."""
    await bench.step("/bin/sh", "-c", "echo one; echo two >&2")
    await bench.step("/bin/sh", "-c", "echo three; cat")

    assert bench.output.read_text() == "one\ntwo\nthree\n"


async def test_a_step_gets_the_environment_it_is_given_and_the_attempts_key(bench: Bench) -> None:
    """Nothing of the agent's; and by the key everything that belongs to an attempt can be found."""
    await bench.step(
        sys.executable, "-c", "import os; print(sorted(set(os.environ) - {'LC_CTYPE'}))"
    )

    assert bench.output.read_text() == "['IRIS_ATTEMPT_KEY', 'PATH']\n"


@pytest.mark.parametrize(
    ("command", "exit_code", "says"),
    [
        (["no-such-program"], 127, "there is no program 'no-such-program' on this host"),
        (["./notes.txt"], 126, "is not executable"),
        (["/bin/echo", "x" * 3_000_000], 126, "could not be started"),
        (["/bin/echo", "\0"], 126, "could not be started"),
    ],
)
async def test_a_step_that_cannot_start_says_why_with_the_shells_code(
    bench: Bench, command: list[str], exit_code: int, says: str
) -> None:
    """These are the user's to fix, and the codes are those that every shell uses."""
    (bench.dir / "notes.txt").write_text("no program")
    with pytest.raises(JobFault, match=says) as caught:
        await bench.step(*command)

    assert caught.value.exit_code == exit_code


async def test_a_step_that_is_cancelled_dies_with_all_that_it_has_started(bench: Bench) -> None:
    """Also what has gone into a session of its own: the job was cancelled, and its host is given to
    the next.
    """
    step = asyncio.create_task(bench.step(sys.executable, "-c", FAMILY))
    pids = await bench.said("build")
    step.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await step

    assert len(pids) == 2
    assert dead(pids)


# -- the program
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("directory", ["gone", "x" * 300, "file/below", "nul\0"])
async def test_a_missing_working_directory_is_named(bench: Bench, directory: str) -> None:
    """Otherwise it would look as if the program were missing."""
    (bench.dir / "file").touch()
    with pytest.raises(JobFault, match="the working directory") as caught:
        await bench.runtime.launch(["/bin/true"], ENV, bench.dir / directory)

    assert caught.value.exit_code == 126
    assert groups_left(bench.runtime) == []


async def test_a_program_runs_where_and_with_what_it_was_given(bench: Bench) -> None:
    """The two streams apart, and nothing of the agent's environment."""
    script = (
        "import os, sys; print(os.getcwd(), os.environ['IRIS_ATTEMPT_KEY']); print('oops',"
        " file=sys.stderr)"
    )
    ended = await bench.run(sys.executable, "-c", script)

    assert (ended.status, ended.error) == (0, "")
    assert (bench.dir / "stdout").read_text() == f"{bench.dir} {bench.key}\n"
    assert (bench.dir / "stderr").read_text() == "oops\n"
    await bench.runtime.clear()


async def test_a_program_that_takes_more_memory_than_it_was_promised_ran_out_of_memory(
    tmp_path: Path,
) -> None:
    """On a host that can see to it; one that cannot says so, and lets the program have it."""
    bench = Bench(tmp_path, memory=64 * MIB / GIB)
    ended = await bench.run(sys.executable, "-c", "x = bytearray(256 * 2**20); print(len(x))")
    await bench.runtime.clear()

    if cgroups.why_not():
        assert (ended.status, ended.out_of_memory) == (0, False)
    else:
        assert (ended.status, ended.out_of_memory) == (-9, True)
        assert 32 * MIB < ended.peak_memory_bytes <= 64 * MIB
    assert groups_left(bench.runtime) == []


async def test_a_program_within_its_memory_did_not_run_out_of_it(tmp_path: Path) -> None:
    """And its peak is told in bytes."""
    bench = Bench(tmp_path, memory=1)
    ended = await bench.run(sys.executable, "-c", "x = bytearray(32 * 2**20)")
    await bench.runtime.clear()

    assert (ended.status, ended.out_of_memory) == (0, False)
    assert 32 * MIB < ended.peak_memory_bytes < GIB


async def test_clearing_kills_a_program_that_another_agent_has_started_and_leaves_nothing(
    bench: Bench,
) -> None:
    """The attempt is lost, and its host is about to be given to the next."""
    program = await bench.start(sys.executable, "-c", FAMILY)
    pids = await bench.said("stdout")
    await ProcessRuntime(bench.key, bench.dir, some(cpu=1)).clear()
    await bench.runtime.clear()

    assert len(pids) == 2
    assert dead(pids)
    assert groups_left(bench.runtime) == []
    await asyncio.wait_for(program.wait(), 60)


async def test_clearing_touches_nobody_elses_processes(bench: Bench, tmp_path: Path) -> None:
    """Two attempts on one host."""
    other = Bench(tmp_path / "other")
    other.dir.mkdir()
    program = await other.start("/bin/sleep", "1000")
    await asyncio.to_thread(eventually, lambda: program.started is not None, 60, 0.02)
    await bench.runtime.clear()
    started = program.started

    assert started is not None
    assert started.pid is not None
    assert psutil.Process(started.pid).is_running()
    await other.runtime.clear()
    assert dead([started.pid])


def test_an_environment_is_made_for_a_kind_of_machine_and_of_interpreter(bench: Bench) -> None:
    """Compiled packages work on no other."""
    assert bench.runtime.identity.startswith("process linux-")
    assert os.uname().machine in bench.runtime.identity
    assert str(sys.implementation.cache_tag) in bench.runtime.identity
