"""Fetching what attempts left: exactly that, only below the directory that was named, and over
nothing that was there.
"""

from pathlib import Path

import pytest

from iris.client.jobs.fetch import Fetched, fetch
from iris.client.jobs.files import outputs_of
from iris.model import store_paths
from iris.model.errors import InvalidValue, IrisError, Rejected
from iris.storage.object_store import Store

JOB, RUN = "ada/train", "0193b0a0-1111"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store((tmp_path / "store").as_uri(), create=True)


async def left(store: Store, path: str, text: str, task: int = 0, attempt: int = 1) -> None:
    await store.put(f"{store_paths.attempt_outputs(JOB, RUN, task, attempt)}/{path}", text.encode())


def here(directory: Path) -> dict[str, str]:
    """The files below a directory."""
    return {
        str(path.relative_to(directory)): path.read_text()
        for path in directory.rglob("*")
        if path.is_file()
    }


async def test_of_each_task_the_latest_attempt_that_left_anything_counts(store: Store) -> None:
    """A task's last attempt may have been cancelled before it wrote; then the one before it has
    what there is.
    """
    await left(store, "a", "first", task=0, attempt=1)
    await left(store, "a", "tenth", task=0, attempt=10)
    await left(store, "b", "of another task", task=10, attempt=2)

    files = await outputs_of(store, JOB, RUN)

    assert [(file.task, file.attempt, str(file.path), file.size) for file in files] == [
        (0, 10, "a", 5),
        (10, 2, "b", 15),
    ]
    assert [file.task for file in await outputs_of(store, JOB, RUN, task=10)] == [10]
    assert [file.attempt for file in await outputs_of(store, JOB, RUN, attempt=1)] == [1]
    assert await outputs_of(store, JOB, RUN, task=1) == []
    assert await outputs_of(store, JOB, "another run") == []


async def test_files_are_fetched_with_their_folders_and_told_one_by_one(
    store: Store, tmp_path: Path
) -> None:
    """Nothing else is left in the directory, and what was there stays."""
    await left(store, "checkpoints/1/weights", "w")
    await left(store, "metrics.json", "{}")
    (tmp_path / "into").mkdir()
    (tmp_path / "into" / "mine").write_text("mine")
    told: list[Fetched] = []

    fetched = await fetch(
        store,
        await outputs_of(store, JOB, RUN),
        tmp_path / "into",
        by_task=False,
        progress=told.append,
    )

    assert here(tmp_path / "into") == {
        "checkpoints/1/weights": "w",
        "metrics.json": "{}",
        "mine": "mine",
    }
    assert sorted(path.name for path in (tmp_path / "into").iterdir()) == [
        "checkpoints",
        "metrics.json",
        "mine",
    ]
    assert sorted(fetched) == sorted(told)


@pytest.mark.parametrize("mine", ["longer than theirs", "same si"])
async def test_a_file_that_differs_is_not_overwritten_unless_forced(
    store: Store, tmp_path: Path, mine: str
) -> None:
    """It may be all there is of something; also where only its content differs and not its size."""
    await left(store, "notes", "theirs!")
    await left(store, "other", "fetched")
    into = tmp_path / "into"
    into.mkdir()
    (into / "notes").write_text(mine)
    files = await outputs_of(store, JOB, RUN)

    with pytest.raises(
        Rejected, match="notes: a different file exists; fetch into another directory with -o, or"
    ):
        await fetch(store, files, into, by_task=False)
    assert (into / "notes").read_text() == mine

    await fetch(store, files, into, by_task=False, force=True)
    assert here(into) == {"notes": "theirs!", "other": "fetched"}
    assert [each.written for each in await fetch(store, files, into, by_task=False)] == [
        False,
        False,
    ]


async def test_nothing_is_written_outside_of_the_directory(store: Store, tmp_path: Path) -> None:
    """Neither along a link that lies there, nor because of what somebody has called an object in
    the store.
    """
    into, outside = tmp_path / "into", tmp_path / "outside"
    for directory in (into, outside):
        directory.mkdir()
    (into / "link").symlink_to(outside)
    (outside / "precious").write_text("precious")
    (into / "notes").symlink_to(outside / "precious")
    await left(store, "link/file", "x")
    with pytest.raises(Rejected, match="link/file: would be written outside of"):
        await fetch(store, await outputs_of(store, JOB, RUN), into, by_task=False, force=True)
    (into / "link").unlink()

    await left(store, "notes", "theirs")
    await fetch(store, await outputs_of(store, JOB, RUN), into, by_task=False, force=True)
    assert (here(outside), here(into)) == (
        {"precious": "precious"},
        {"link/file": "x", "notes": "theirs"},
    )

    await left(store, "%2E%2E/up", "x")
    with pytest.raises(InvalidValue, match="up"):
        await outputs_of(store, JOB, RUN)


@pytest.mark.parametrize("force", [False, True])
async def test_a_directory_where_a_file_should_be_is_named(
    store: Store, tmp_path: Path, force: bool
) -> None:
    """And the other way round; no traceback, and nothing is deleted."""
    await left(store, "a/b", "x")
    into = tmp_path / "into"
    into.mkdir()
    (into / "a").write_text("a file")
    with pytest.raises(Rejected, match="a/b"):
        await fetch(store, await outputs_of(store, JOB, RUN), into, by_task=False, force=force)
    (into / "a").unlink()
    (into / "a" / "b" / "c").mkdir(parents=True)
    with pytest.raises(Rejected, match="a/b"):
        await fetch(store, await outputs_of(store, JOB, RUN), into, by_task=False, force=force)
    assert [path.name for path in into.iterdir()] == ["a"]


async def test_what_has_gone_meanwhile_is_told(store: Store, tmp_path: Path) -> None:
    """A bucket may have rules of its own for what is old; half a result must not look like a whole
    one.
    """
    await left(store, "a", "x")
    files = await outputs_of(store, JOB, RUN)
    (Path(store.url.removeprefix("file://")) / files[0].object).unlink()

    with pytest.raises(IrisError, match="was deleted from the store"):
        await fetch(store, files, tmp_path / "into", by_task=False)
    assert list((tmp_path / "into").iterdir()) == []
