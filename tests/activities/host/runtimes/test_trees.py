"""Directories of jobs are visited and removed however deep they are, and no link leads out of
them.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from iris.activities.host.environment.job_files import hash_of_all
from iris.activities.host.files.caches import size_of
from iris.activities.host.files.outputs import keep
from iris.activities.host.runtimes.cleanup import trees
from iris.storage.object_store import Store
from tests.activities.host.files.test_caches import unprivileged

#: More levels than the interpreter recurses, and a path that no system call takes.
LEVELS = 1100


def nest(directory: Path, levels: int = LEVELS, name: str = "deep") -> None:
    """Nests directories with a file in the deepest."""
    at = os.open(directory, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=at)
        below = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open("deepest", os.O_WRONLY | os.O_CREAT, dir_fd=at))
    os.close(at)


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "job"
    directory.mkdir()
    nest(directory)
    yield directory
    trees.remove(directory)  # pytest cannot


def test_a_directory_is_removed_however_deep_it_is(deep: Path) -> None:
    """A recursion would end with an error, and the directory would stay."""
    assert trees.remove(deep)
    assert not deep.exists()


def test_a_visit_sees_every_directory_before_and_after_those_in_it(tmp_path: Path) -> None:
    """The work on a directory's content may need either order."""
    for path in ("b/c", "a"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "b" / "file").touch()
    (tmp_path / "b" / "link").symlink_to(tmp_path)
    seen = [
        ("/".join(each.steps), each.folders, each.names, each.left)
        for each in trees.visits(tmp_path)
    ]

    assert seen == [
        ("", ["a", "b"], [], False),
        ("a", [], [], False),
        ("a", [], [], True),
        ("b", ["c"], ["file", "link"], False),
        ("b/c", [], [], False),
        ("b/c", [], [], True),
        ("b", ["c"], ["file", "link"], True),
        ("", ["a", "b"], [], True),
    ]


def test_a_link_is_removed_and_not_what_it_leads_to(tmp_path: Path) -> None:
    """A job may put a link where the agent removes a directory, or anywhere below."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "link").symlink_to(tmp_path / "kept")

    assert trees.remove(tmp_path / "job")
    assert trees.remove(tmp_path / "link")
    assert trees.remove(tmp_path / "nothing")
    assert [path.name for path in tmp_path.rglob("*")] == ["kept", "file"]


def test_an_agent_without_rights_removes_its_own_closed_directories() -> None:
    """Programs and package managers leave directories that may not be read or written to."""
    # Not below tmp_path, which other users cannot reach.
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o777)
        with unprivileged():
            closed = Path(place, "job", "closed", "below")
            closed.mkdir(parents=True)
            (closed / "file").touch()
            for each in (closed, *closed.parents[:2]):
                each.chmod(0)
            assert trees.remove(Path(place, "job"))


def test_a_directory_that_is_moved_during_the_visit_does_not_lead_the_visit_away(
    tmp_path: Path,
) -> None:
    """Its parent directory is then another one, and a removal would go on there."""
    (tmp_path / "job" / "a" / "b").mkdir(parents=True)
    (tmp_path / "other").mkdir()

    def visit() -> None:
        for each in trees.visits(tmp_path / "job"):
            if each.steps[-1:] == ["b"] and not each.left:
                (tmp_path / "job" / "a" / "b").rename(tmp_path / "other" / "b")

    with pytest.raises(OSError, match="was moved"):
        visit()


async def test_outputs_that_are_nested_too_deep_are_told_and_the_others_are_stored(
    deep: Path, tmp_path: Path
) -> None:
    """One such file must not keep the rest from being stored."""
    (deep / "result").write_text("fine")
    store = Store((tmp_path / "store").as_uri(), create=True)
    stored = await keep(store, deep, "outputs/x")

    assert (stored.files, stored.left_out) == (1, 1)
    assert [path.name for path in (tmp_path / "store").rglob("*") if path.is_file()] == ["result"]


def test_a_deep_directory_has_a_size_and_a_hash(deep: Path) -> None:
    """The agent computes both of what jobs send or leave."""
    assert size_of(deep) == 0
    assert hash_of_all(deep, Event()) == hash_of_all(deep, Event())
