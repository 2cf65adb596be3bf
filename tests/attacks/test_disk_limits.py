"""A program that fills its host's disk: the others on the host get errors instead of writing their
checkpoints.
"""

import asyncio
import itertools
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.activities.host.attempt.host_context import HostContext
from iris.activities.host.attempt.run_task import Tasks
from iris.activities.host.machine.disk_usage import Occupant, measure
from iris.activities.host.machine.disk_watch import watch
from iris.activities.host.runtimes.cleanup import trees
from iris.activities.host.runtimes.process import job_users
from iris.activities.host.runtimes.process.job_users import JobUsers
from iris.model.host.disk_limits import Disk, Holding, Measured, is_due, to_end
from iris.model.host.faults import FAULTS, Fault
from iris.model.host.store_limits import StoreLimits
from iris.model.job.attempts import TaskOutcome
from iris.model.states import TaskState
from iris.model.units import GIB, MIB, TIB
from tests.activities.host.attempt import test_attempt
from tests.activities.host.attempt.test_attempt import a_run, dispatch
from tests.builders import some
from tests.e2e.cluster import eventually
from tests.images import docker_image
from tests.small_disk import small_disk

#: Tests of several processes share the machine: the uids of each are its own.
UIDS = range(2_000_000 + os.getpid() % 10_000 * 100, 2_000_000 + os.getpid() % 10_000 * 100 + 100)
#: Writes more than the disk has, and stays.
HOG = "head -c 100000000 /dev/zero > data; exec sleep 1000"
#: Writes a megabyte when it may, and succeeds if that fits.
QUIET = "echo > {up}; until [ -e {go} ]; do sleep 0.1; done; head -c 1000000 /dev/zero > checkpoint"


class Bench(test_attempt.Bench):
    """Attempts on a host with a limit of disk for each."""

    limit = 4 * TIB
    users: JobUsers | None = None

    def _context(self, faults: Sequence[Fault] = FAULTS) -> HostContext:
        return replace(
            super()._context(faults), limits=StoreLimits(disk=self.limit), job_users=self.users
        )

    @asynccontextmanager
    async def host(self) -> AsyncIterator[Tasks]:
        """Its attempts, watched as an agent watches them. All have ended afterwards."""
        tasks = self.tasks()
        watch = asyncio.create_task(tasks.limit_disk())
        try:
            yield tasks
        finally:
            watch.cancel()
            await tasks.kill_all("the test ends")

    async def outcomes(self, count: int) -> list[TaskOutcome]:
        await asyncio.to_thread(
            eventually, lambda: len(self.server.told) >= count, test_attempt.PATIENCE, 0.05
        )
        return self.server.told


def an_occupant(directory: Path, told_to_end: Callable[[], bool] = lambda: False) -> Occupant:
    """A running attempt."""
    return Occupant(
        directory, requested=0, in_container=False, ending=False, told_to_end=told_to_end
    )


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """On a disk of 48 MB. The store and the cache are elsewhere."""
    with small_disk(tmp_path / "small", 48_000) as disk:
        for name in ("cache", "store"):
            (tmp_path / name).mkdir()
            (disk / name).symlink_to(tmp_path / name)
        yield Bench(disk)


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that other users can reach."""
    directory = Path(tempfile.mkdtemp(prefix="iris-jobs-", dir="/var/tmp"))
    directory.chmod(0o711)
    yield directory
    trees.remove(directory)


async def test_a_full_disk_ends_the_attempt_that_has_filled_it_and_no_other(
    bench: Bench, tmp_path: Path
) -> None:
    """The other attempt can write again when the first is gone."""
    async with bench.host() as tasks:
        up, go = tmp_path / "up", tmp_path / "go"
        await dispatch(tasks, a_run("sh", "-c", QUIET.format(up=up, go=go)))
        await asyncio.to_thread(eventually, up.exists, test_attempt.PATIENCE)
        await dispatch(tasks, a_run("sh", "-c", HOG))
        (hog,) = await bench.outcomes(1)
        await asyncio.to_thread(
            eventually,
            lambda: len(list((bench.dir / "attempts").iterdir())) == 1,
            test_attempt.PATIENCE,
        )
        go.touch()
        _, other = await bench.outcomes(2)

    assert hog.state is TaskState.FAILED
    assert hog.reason.startswith("filled its host's disk: ")
    assert " and requested none; request what it needs with --disk" in hog.reason
    assert (other.state, other.reason) == (TaskState.SUCCEEDED, "")


async def test_an_attempt_ends_at_its_own_limit_before_the_disk_is_full(bench: Bench) -> None:
    """What it was given with `--disk` changes nothing: the limit is the cluster's."""
    bench.limit = 8 * MIB
    async with bench.host() as tasks:
        await dispatch(
            tasks,
            a_run(
                "sh",
                "-c",
                "head -c 20000000 /dev/zero > data; exec sleep 1000",
                resources=some(disk=1),
            ),
        )
        (outcome,) = await bench.outcomes(1)

    assert outcome.state is TaskState.FAILED
    assert (
        outcome.reason
        == "used 19.1 MiB of its host's disk; an attempt may use 8 MiB (bootstrap.max_disk)"
    )


async def test_a_set_up_that_fills_the_disk_is_ended_too(bench: Bench) -> None:
    """It runs the user's commands, and it would fail the set-up of others."""
    bench.limit = 8 * MIB
    async with bench.host() as tasks:
        setup = a_run("true").environment.model_copy(
            update={"setup": ("head -c 20000000 /dev/zero > data; sleep 1000",)}
        )
        await dispatch(tasks, a_run("true", environment=setup))
        (outcome,) = await bench.outcomes(1)

    assert outcome.state is TaskState.FAILED
    assert "8 MiB (bootstrap.max_disk)" in outcome.reason


async def test_an_attempt_that_is_removed_during_the_measurement_is_not_replaced_by_an_honest_one(
    tmp_path: Path,
) -> None:
    """The space that it has left is free by then: an attempt that ended itself on the full disk
    took another one with it.
    """
    with small_disk(tmp_path / "disk", 48_000) as disk:
        honest, hog = disk / "honest", disk / "hog"
        there = {each.name: an_occupant(each) for each in (honest, hog)}
        for each, size in ((honest, 12_000_000), (hog, 36_900_000)):
            each.mkdir()
            (each / "data").write_bytes(bytes(size))
        ended: list[str] = []
        calls, decided = itertools.count(1), asyncio.Event()

        def occupants() -> dict[str, Occupant]:
            call = next(calls)
            if call == 2:  # after the first measurement
                trees.remove(hog)
                del there["hog"]
            elif call == 3:  # before the second look
                decided.set()
            return dict(there)

        watching = asyncio.create_task(
            watch(occupants, lambda key, reason: ended.append(key), [disk], 4 * TIB)
        )
        await asyncio.wait_for(decided.wait(), test_attempt.PATIENCE)
        watching.cancel()

    assert ended == []


#: Fills the disk, in directories that get other names all the time.
JUGGLER = """
import contextlib, os, pathlib
for n in range(200):
    pathlib.Path(f"a{n}").mkdir()
with contextlib.suppress(OSError):
    for n in range(200):
        pathlib.Path(f"a{n}/data").write_bytes(bytes(250_000))
while True:
    for old, new in ("ab", "bc", "ca"):
        for n in range(200):
            os.rename(f"{old}{n}", f"{new}{n}")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of other users")
async def test_a_job_that_renames_its_directories_all_the_time_is_measured(
    bench: Bench, open_directory: Path
) -> None:
    """While its directories were read, most had other names already. So it seemed to be small, and
    an honest attempt ended.
    """
    with small_disk(open_directory / "jobs", 48_000) as jobs:
        bench.users = JobUsers(jobs, UIDS)
        assert bench.users.make_directory() == ""
        async with bench.host() as tasks:
            await dispatch(
                tasks,
                a_run(
                    "sh",
                    "-c",
                    "head -c 12000000 /dev/zero > data; exec sleep 1000",
                    job="ada/honest",
                ),
            )
            await asyncio.to_thread(
                eventually,
                lambda: shutil.disk_usage(jobs).used >= 12_000_000,
                test_attempt.PATIENCE,
            )
            await dispatch(tasks, a_run("/usr/bin/python3", "-c", JUGGLER, job="eve/juggler"))
            (outcome,) = await bench.outcomes(1)
            honest = tasks.running("ada/honest", 0)

    assert honest is not None
    assert re.search(r"^filled its host's disk: .*, and it used 3\d\.\d MiB", outcome.reason)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of other users")
async def test_a_program_that_was_stopped_to_measure_it_goes_on_with_the_next_agent(
    bench: Bench, open_directory: Path
) -> None:
    """The agent may die in the meantime."""
    bench.users = JobUsers(open_directory, UIDS)
    assert bench.users.make_directory() == ""
    first, second = bench.tasks(), bench.tasks()
    await dispatch(first, a_run("sh", "-c", "touch up; until [ -e go ]; do sleep 0.05; done"))
    (up,) = await asyncio.to_thread(
        eventually, lambda: [*open_directory.glob("attempts/*/work/up")], test_attempt.PATIENCE
    )
    await asyncio.to_thread(
        eventually, lambda: first.running("ada/train", 0), test_attempt.PATIENCE
    )
    await first.hand_over()
    job_users.signal_all(up.stat().st_uid, signal.SIGSTOP)
    await second.take_over()
    up.with_name("go").touch()
    (outcome,) = await bench.outcomes(1)

    assert outcome.state is TaskState.SUCCEEDED


#: Changes its directory all the time. The file `stopped` says that it was stopped and continued.
RESTLESS = """
import os, pathlib, signal
signal.signal(signal.SIGCONT, lambda *_: pathlib.Path("stopped").touch())
for n in range(200):
    pathlib.Path(f"a{n}").mkdir()
pathlib.Path("up").touch()
while True:
    os.rename("up", "down")
    os.rename("down", "up")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of other users")
@pytest.mark.parametrize("when", ["never", "before", "while it is stopped"])
def test_a_program_that_is_told_to_end_is_not_kept_stopped(
    when: str, tmp_path: Path, open_directory: Path
) -> None:
    """Its grace passed while it was stopped to measure its disk, and it was killed without having
    seen its SIGTERM.
    """
    users = JobUsers(open_directory, UIDS)
    assert users.make_directory() == ""
    files = users.make_files(tmp_path)
    uid, work, told = files.stat().st_gid, files / "work", []
    # In a session of its own, as every program of a job: within a session, a SIGCONT of any user's
    # process may reach it, such as one of another test.
    with subprocess.Popen(
        ["/usr/bin/python3", "-c", RESTLESS],
        cwd=work,
        user=uid,
        group=uid,
        start_new_session=True,
    ) as program:
        try:
            eventually(
                lambda: any((work / name).exists() for name in ("up", "down")),
                test_attempt.PATIENCE,
            )

            def told_to_end() -> bool:
                told.append(
                    when == "before"
                    or psutil.Process(program.pid).status() == psutil.STATUS_STOPPED
                )
                return when != "never" and told[-1]

            while not told:  # a program that gets no CPU meanwhile need not be stopped
                measure({"attempt": an_occupant(tmp_path, told_to_end)}, threading.Event())
            if when == "before":
                os.kill(program.pid, signal.SIGTERM)  # after a SIGCONT, if there was one
                program.wait()
            else:
                eventually((work / "stopped").exists, test_attempt.PATIENCE)
        finally:
            program.kill()

    assert (work / "stopped").exists() is (when != "before")
    # Asked at each of its directories, unless the look ends.
    assert (told.count(True) > 100) is (when == "never")


@pytest.mark.docker
async def test_a_container_that_renames_its_directories_all_the_time_is_measured(
    tmp_path: Path,
) -> None:
    """Its processes are paused for that. Without that, a look saw a part of what it had."""
    bench = Bench(tmp_path)
    bench.limit = 36 * MIB
    async with bench.host() as tasks:
        await dispatch(tasks, a_run("python3", "-c", JUGGLER, image=docker_image()))
        (outcome,) = await bench.outcomes(1)

    assert re.search(r"^used (49|50)\.\d MiB of its host's disk", outcome.reason)


@pytest.mark.docker
async def test_what_a_container_writes_beside_its_directories_counts(tmp_path: Path) -> None:
    """It fills the engine's disk, which on most machines is the only one."""
    bench = Bench(tmp_path)
    bench.limit = 8 * MIB
    async with bench.host() as tasks:
        await dispatch(
            tasks,
            a_run(
                "sh",
                "-c",
                "head -c 20000000 /dev/zero > /big; exec sleep 1000",
                image=docker_image(),
            ),
        )
        (outcome,) = await bench.outcomes(1)

    assert outcome.state is TaskState.FAILED
    assert "8 MiB (bootstrap.max_disk)" in outcome.reason


# -- the decision
# --------------------------------------------------------------------------------------------------

LOW = {1: Disk(100 * GIB, MIB)}


def held(used: int, requested: int = 0, *, ending: bool = False) -> Holding:
    return Holding({1: used}, requested, ending)


@pytest.mark.parametrize(
    ("holdings", "ended"),
    [
        ([held(40 * GIB), held(50 * GIB)], [1]),
        ([held(40 * GIB), held(50 * GIB, requested=48 * GIB)], [0]),
        ([held(40 * GIB, requested=40 * GIB), held(50 * GIB, requested=50 * GIB)], []),
        ([held(GIB) for _ in range(90)], []),
        ([held(40 * GIB, ending=True), held(50 * GIB)], []),
        ([held(MIB, ending=True), held(50 * GIB)], [1]),
        ([Holding({2: 50 * GIB}, 0, ending=False), held(3 * GIB)], [1]),
        ([], []),
        ([held(50 * GIB), Holding({1: MIB}, 0, ending=False, complete=False), held(40 * GIB)], [1]),
        ([held(50 * GIB), Holding({1: MIB}, 0, ending=True, complete=False), held(40 * GIB)], [0]),
    ],
    ids=[
        "largest",
        "beyond its request",
        "all as requested",
        "many small",
        "one ends",
        "one ends in vain",
        "disks",
        "none",
        "one hides",
        "who hides ends",
    ],
)
def test_a_low_disk_ends_the_attempt_that_uses_most_of_it_beyond_its_request(
    holdings: list[Holding], ended: list[int]
) -> None:
    """A job that requested what it uses is not to blame, and neither are files that no attempt has
    written.
    """
    found = to_end({str(number): each for number, each in enumerate(holdings)}, LOW, TIB)

    assert sorted(found) == [str(number) for number in ended]


@given(
    st.lists(
        st.builds(held, st.integers(0, 200 * GIB), st.integers(0, 200 * GIB), ending=st.booleans()),
        max_size=8,
    ),
    st.integers(0, 100 * GIB),
    st.integers(MIB, TIB),
)
def test_no_attempt_within_limit_and_request_is_ended_and_at_most_one_for_a_disk(
    holdings: list[Holding], free: int, limit: int
) -> None:
    """Whatever the others use."""
    disks = {1: Disk(100 * GIB, free)}
    ended = [
        holdings[int(key)]
        for key in to_end({str(n): each for n, each in enumerate(holdings)}, disks, limit)
    ]

    assert all(
        each.total > limit or (each.total > each.requested and disks[1].low) for each in ended
    )
    assert len([each for each in ended if each.total <= limit]) <= 1
    assert not any(each.ending for each in ended)


@pytest.mark.parametrize(
    ("free", "last", "limit", "due"),
    [
        (50 * GIB, None, TIB, False),
        (MIB, None, TIB, True),
        (50 * GIB, None, 10 * GIB, True),
        (50 * GIB, Measured(at=91, took=0.01, in_use=50 * GIB, largest=5 * GIB), 10 * GIB, False),
        (44 * GIB, Measured(at=91, took=0.01, in_use=50 * GIB, largest=5 * GIB), 10 * GIB, True),
        (44 * GIB, Measured(at=0, took=11, in_use=50 * GIB, largest=5 * GIB), 10 * GIB, False),
        (MIB, Measured(at=0, took=11, in_use=50 * GIB, largest=5 * GIB), 10 * GIB, False),
        (50 * GIB, Measured(at=90, took=0.01, in_use=50 * GIB, largest=5 * GIB), 10 * GIB, True),
        (50 * GIB, Measured(at=50, took=0.6, in_use=50 * GIB, largest=5 * GIB), 10 * GIB, False),
    ],
)
def test_directories_are_read_only_if_an_attempt_may_use_too_much(
    free: int, last: Measured | None, limit: int, due: bool
) -> None:
    """A directory with millions of files takes minutes to read; the free space takes
    microseconds.
    """
    assert is_due({1: Disk(100 * GIB, free)}, last, 100.0, limit) is due
