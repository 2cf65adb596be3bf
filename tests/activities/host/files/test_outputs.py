"""What an attempt leaves in its output directory is kept, whatever it is called, and nothing else
is.
"""

import asyncio
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.exceptions import BaseError

from iris.activities.host.files.outputs import Kept, keep
from iris.client.jobs.fetch import fetch
from iris.client.jobs.files import outputs_of
from iris.model.errors import InvalidValue
from iris.storage.object_store import Store
from iris.storage.output_names import object_name, path_of

#: Names that programs give their files, each of which some store or path could trip over.
ODD = [
    "a b%20ü#?.txt",
    "step#12",
    "100%",
    "%2E%2E",
    "..two dots",
    ".hidden",
    "line\nbreak",
    "tab\t",
    "back\\slash",
    '*[x]{y}|^`"<>~',
    "é" * 100,
    os.fsdecode(b"no utf-8 \xff"),
]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store((tmp_path / "store").as_uri(), create=True)


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    directory = tmp_path / "outputs"
    directory.mkdir()
    return directory


async def kept(store: Store, directory: Path) -> set[str]:
    """The paths of what was kept of a directory, as a user gets them back."""
    await keep(store, directory, "outputs/ada/train/run/0/1")
    return {str(file.path) for file in await outputs_of(store, "ada/train", "run")}


async def test_every_file_is_kept_under_its_path(store: Store, outputs: Path) -> None:
    """Also in directories, also an empty one; and the size is told."""
    (outputs / "checkpoints" / "1").mkdir(parents=True)
    (outputs / "checkpoints" / "1" / "weights").write_bytes(b"12345")
    (outputs / "empty").touch()
    (outputs / "no files").mkdir()

    assert await keep(store, outputs, "here") == Kept(files=2, size=5)
    assert await store.get("here/checkpoints/1/weights") == b"12345"
    assert await store.get("here/empty") == b""


async def test_names_with_odd_characters_come_back_as_they_were(
    store: Store, outputs: Path, tmp_path: Path
) -> None:
    """No store takes all names that a file can have; no file may be lost or renamed for that."""
    for number, name in enumerate(ODD):
        (outputs / name).write_text(str(number))
        (outputs / f"in {name}"[:100]).mkdir()
        (outputs / f"in {name}"[:100] / name).write_text(str(-number))
    await keep(store, outputs, "outputs/ada/train/run/0/1")

    await fetch(
        store, await outputs_of(store, "ada/train", "run"), tmp_path / "back", by_task=False
    )

    written = {
        path.relative_to(outputs): path.read_text() for path in outputs.rglob("*") if path.is_file()
    }
    fetched = {
        path.relative_to(tmp_path / "back"): path.read_text()
        for path in (tmp_path / "back").rglob("*")
        if path.is_file()
    }
    assert fetched == written
    assert len(written) == 2 * len(ODD)


async def test_what_is_no_file_of_the_directory_is_left_out(
    store: Store, outputs: Path, tmp_path: Path
) -> None:
    """A link must not carry the host's secrets out, a pipe would block for ever; a link among
    outputs is a file too.
    """
    (tmp_path / "secret").write_text("of the host")
    (outputs / "weights").write_text("mine")
    (outputs / "latest").symlink_to("weights")
    (outputs / "out").symlink_to(tmp_path / "secret")
    (outputs / "directory").symlink_to(tmp_path)
    (outputs / "loop").symlink_to("loop")
    (outputs / "dangling").symlink_to("nowhere")
    (outputs / "self").symlink_to(outputs)
    os.mkfifo(outputs / "pipe")

    assert await kept(store, outputs) == {"weights", "latest"}


#: Steps of the targets of links: names that are there, out of the directory, and to where they
#: begin elsewhere.
STEPS = st.sampled_from(["a", "b", "inner", "..", ".", "", "outputs", "secret"])
TARGETS = st.tuples(
    st.sampled_from(["", "{root}/", "{root}/outputs/", "/"]),
    st.lists(STEPS, min_size=1, max_size=6),
)
PLACES = st.sampled_from(["a", "b", "inner/a", "inner/b", "inner/deep/a"])


@given(st.dictionaries(PLACES, TARGETS))
def test_no_links_lead_out_however_they_are_laid(links: dict[str, tuple[str, list[str]]]) -> None:
    """What the agent may read is not the job's to give away."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        (root / "outputs" / "inner" / "deep").mkdir(parents=True)
        for file in (root / "secret", root / "a", root / "inner"):
            file.write_text("of the host")
        (root / "outputs" / "file").write_text("mine")
        for name, (start, steps) in links.items():
            (root / "outputs" / name).symlink_to(start.format(root=root) + "/".join(steps) or ".")
        store = Store((root / "store").as_uri(), create=True)
        asyncio.run(keep(store, root / "outputs", "here"))

        kept = [path.read_text() for path in (root / "store").rglob("*") if path.is_file()]
        assert set(kept) == {"mine"}


async def test_an_empty_or_missing_directory_keeps_nothing(
    store: Store, outputs: Path, tmp_path: Path
) -> None:
    """Most jobs have no outputs, and some delete the directory; neither is an error."""
    assert await keep(store, outputs, "here") == Kept(0, 0)
    assert await keep(store, tmp_path / "gone", "here") == Kept(0, 0)


async def test_keeping_again_keeps_what_is_there_now(store: Store, outputs: Path) -> None:
    """An agent that took over tries again what its predecessor had begun."""
    (outputs / "a").write_text("half")
    await keep(store, outputs, "here")
    (outputs / "a").write_text("whole")

    assert await keep(store, outputs, "here") == Kept(1, 5)
    assert await store.get("here/a") == b"whole"


async def test_one_file_that_cannot_be_stored_does_not_take_the_others_with_it(
    store: Store, outputs: Path
) -> None:
    """The caller is told, and what could be kept is kept."""
    (outputs / "good").write_text("kept")
    (outputs / "zebra").write_text("kept too")
    (Path(store.url.removeprefix("file://")) / "here" / "bad").mkdir(parents=True)
    (outputs / "bad").write_text("where the store has a directory")

    with pytest.raises((OSError, BaseError)):
        await keep(store, outputs, "here")
    assert (await store.get("here/good"), await store.get("here/zebra")) == (b"kept", b"kept too")


@pytest.mark.parametrize(
    "name", ["../up", "a/../../up", "%2E%2E/up", "a%2Fb", "a//b", "/etc/passwd", "", ".", "nul%00"]
)
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    """What is in a store was written by others, and decides where files of mine are written."""
    with pytest.raises(InvalidValue, match="is not a name that Iris gives"):
        path_of(name)


@pytest.mark.parametrize("name", ODD)
def test_a_name_is_turned_back_exactly(name: str) -> None:
    """Two files must never become one object."""
    assert str(path_of(object_name(Path("a") / name))) == f"a/{name}"
