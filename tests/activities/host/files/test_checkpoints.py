"""What a program leaves in its checkpoint directory is there for the task's next attempt, whoever
dies when.
"""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from iris.activities.host.files.checkpoint_files import FOLDER, scan
from iris.activities.host.files.checkpoints import End, Saver, end_of
from iris.activities.host.files.restore import restore
from iris.activities.host.runtimes.base import HostFault, JobFault
from iris.activities.host.runtimes.program import Exit
from iris.model.checkpoint.saves import Save, SavedItem, save_name
from iris.model.units import MIB
from iris.storage.object_store import Store
from tests.activities.host.attempt.test_attempt import Bench
from tests.activities.host.files.test_caches import unprivileged
from tests.images import docker_image

PREFIX = "checkpoints/ada/train/run/0"
BY_ITSELF = End(by_itself=True, at=0)


class Host:
    """One attempt's directory on a host, and what saves it."""

    def __init__(
        self,
        store: Store,
        directory: Path,
        attempt: int,
        *,
        limit: int = 10**9,
        prefix: str = PREFIX,
    ) -> None:
        self.store, self.dir, self.attempt, self.limit, self.prefix = (
            store,
            directory,
            attempt,
            limit,
            prefix,
        )
        self.files = directory / FOLDER
        self.files.mkdir(parents=True)
        self.said: list[str] = []
        self.saver = self.agent(taken_over=False)

    def agent(self, *, taken_over: bool = True) -> Saver:
        """A saver of this attempt, of another agent than before."""
        gate = asyncio.Semaphore(4)
        return Saver(
            self.store,
            self.prefix,
            self.attempt,
            self.dir,
            gate,
            self.limit,
            self.said.append,
            taken_over=taken_over,
        )

    async def restore(self, store: Store | None = None, start_from: str = "") -> str:
        return await restore(
            store or self.store,
            self.prefix,
            self.dir,
            self.dir,
            None,
            start_from=start_from,
            pauses=(),
        )

    @property
    def contents(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.files)): path.read_text()
            for path in self.files.rglob("*")
            if path.is_file()
        }


class Fragile(Store):
    """A store that does some operations and then fails, before or after it has done the last
    one.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url, create=True)
        self.left = 10**9
        self.done = 0
        self.answers = True

    def _work(self) -> Iterator[None]:
        self.left -= 1
        if self.left < 0 or (self.left == 0 and not self.answers):
            raise ConnectionError("the store is away")
        self.done += 1
        yield
        if self.left == 0:
            raise ConnectionError("the store is away")

    async def put_blocks(self, path: str, blocks: Iterator[bytes]) -> None:
        for _ in self._work():
            await super().put_blocks(path, blocks)

    async def put_new(self, path: str, data: bytes) -> bool:
        for _ in self._work():
            done = await super().put_new(path, data)
        return done

    async def copy(self, path: str, to: str) -> bool:
        for _ in self._work():
            done = await super().copy(path, to)
        return done

    async def sizes(self, prefix: str) -> list[tuple[str, int]]:
        for _ in self._work():
            found = await super().sizes(prefix)
        return found

    async def folders(self, prefix: str) -> list[str]:
        for _ in self._work():
            found = await super().folders(prefix)
        return found


@pytest.fixture
def store(tmp_path: Path) -> Fragile:
    return Fragile((tmp_path / "store").as_uri())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_the_next_attempt_finds_the_directory_as_it_was(
    store: Fragile, tmp_path: Path
) -> None:
    """Files with their contents, modes and times, also empty ones; directories, also empty ones;
    and links.
    """
    first, second = Host(store, tmp_path / "1", 1), Host(store, tmp_path / "2", 2)
    (first.files / "step 1" / "deep").mkdir(parents=True)
    (first.files / "no files").mkdir(mode=0o500)
    (first.files / "step 1" / "deep" / "odd\n%#").write_bytes(os.urandom(100_000))
    (first.files / "run.sh").write_text("exit 0")
    (first.files / "run.sh").chmod(0o750)
    (first.files / "empty").touch()
    (first.files / "latest").symlink_to("step 1")
    (first.files / "nowhere").symlink_to("/nowhere/at all")

    assert await first.saver.finish(BY_ITSELF)
    assert "restored the checkpoint of attempt 1" in await second.restore()
    assert [each._replace(inode=0, changed_ns=0) for each in scan(second.dir, None)] == [
        each._replace(inode=0, changed_ns=0) for each in scan(first.dir, None)
    ]
    assert (second.files / "latest" / "deep" / "odd\n%#").read_bytes() == (
        first.files / "step 1" / "deep" / "odd\n%#"
    ).read_bytes()


async def test_a_job_starts_from_the_checkpoint_of_another_and_has_its_own_from_then_on(
    store: Fragile, tmp_path: Path
) -> None:
    """Nothing keeps the other job's files: it may be deleted, or go on itself. The other job's
    saves are not touched.
    """
    other = Host(store, tmp_path / "other", 1, prefix="checkpoints/ada/other/run/7")
    (other.files / "weights").write_text("of the other")
    (other.files / "log").write_text("of the other")
    await other.saver.finish(BY_ITSELF)
    before = await store.sizes(other.prefix)

    first, second, third = (Host(store, tmp_path / str(number), number) for number in (1, 2, 3))
    assert "restored the checkpoint of ada/other:7, saved" in await first.restore(
        start_from=other.prefix
    )
    assert "restored the checkpoint of ada/other:7, saved" in await second.restore(
        start_from=other.prefix
    )
    await second.saver.finish(End(by_itself=False, at=0))
    assert len(before) == 3
    assert await store.sizes(other.prefix) == before
    await store.delete([name for name, _ in before])

    assert "restored the checkpoint of attempt 2" in await third.restore(start_from=other.prefix)
    assert third.contents == {"weights": "of the other", "log": "of the other"}


async def test_a_job_whose_start_is_gone_fails_and_does_not_begin_without_it(
    store: Fragile, tmp_path: Path
) -> None:
    """No retry on another host can help, and a training that begins anew in silence costs days."""
    host = Host(store, tmp_path / "1", 1)
    with pytest.raises(
        JobFault,
        match="the checkpoint of ada/other:7, which this job starts from, is not in the store",
    ):
        await host.restore(start_from="checkpoints/ada/other/run/7")


async def test_a_restore_says_what_it_does_before_it_does_it(
    store: Fragile, tmp_path: Path
) -> None:
    """A large checkpoint takes minutes, in which the user sees that the task is being prepared, and
    for what.
    """
    first, second = Host(store, tmp_path / "1", 1), Host(store, tmp_path / "2", 2)
    (first.files / "weights").write_bytes(bytes(2048))
    await first.saver.finish(BY_ITSELF)
    said: list[tuple[str, bool]] = []

    def announce(text: str) -> None:
        said.append((text, (second.files / "weights").exists()))

    await restore(store, PREFIX, second.dir, second.dir, None, announce=announce)
    assert said == [("restoring the checkpoint: 1 file, 2 KiB", False)]


async def test_only_what_has_changed_is_uploaded(store: Fragile, tmp_path: Path) -> None:
    """A checkpoint of many files of which one changes costs one file, and nothing if none does."""
    host = Host(store, tmp_path / "1", 1)
    for number in range(10):
        (host.files / str(number)).write_text("weights")
    await host.saver.finish(BY_ITSELF)
    (host.files / "3").write_text("other weights")
    before = store.done
    await host.saver.finish(BY_ITSELF)

    assert store.done - before == 2  # the file and the manifest
    await host.saver.finish(BY_ITSELF)
    assert store.done - before == 2


async def test_the_store_keeps_two_saves_and_no_more(store: Fragile, tmp_path: Path) -> None:
    """Who fetches a save has the time to fetch it; a long run does not fill the store."""
    for attempt in (1, 2):
        host = Host(store, tmp_path / str(attempt), attempt)
        if attempt == 2:
            await host.restore()
        for step in range(5):
            (host.files / "step").write_text("." * step)
            await host.saver.finish(BY_ITSELF)

    stored = sorted(name for name, _ in await store.sizes(PREFIX))
    assert [name for name in stored if name.endswith(".json")] == [
        save_name(PREFIX, 2, 4),
        save_name(PREFIX, 2, 5),
    ]
    assert len(stored) == 4


async def test_a_late_save_of_an_earlier_attempt_changes_nothing(
    store: Fragile, tmp_path: Path
) -> None:
    """Its host was cut off and comes back, while its successor has gone on."""
    first, second, third = (Host(store, tmp_path / str(attempt), attempt) for attempt in (1, 2, 3))
    (first.files / "step").write_text("1")
    await first.saver.finish(BY_ITSELF)
    await second.restore()
    (second.files / "step").write_text("two")
    await second.saver.finish(BY_ITSELF)
    (first.files / "step").write_text("a late step")
    await first.saver.finish(BY_ITSELF)
    await third.restore()

    assert third.contents == {"step": "two"}


async def test_a_file_half_written_when_the_program_is_killed_does_not_replace_the_whole_one(
    bench: Bench,
) -> None:
    """The next attempt starts from the last whole one."""
    step = (
        'echo whole > "$IRIS_CHECKPOINT_DIR/new"; mv "$IRIS_CHECKPOINT_DIR/new"'
        ' "$IRIS_CHECKPOINT_DIR/state"'
    )
    await bench.outcome("sh", "-c", step, checkpoints=PREFIX)
    half = 'printf hal > "$IRIS_CHECKPOINT_DIR/state"; kill -9 $$'
    await asyncio.wait_for(bench.attempt("sh", "-c", half, checkpoints=PREFIX, attempt=2).run(), 60)
    show = 'cat "$IRIS_CHECKPOINT_DIR/state"'
    await asyncio.wait_for(
        bench.attempt("sh", "-c", show, checkpoints=PREFIX, attempt=3, logs="logs/3").run(), 60
    )

    chunks = [await bench.store.get(name) for name in await bench.store.objects("logs/3")]
    log = b"".join(chunk or b"" for chunk in chunks)
    assert b"whole\n" in log
    assert b"restored the checkpoint of attempt 1" in log


@pytest.mark.docker
async def test_a_container_has_its_checkpoint_directory_too(bench: Bench) -> None:
    """Nothing else of the image's file system outlives it."""
    program = 'cd "$IRIS_CHECKPOINT_DIR"; echo $IRIS_ATTEMPT >> attempts; echo all: $(cat attempts)'
    for attempt in (1, 2):
        task = bench.attempt(
            "sh",
            "-c",
            program,
            image=docker_image(),
            checkpoints=PREFIX,
            attempt=attempt,
            logs=f"logs/{attempt}",
        )
        await asyncio.wait_for(task.run(), 120)

    chunks = [await bench.store.get(name) for name in await bench.store.objects("logs/2")]
    assert b"all: 1 2\n" in b"".join(chunk or b"" for chunk in chunks)


async def test_a_program_that_never_writes_there_costs_the_store_nothing(
    store: Fragile, tmp_path: Path
) -> None:
    """Most jobs have no checkpoint."""
    host = Host(store, tmp_path / "1", 1)
    running = asyncio.create_task(host.saver.save_on())
    await asyncio.sleep(0)
    assert await host.saver.finish(BY_ITSELF)
    running.cancel()

    assert store.done == 0


async def test_a_store_that_is_away_keeps_the_program_from_starting_without_its_checkpoint(
    store: Fragile, tmp_path: Path
) -> None:
    """The attempt is tried again; a training run does not begin anew."""
    first, second = Host(store, tmp_path / "1", 1), Host(store, tmp_path / "2", 2)
    (first.files / "step").write_text("1")
    await first.saver.finish(BY_ITSELF)
    store.left = 0

    with pytest.raises(HostFault, match="the checkpoint cannot be restored: the store is away"):
        await second.restore()


async def test_a_save_that_fails_is_told_once_and_tried_again(
    store: Fragile, tmp_path: Path
) -> None:
    """The user reads it in the job's log, and that it is over."""
    host = Host(store, tmp_path / "1", 1)
    (host.files / "step").write_text("1")
    store.left = 0

    assert not await host.saver.finish(BY_ITSELF)
    assert not await host.saver.finish(BY_ITSELF)
    store.left = 100
    assert await host.saver.finish(BY_ITSELF)
    assert host.said == [
        "the checkpoint could not be saved, trying again: the store is away",
        "the checkpoint is saved again",
    ]


async def test_a_directory_beyond_the_limit_is_not_saved_and_the_log_says_so(
    store: Fragile, tmp_path: Path
) -> None:
    """It is no reason to wait at the end."""
    host = Host(store, tmp_path / "1", 1, limit=10)
    (host.files / "step").write_text("more than that")

    assert await host.saver.finish(BY_ITSELF)
    assert host.said == [
        "the checkpoint is not saved: it has 14 B, and a task may save 10 B"
        " (bootstrap.max_checkpoint)"
    ]


async def test_a_file_that_the_agent_may_not_read_is_told_and_is_no_reason_to_wait_at_the_end() -> (
    None
):
    """A container's root makes it for an agent that is not root, which kept the attempt's directory
    for a day.
    """
    with unprivileged(), tempfile.TemporaryDirectory() as directory:
        host = Host(Fragile(Path(directory, "store").as_uri()), Path(directory, "1"), 1)
        (host.files / "closed").touch(mode=0)

        assert await host.saver.finish(BY_ITSELF)
    assert host.said == [
        "the checkpoint is not saved: the agent may not read closed; let its user read it"
    ]


async def test_files_of_other_users_are_not_saved(store: Fragile, tmp_path: Path) -> None:
    """A job can give a name in its directory to a file that it cannot read."""
    host = Host(store, tmp_path / "1", 1)
    (host.files / "not mine").touch()

    assert scan(host.dir, os.getuid() + 1) == []


async def test_a_directory_that_became_a_link_is_not_followed(
    store: Fragile, tmp_path: Path
) -> None:
    """It would lead to files that the job may not read."""
    host = Host(store, tmp_path / "1", 1)
    host.files.rmdir()
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "secret").touch()
    host.files.symlink_to(tmp_path / "private")

    assert await host.saver.finish(BY_ITSELF)
    assert store.done == 0
    assert host.said == [
        "the checkpoint is not saved: the directory, or Iris's record of it, was deleted or"
        " replaced"
    ]


@pytest.mark.parametrize(
    "item",
    [
        SavedItem(path="a", stored_as="outputs/bob/x"),
        SavedItem(path="%2E%2E/a", stored_as=f"{PREFIX}/1/x"),
    ],
)
async def test_a_manifest_that_a_job_has_written_gets_it_nothing(
    store: Fragile, tmp_path: Path, item: SavedItem
) -> None:
    """Neither another user's object nor a file outside of the directory."""
    await store.put("outputs/bob/x", b"private")
    await store.put(f"{PREFIX}/1/x", b"evil")
    await store.put(
        save_name(PREFIX, 1, 1), Save(attempt=1, number=1, items=(item,)).model_dump_json().encode()
    )
    host = Host(store, tmp_path / "2", 2)

    with pytest.raises(HostFault, match="the checkpoint cannot be restored"):
        await host.restore()
    assert sorted(path.name for path in host.dir.rglob("*")) == [FOLDER]


async def test_a_manifest_whose_name_no_agent_gives_is_ignored(
    store: Fragile, tmp_path: Path
) -> None:
    """The host looked for the save again and again until it failed, and seemed to be to blame."""
    await store.put(f"{PREFIX}/1/5.json", b"{}")

    assert await Host(store, tmp_path / "2", 2).restore() == ""


async def test_a_manifest_of_any_size_does_not_fill_the_memory_of_the_agent(
    store: Fragile, tmp_path: Path
) -> None:
    """All jobs of its host would lose their agent."""
    name = save_name(PREFIX, 1, 1)
    await store.put(name, b"{}")
    os.truncate(Path(store.url.removeprefix("file://"), name), 10**13)

    with pytest.raises(
        HostFault, match="has more than 64 MiB, the limit for a checkpoint manifest"
    ):
        await Host(store, tmp_path / "2", 2).restore()


async def test_an_object_that_is_larger_than_its_save_says_does_not_fill_the_disk(
    store: Fragile, tmp_path: Path
) -> None:
    """It is written as far as it was saved."""
    await store.put(f"{PREFIX}/1/x", bytes(32 * MIB))
    item = SavedItem(path="a", size=MIB, stored_as=f"{PREFIX}/1/x")
    await store.put(
        save_name(PREFIX, 1, 1), Save(attempt=1, number=1, items=(item,)).model_dump_json().encode()
    )
    host = Host(store, tmp_path / "2", 2)

    with pytest.raises(HostFault, match="is damaged"):
        await host.restore()
    assert sum(path.stat().st_size for path in host.files.iterdir()) <= MIB


@pytest.mark.parametrize(
    ("status", "stopped", "by_itself"),
    [
        (0, False, True),
        (1, False, False),
        (1, True, True),
        (-15, True, False),
        (143, True, False),
        (None, False, False),
    ],
)
def test_a_program_ends_by_itself_if_it_chose_its_exit_code(
    status: int | None, stopped: bool, by_itself: bool
) -> None:
    """Only then is a file that it has just written surely whole."""
    found = end_of(Exit(status=status, at=1.0), told_to_stop=stopped)

    assert found.by_itself is by_itself


#: A save of the latest attempt or an earlier one, with something new or not, after some operations
#: of which the store fails, before or after it has done the last one; or a new attempt, or a new
#: agent of the latest attempt.
Act = str | tuple[int, bool, int, bool]
ACTS: st.SearchStrategy[list[Act]] = st.lists(
    st.sampled_from([(0, True, 0, True), (1, True, 0, True), "next", "die"])
    | st.tuples(st.integers(0, 2), st.booleans(), st.integers(1, 5), st.booleans()),
    min_size=4,
    max_size=12,
)
NEW, LATE = (0, True, 0, True), (1, True, 0, True)


@given(ACTS)
@example(["next", NEW, LATE])
@example([NEW, "next", NEW, LATE, LATE, LATE, LATE])
@example([NEW, "next", LATE, LATE, LATE, LATE, (0, True, 0, True)])
@example([NEW, "next", (0, False, 0, True), "die", (0, True, 3, False), "die", NEW])
def test_no_attempt_restores_less_than_was_saved_or_what_no_attempt_has_written(
    acts: list[Act],
) -> None:
    """Old and new attempts save in any order, agents die between any two steps, and answers of the
    store are lost.
    """
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(_restored_well(Path(directory), acts))


async def _restored_well(directory: Path, acts: list[Act]) -> None:
    store = Fragile((directory / "store").as_uri())
    hosts = [Host(store, directory / "1", 1)]
    #: What each attempt has restored and written, and which of these was surely saved last.
    written: list[list[dict[str, str]]] = [[{}]]
    saved: list[int] = [0]
    for number, act in enumerate([*acts, "next"]):
        if act == "next":
            host = Host(store, directory / str(len(hosts) + 1), len(hosts) + 1)
            await host.restore()
            newest = max((attempt for attempt, last in enumerate(saved) if last), default=0)
            assert host.contents in [
                *written[newest][saved[newest] :],
                *(each for late in written[newest + 1 :] for each in late),
            ]
            hosts.append(host)
            written.append([host.contents])
            saved.append(0)
        elif act == "die":
            hosts[-1].saver = hosts[-1].agent()
        elif not isinstance(act, str):
            back, is_new, operations, answers = act
            attempt = max(0, len(hosts) - 1 - back)
            host = hosts[attempt]
            if is_new:
                (host.files / f"{attempt} {len(written[attempt])}").write_text("x" * number)
                for path in ("weights", "step"):
                    (host.files / path).write_text("." * number)
                (host.files / f"{attempt} {len(written[attempt]) - 2}").unlink(missing_ok=True)
                written[attempt].append(host.contents)
            store.left, store.answers = operations or 10**9, answers
            if await host.saver.finish(BY_ITSELF):
                saved[attempt] = len(written[attempt]) - 1
            store.left = 10**9
