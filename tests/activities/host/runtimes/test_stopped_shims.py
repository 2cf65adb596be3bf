"""Jobs that stop their shim, as `kill -STOP $PPID` does: they end when they are to, and their host
is not free before.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from datetime import timedelta

import pytest

from iris.activities.host.attempt.attempt import Attempt
from iris.activities.host.attempt.lifecycle import Event
from iris.activities.host.runtimes import program as program_of
from iris.activities.host.runtimes.base import Launch
from iris.activities.host.runtimes.cleanup.leftover_processes import QUARANTINE, kill_on
from iris.activities.host.runtimes.process import cgroups
from iris.activities.host.runtimes.program import Program
from iris.activities.host.runtimes.shim import shim
from iris.model.rules import Contact
from iris.model.states import TaskState
from tests.activities.host.attempt.test_attempt import (
    PATIENCE,
    Bench,
    a_run,
    bench,
    dispatch,
    left_behind,
)
from tests.e2e.cluster import alive, eventually

__all__ = ["bench"]

#: Writes the numbers of its shim and of all its processes into a file, and stays. Its children are
#: in sessions of their own and do not have its environment. The shim is stopped once, again and
#: again, or as by a debugger: then no SIGCONT has it go on.
FAMILY = """
import ctypes, os, pathlib, signal, subprocess, sys, time
shim, file, again = os.getppid(), pathlib.Path(sys.argv[1]), sys.argv[2] == "again"
signal.signal(signal.SIGTERM, signal.SIG_IGN)
stops = f"while kill -STOP {shim}; do :; done; " if again else ""
stays = f"echo $$ >> {file}.pids; trap '' TERM; {stops}sleep 1000"
twice = f"setsid -f sh -c 'echo $$ >> {file}.pids; exec sleep 1000'; {stays}"
subprocess.Popen(["setsid", "-f", "/bin/sh", "-c", twice], env={})
pids = pathlib.Path(f"{file}.pids")
while not pids.exists() or len(pids.read_text().split()) < 2:
    time.sleep(0.01)
os.kill(shim, signal.SIGSTOP)
if sys.argv[2] == "as by a debugger":
    ctypes.CDLL(None).ptrace(16, shim, None, None)  # PTRACE_ATTACH
members = [shim, os.getpid(), *pathlib.Path(f"{file}.pids").read_text().split()]
pathlib.Path(f"{file}.new").write_text(" ".join(map(str, members)) + chr(10))
os.rename(f"{file}.new", file)
while True:
    time.sleep(1)
    if again:
        os.kill(shim, signal.SIGSTOP)
"""
HOW = ["once", "again", "as by a debugger"]
#: How an attempt is told to end.
ENDS: dict[str, Callable[[Attempt], None]] = {
    "cancelled": lambda attempt: attempt.handle(Event.CANCEL, "cancelled"),
    "terminated": lambda attempt: attempt.handle(
        Event.GIVEN_UP, "the server does not wait for the attempt any more"
    ),
    "its host is lost": lambda attempt: attempt.handle(Event.HOST_OVER, "its slice has ended"),
}


@pytest.fixture(autouse=True)
def soon_overdue(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent waits for a stopped shim for a moment instead of five seconds."""
    monkeypatch.setattr(program_of, "OVERDUE", 0.5)


def family(bench: Bench, how: str) -> tuple[str, ...]:
    return ("/usr/bin/env", "python3", "-c", FAMILY, str(bench.dir / "family"), how)


async def members(bench: Bench) -> list[int]:
    """All processes of the program, once its shim has been stopped.

    Not the shim: an attempt ends when the shim gives up its lock, a moment before the system shows
    that the shim is gone.
    """
    return [int(pid) for pid in (await bench.there_is("family")).split()][1:]


def left(pids: list[int]) -> list[int]:
    return [pid for pid in pids if alive(pid)]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("end", ENDS)
async def test_a_job_that_stops_its_shim_is_dead_before_anybody_hears_of_its_end(
    bench: Bench, how: str, end: str
) -> None:
    """What it holds is given to others from that moment on."""
    attempt = bench.attempt(*family(bench, how), grace=timedelta(0))
    living = asyncio.create_task(attempt.run())
    pids = await members(bench)
    assert len(pids) == 3
    living_when_told: list[list[int]] = []
    bench.server.when_told = lambda: living_when_told.append(left(pids))
    ENDS[end](attempt)
    await asyncio.wait_for(living, PATIENCE)

    assert living_when_told == ([] if end == "terminated" else [[]])
    assert left(pids) == []
    assert (bench.vacated in bench.server.signals) == (
        end == "terminated"
    )  # its host is given back


async def test_a_job_that_stops_its_shim_has_its_grace(bench: Bench) -> None:
    """Whoever stops the shim by mistake loses nothing: the program hears SIGTERM, and what it comes
    to is its own.
    """
    program = (
        f"trap 'exit 7' TERM; kill -STOP $PPID; echo up > {bench.dir / 'up'}; while :; do sleep"
        " 0.05; done"
    )
    attempt = bench.attempt("sh", "-c", program, grace=timedelta(hours=1))
    living = asyncio.create_task(attempt.run())
    await bench.there_is("up")
    attempt.handle(Event.CANCEL, "cancelled")
    await asyncio.wait_for(living, PATIENCE)

    assert [(outcome.state, outcome.exit_code) for outcome in bench.server.told] == [
        (TaskState.KILLED, 7)
    ]


@pytest.mark.long
async def test_a_job_that_stops_its_shim_and_runs_too_long_is_ended(bench: Bench) -> None:
    """A timeout is an order like any other."""
    outcome = await bench.outcome(
        *family(bench, "as by a debugger"), timeout=timedelta(seconds=10), grace=timedelta(0)
    )

    assert (outcome.state, outcome.reason) == (
        TaskState.FAILED,
        "ran longer than its timeout of 10s",
    )
    assert left(await members(bench)) == []


async def test_a_job_that_stops_its_shim_and_ends_is_reported(bench: Bench) -> None:
    """Its end would wait for the shim for ever; the agent has the shim go on with every report."""
    outcome = await bench.outcome("sh", "-c", "kill -STOP $PPID; exit 3")

    assert (outcome.state, outcome.exit_code) == (TaskState.FAILED, 3)


@pytest.mark.long
async def test_a_job_that_stops_its_shim_does_not_outlive_its_lease(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster may start it elsewhere from then on."""
    monkeypatch.setattr(program_of, "OVERDUE", 5.0)  # the agent gives the attempt up before
    bench.server.away = True
    attempt = bench.attempt(*family(bench, "as by a debugger"), contact=Contact(lease=4))
    living = asyncio.create_task(attempt.run())
    pids = await members(bench)
    await asyncio.wait_for(living, PATIENCE)

    assert (left(pids), bench.server.told) == ([], [])


async def left_with_a_stopped_shim(bench: Bench, how: str) -> list[int]:
    """An attempt whose agent died while its shim was stopped: its processes."""
    directory = left_behind(bench)
    launch = Launch(argv=family(bench, how), env={"PATH": os.environ["PATH"]}, cwd=str(directory))
    Program(directory).start(launch, shim.now() + 3600)
    return await members(bench)


@pytest.mark.parametrize("how", HOW)
async def test_a_job_with_a_stopped_shim_that_nobody_wants_is_dead_before_the_next_agent_takes_work(
    bench: Bench, how: str
) -> None:
    """Its successor may run here."""
    pids = await left_with_a_stopped_shim(bench, how)
    bench.server.wanted = False
    await asyncio.wait_for(bench.tasks().take_over(), PATIENCE)

    assert left(pids) == []


async def test_a_job_with_a_stopped_shim_that_the_next_agent_goes_on_with_can_be_ended(
    bench: Bench,
) -> None:
    """By an agent that has not started it."""
    pids = await left_with_a_stopped_shim(bench, "as by a debugger")
    tasks = bench.tasks()
    await tasks.take_over()
    living_when_told: list[list[int]] = []
    bench.server.when_told = lambda: living_when_told.append(left(pids))
    await asyncio.wait_for(tasks.kill_all("its slice has ended"), PATIENCE)

    assert (living_when_told, left(pids)) == ([[]], [])


async def test_what_a_job_with_a_stopped_shim_has_running_ends_with_its_machine(
    bench: Bench,
) -> None:
    """A local cluster that is stopped leaves nothing on its user's laptop."""
    pids = await left_with_a_stopped_shim(bench, "as by a debugger")
    await asyncio.to_thread(kill_on, {bench.place.id}, bench.dir)

    await asyncio.to_thread(eventually, lambda: left(pids) == [], PATIENCE, 0.02)


@pytest.mark.parametrize("where", ["attempts", QUARANTINE])
async def test_what_a_job_lays_out_as_an_attempt_is_none(bench: Bench, where: str) -> None:
    """Else its files would say what else is killed on the machine."""
    left = left_behind(bench)
    (bench.dir / QUARANTINE).mkdir()
    forged = left.rename(bench.dir / where / "left") / "work" / "attempts" / "forged"
    forged.mkdir(parents=True)
    (forged / "launch.json").write_text("{}")
    holds = (
        "import fcntl, sys; lock = open(sys.argv[1], 'w'); fcntl.flock(lock, 2); print('has it',"
        " flush=True); sys.stdin.read()"
    )
    bystander = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", holds, str(forged / "lock")),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert bystander.stdout is not None
    assert await bystander.stdout.readline() == b"has it\n"
    await asyncio.to_thread(kill_on, {bench.place.id}, bench.dir)
    await bystander.communicate(b"")

    assert bystander.returncode == 0


#: Kills its shim and ends. What it leaves has no environment and a session of its own: one process,
#: or one that starts others.
ESCAPES = {
    "one": "exec sleep 1000",
    "a family": (
        "(setsid sh -c 'echo $$ >> {file}; exec sleep 1000' &); (echo $$ >> {file}; exec sleep"
        " 1000) & exec sleep 1000"
    ),
}
LEAVES = (
    "env -i PATH=$PATH setsid -f sh -c 'echo $$ >> {file}; {family}'; until [ -s {file} ]; do sleep"
    " 0.02; done; "
)


@pytest.mark.parametrize(
    "before", ["", "kill -STOP $(ps -o ppid= -p $PPID); "], ids=["", "fork server stopped"]
)
@pytest.mark.parametrize("family", ESCAPES)
async def test_a_job_that_kills_its_shim_is_dead_before_anybody_hears_of_its_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, family: str, before: str
) -> None:
    """On a host without cgroups and without users of jobs, nothing else finds its processes.
    Another job's goes on.
    """
    monkeypatch.setattr(cgroups, "make", lambda *_: ())
    other = bench.tasks()
    await dispatch(
        other,
        a_run("sh", "-c", f"echo $$ > {bench.dir / 'other'}; exec sleep 1000", incarnation="first"),
    )
    bystander = int(await bench.there_is("other"))
    file = bench.dir / "pids"
    leaves = LEAVES.format(
        file=file, family=ESCAPES[family].format(file=file).replace("'", "'\\''")
    )
    count = 1 if family == "one" else 3
    waits = f"until [ $(wc -l < {file}) -ge {count} ]; do sleep 0.02; done"
    attempt = bench.attempt("sh", "-c", f"{leaves}{waits}; {before}kill -9 $PPID; exec sleep 1000")
    living_when_told: list[list[int]] = []
    bench.server.when_told = lambda: living_when_told.append(
        left([int(pid) for pid in file.read_text().split()])
    )
    await asyncio.wait_for(attempt.run(), PATIENCE)

    assert living_when_told == [[]]
    assert [outcome.fault for outcome in bench.server.told] == ["attempt-lost"]
    assert alive(bystander)
    await other.kill_all("the test ends")


async def test_a_job_that_writes_its_own_end_has_not_ended(bench: Bench) -> None:
    """Only what the shim leaves behind counts, once it is gone: a host that is given to others is
    empty.
    """
    end = '{"status": 0, "at": 1.0}'
    program = f"echo '{end}' > ../exit.json; echo $$ > {bench.dir / 'up'}; exec sleep 1000"
    attempt = bench.attempt("sh", "-c", program, grace=timedelta(0))
    living = asyncio.create_task(attempt.run())
    pid = int(await bench.there_is("up"))
    attempt.handle(Event.CANCEL, "cancelled")
    await asyncio.wait_for(living, PATIENCE)

    assert [outcome.state for outcome in bench.server.told] == [TaskState.KILLED]
    assert not alive(pid)


async def test_a_stopped_fork_server_does_not_stop_its_agent(bench: Bench) -> None:
    """It is the parent of all shims, so any job can find it; other jobs still start and end, and
    the agent goes on.
    """
    stops = "kill -STOP $(ps -o ppid= -p $PPID)"
    first = await bench.outcome("sh", "-c", stops)
    bench.server.told.clear()
    second = await bench.outcome("sh", "-c", f"{stops}; exit 4")

    assert (first.state, second.exit_code) == (TaskState.SUCCEEDED, 4)
