"""A task that stores without end: `yes` wrote 1.3 GB of log in 20 s, and an output file of
terabytes costs nothing to make.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePath

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from iris.activities.host.attempt.host_context import HostContext
from iris.activities.host.files.logs import READ
from iris.activities.host.files.outputs import Kept, keep
from iris.model.host import store_limits
from iris.model.host.faults import FAULTS, Fault
from iris.model.host.store_limits import (
    BEYOND_LIMIT,
    OutputFile,
    StoreLimits,
    is_possible,
    left_out_reason,
    select,
)
from iris.model.states import TaskState
from iris.model.units import KIB, MIB, TIB
from iris.storage.log_format import LogLine, Stream
from iris.storage.object_store import Store
from iris.storage.output_names import object_name
from tests.activities.host.attempt import test_attempt
from tests.activities.host.attempt.test_attempt import a_run
from tests.activities.host.files import test_logship
from tests.activities.host.files.test_caches import unprivileged
from tests.activities.host.files.test_logship import all_shipped
from tests.e2e.cluster import Cluster, a_cluster

LIMIT = 256 * KIB
FULL = (
    "[iris] the log has reached its limit of 256 KiB (bootstrap.max_logs): the program goes on, and"
    " its further output is not stored"
)
#: Prints 16 MiB, and then its last line.
FLOOD = (
    "import sys\nfor _ in range(16):\n    sys.stdout.write('y\\n' * 2**19)\nprint('the last line')"
)


class Desk(test_logship.Desk):
    """An attempt's files and their log, which has a limit."""

    def limited(self, limit: int = LIMIT, *, taken_over: bool = False) -> test_logship.LogShipper:
        state = self.dir / "shipped.json"
        return test_logship.LogShipper(
            self.store, test_logship.PREFIX, self.files, state, taken_over=taken_over, limit=limit
        )

    async def size(self) -> int:
        return sum(size for _, size in await self.store.sizes(""))


class Bench(test_attempt.Bench):
    """Attempts on a host with low limits."""

    def _context(self, faults: Sequence[Fault] = FAULTS) -> HostContext:
        return replace(super()._context(faults), limits=StoreLimits(logs=LIMIT, outputs=MIB))

    async def log(self) -> str:
        """What is stored of the attempt's log."""
        desk = Desk(self.dir / "desk")
        desk.store = self.store  # type: ignore[assignment]
        return "\n".join(line.text for line in await desk.stored())


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "desk")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def hosts_lines(lines: list[LogLine]) -> list[str]:
    return [line.text for line in lines if line.stream is Stream.BUILD]


# -- logs
# --------------------------------------------------------------------------------------------------


async def test_a_program_that_prints_without_end_fills_no_store_and_goes_on(bench: Bench) -> None:
    """It succeeds, and its last lines are known: only the log ends before."""
    outcome = await bench.outcome(sys.executable, "-c", FLOOD)

    assert (outcome.state, outcome.reason, outcome.last_lines.endswith("the last line")) == (
        TaskState.SUCCEEDED,
        "",
        True,
    )
    assert sum(size for _, size in await bench.store.sizes("")) <= LIMIT + BEYOND_LIMIT
    assert (await bench.log()).count(FULL) == 1


async def test_a_fault_of_the_host_is_recognised_beyond_the_limit(bench: Bench) -> None:
    """A program that printed too much must not lose its other attempts for what its host did."""
    outcome = await bench.outcome(
        sys.executable, "-c", f"{FLOOD}\nprint({test_attempt.BUSY!r})\nsys.exit(1)"
    )

    assert (outcome.state, outcome.fault) == (TaskState.WORKER_FAILED, "accelerator-busy")


async def test_a_set_up_step_that_prints_without_end_fills_no_store(desk: Desk) -> None:
    """Its output is in the host's stream, as the host's own lines, which are still stored. It can
    imitate them, up to a limit.
    """
    desk.write(Stream.BUILD, b"y\n" * MIB)
    shipper = desk.limited()
    await all_shipped(shipper)
    shipper.say("what the host says later")
    desk.write(Stream.BUILD, b"[iris] I am the host\n" * 10 * KIB)
    await all_shipped(shipper)

    # The lines, and the time and the stream of each.
    assert await desk.size() <= LIMIT + 2 * BEYOND_LIMIT
    lines = hosts_lines(await desk.stored())
    assert [line for line in lines if line == FULL] == [FULL]
    assert lines[lines.index(FULL) + 1] == "[iris] what the host says later"


@pytest.mark.parametrize("state_lost", [False, True])
async def test_a_log_that_has_ended_stays_ended_when_another_agent_takes_over(
    desk: Desk, state_lost: bool
) -> None:
    """Each restart of an agent would otherwise store the limit again."""
    desk.write(Stream.STDOUT, b"y\n" * MIB)
    await all_shipped(desk.limited())
    size = await desk.size()
    if state_lost:
        (desk.dir / "shipped.json").unlink()
    successor = desk.limited(taken_over=True)
    desk.write(Stream.STDOUT, b"y\n" * MIB + b"the last line\n")
    await all_shipped(successor)

    assert await desk.size() == size
    assert successor.last_lines.endswith("the last line")


@pytest.mark.parametrize("state_lost", [False, True])
async def test_a_successor_counts_what_its_predecessor_has_stored(
    desk: Desk, state_lost: bool
) -> None:
    """The limit is the attempt's, not the agent's."""
    desk.write(Stream.STDOUT, b"y" * 63 + b"\n")
    await all_shipped(desk.limited(100))
    if state_lost:
        (desk.dir / "shipped.json").unlink()
    desk.write(Stream.STDOUT, b"n" * 63 + b"\n")
    await all_shipped(desk.limited(100, taken_over=True))

    assert hosts_lines(await desk.stored()) == [FULL.replace("256 KiB", "100 B")]
    assert await desk.bytes_of(Stream.STDOUT) == b"y" * 63 + b"\n"


async def test_a_successor_before_the_end_was_stored_reads_no_gaps_in_the_file(desk: Desk) -> None:
    """Space that was freed too early would come back as zero bytes in the log."""
    desk.write(Stream.STDOUT, b"y\n" * 16 * MIB)
    first = desk.limited()
    desk.store.away = True
    for _ in range(5):
        assert not await first.ship(ended=True)
    desk.store.away = False
    await all_shipped(desk.limited(taken_over=True))

    assert set(await desk.bytes_of(Stream.STDOUT)) == {*b"y\n"}
    assert hosts_lines(await desk.stored()) == [FULL]


@pytest.mark.skipif(
    sys.platform != "linux", reason="other systems keep the space until the attempt ends"
)
async def test_output_that_is_not_stored_takes_no_disk(desk: Desk) -> None:
    """A disk that fills instead of the store would end the attempts of others."""
    desk.write(Stream.STDOUT, b"y\n" * 32 * MIB)
    await all_shipped(desk.limited())
    desk.write(Stream.STDOUT, b"y\n")
    await all_shipped(desk.limited(taken_over=True))

    assert desk.files[Stream.STDOUT].stat().st_blocks * 512 <= 16 * MIB


async def test_a_log_that_fits_is_stored_whole(desk: Desk) -> None:
    """The limit costs those nothing who stay below it."""
    text = b"line\n" * 1000
    desk.write(Stream.STDOUT, text)
    shipper = desk.limited(READ)
    await all_shipped(shipper)

    assert await desk.bytes_of(Stream.STDOUT) == text
    assert hosts_lines(await desk.stored()) == []


# -- outputs
# --------------------------------------------------------------------------------------------------


async def test_outputs_beyond_the_limit_are_not_stored_and_the_user_is_told(bench: Bench) -> None:
    """In the log and in the reason, also when the job succeeded: who fetches the outputs has to
    know that some are missing.
    """
    script = "head -c 600000 /dev/zero > a; cp a b; cp a c; truncate -s 1T d; echo small > e"
    outcome = await bench.outcome(
        "sh", "-c", f"cd $IRIS_OUTPUT_DIR; {script}", outputs="outputs/here"
    )

    limits = (
        "1 MiB (bootstrap.max_outputs) in 1,000,000 files with paths of up to 100 names and 1,024"
        " bytes"
    )
    told = f"3 output files of 1 TiB are not stored: an attempt may store {limits}"
    assert (outcome.state, outcome.reason) == (TaskState.SUCCEEDED, told)
    assert f"[iris] {told}" in await bench.log()
    assert sorted(await bench.store.sizes("outputs")) == [
        ("outputs/here/a", 600_000),
        ("outputs/here/e", 6),
    ]


async def test_names_that_no_store_takes_are_left_out_at_once(bench: Bench) -> None:
    """The agent tried for a day to store all outputs again, and kept the attempt's directory on its
    disk.
    """
    script = (
        "cd $IRIS_OUTPUT_DIR; echo 1 > good; echo 2 > $(printf %0255d 0); echo 3 > $(printf %0200d"
        " 0 | tr 0 %)"
    )
    outcome = await bench.outcome("sh", "-c", script, outputs="outputs/here")

    assert outcome.state is TaskState.SUCCEEDED
    assert outcome.reason.startswith("2 output files of 4 B are not stored: ")
    assert await bench.store.sizes("outputs") == [("outputs/here/good", 2)]
    assert [*(bench.dir / "attempts").iterdir()] == []


@pytest.mark.parametrize("place", ["logs", "outputs", "checkpoints", "from_checkpoint"])
@pytest.mark.parametrize("name", ["../../x", "a//b", "nul\0", "long" * 100, "deep/" * 300 + "x"])
async def test_a_task_that_stores_elsewhere_is_refused(bench: Bench, place: str, name: str) -> None:
    """Somebody may send it to a host itself. It counted as a fault of the host, and its directory
    stayed.
    """
    tasks = bench.tasks()
    with pytest.raises(ApplicationError, match="is not the name of a folder in the store"):
        await ActivityEnvironment().run(tasks.run_task, a_run("true", **{place: name}))

    assert not (bench.dir / "attempts").exists()


@given(
    st.lists(
        st.text(st.sampled_from("a ü%\x01\n\x85\u202f"), min_size=1, max_size=260),
        min_size=1,
        max_size=6,
    )
)
def test_whatever_is_chosen_can_be_stored(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    """By a store on a disk, which takes the shortest names."""
    name = object_name(PurePath(*steps))
    assume(not set(steps) & {".", ".."} and is_possible(name))
    store = Store((tmp_path_factory.mktemp("store")).as_uri())

    asyncio.run(store.put(name, b"content"))
    assert asyncio.run(store.get(name)) == b"content"


async def test_files_that_the_agent_may_not_read_are_left_out_and_the_user_is_told() -> None:
    """A container's root makes them for an agent that is not root, which tried to store them for a
    day.
    """
    with unprivileged(), tempfile.TemporaryDirectory() as directory:
        store, outputs = (
            Store(Path(directory, "store").as_uri(), create=True),
            Path(directory, "outputs"),
        )
        outputs.mkdir()
        (outputs / "good").write_text("1")
        (outputs / "closed").touch(mode=0)

        assert await keep(store, outputs, "here") == Kept(1, 1, unreadable=1)
    assert left_out_reason(0, 0, 1, unreadable=1).startswith(
        "1 output file is not stored: not readable for the agent; "
    )


async def test_many_links_to_one_file_count_each(tmp_path: Path) -> None:
    """Each becomes an object with the whole content."""
    store, outputs = Store((tmp_path / "store").as_uri(), create=True), tmp_path / "outputs"
    outputs.mkdir()
    (outputs / "a").write_bytes(bytes(1000))
    for number in range(10):
        os.link(outputs / "a", outputs / f"hard-{number}")
        (outputs / f"soft-{number}").symlink_to("a")

    assert await keep(store, outputs, "here", limit=5500) == Kept(
        5, 5000, left_out=16, left_out_bytes=16_000
    )


def test_more_files_than_an_agent_can_hold_are_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty files cost no bytes, but each is a request, and all of them were in the agent's memory
    at once.
    """
    monkeypatch.setattr(store_limits, "MOST_FILES", 3)
    chosen = select((OutputFile(Path(str(number)), 0) for number in range(10)), 0)

    assert (len(chosen.stored), chosen.left_out, chosen.left_out_bytes) == (3, 7, 0)


@given(st.lists(st.integers(0, 2 * TIB)), st.integers(0, 8 * TIB))
def test_what_is_stored_never_exceeds_the_limit_and_nothing_is_forgotten(
    sizes: list[int], limit: int
) -> None:
    """Whatever a program leaves."""
    chosen = select(
        (OutputFile(Path(str(number)), size) for number, size in enumerate(sizes)), limit
    )
    stored = sum(file.size for file in chosen.stored)

    assert stored <= limit
    assert len(chosen.stored) + chosen.left_out == len(sizes)
    assert stored + chosen.left_out_bytes == sum(sizes)


# -- from the configuration
# --------------------------------------------------------------------------------------------------

CONFIG = """
platform: {local: {}}
bootstrap: {max_logs: 256k, max_outputs: 1m, max_disk: 64m, require_image_digests: true}
scale_groups:
  cpu: {type: local_vm, min_slices: 1, resources: {cpu: 2}}
"""


@pytest.mark.long
def test_the_limits_of_the_configuration_are_those_of_the_hosts(tmp_path: Path) -> None:
    """A limit that does not reach the agent is none."""
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    with a_cluster("--config", str(config), "--ephemeral") as cluster:
        script = f'{sys.executable} -c "{FLOOD}"; truncate -s 1T $IRIS_OUTPUT_DIR/huge'
        _submit(cluster, script)
        log = cluster.iris("logs", "flood").out

        assert log.count(FULL) == 1
        assert len(log) < 2 * LIMIT
        (task,) = cluster.status("flood")["tasks"]
        assert task["reason"].startswith(
            "1 output file of 1 TiB is not stored: an attempt may store 1 MiB"
        )
        fill = "head -c 100000000 /dev/zero > $IRIS_OUTPUT_DIR/data; exec sleep 1000"
        ended = cluster.iris(
            "submit", "--no-workspace", "-n", "filler", "--", "sh", "-c", fill, code=125
        )
        assert "64 MiB (bootstrap.max_disk)" in ended.err
        ended = cluster.iris(
            "submit",
            "--no-workspace",
            "-n",
            "tag",
            "--image",
            "python:3.11",
            "--",
            "true",
            code=125,
        )
        assert "python:3.11" in ended.err


def _submit(cluster: Cluster, script: str) -> None:
    cluster.submit("flood", "--no-workspace", "--", "sh", "-c", script)
    cluster.iris("wait", "flood")
