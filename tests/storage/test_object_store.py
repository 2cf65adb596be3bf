"""The object store in a directory with any name."""

import asyncio
import os
import stat
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PosixPath
from typing import cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from iris.model.errors import Unreachable
from iris.storage.object_store import STORE_ERRORS, Store
from iris.storage.refusals import remedy

#: Every name that a directory of this system can have.
NAMES = (
    st.binary(min_size=1, max_size=40)
    .filter(lambda name: not {0, ord("/")} & set(name) and name not in (b".", b".."))
    .map(os.fsdecode)
)


@given(name=st.one_of(NAMES, st.text("a %#?'\"ü:\\&+~\n", min_size=1, max_size=12)))
@example(name="sp ace")
@example(name="per%20cent")
@example(name="100%")
@example(name="a#b?c")
@example(name='Zoë\'s "own"')
def test_objects_are_only_in_the_directory_of_the_url(name: str) -> None:
    """A local cluster's URL comes from the user's path: for a name with a space, another directory
    was created.
    """
    with tempfile.TemporaryDirectory() as top:
        directory = Path(top, name)

        async def use() -> None:
            store = Store(directory.as_uri(), create=True)
            await store.put("logs/one", b"said")
            assert await Store(directory.as_uri()).get("logs/one") == b"said"
            assert await store.objects("logs") == ["logs/one"]
            assert (directory / "logs" / "one").read_bytes() == b"said"
            await store.delete(["logs/one"])

        asyncio.run(use())
        assert list(Path(top).iterdir()) == [directory]
        assert list(directory.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("file:///none/a#b", "%23"),
        ("file:///none/a?b", "%3F"),
        ("file://host/none/a", "file:///"),
        ("file:a/b", "file:///"),
    ],
)
def test_an_ambiguous_url_is_refused(url: str, remedy: str) -> None:
    """Objects would be stored in a directory that no user named."""
    with pytest.raises(Unreachable, match=remedy):
        Store(url)


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o2775])
async def test_objects_have_the_permissions_of_the_directory(tmp_path: Path, mode: int) -> None:
    """A cluster's own store is private under any umask, and several users can share one."""
    tmp_path.chmod(mode)
    store = Store(tmp_path.as_uri())

    await store.put("bundles/deep/one", b"")

    assert stat.S_IMODE((tmp_path / "bundles" / "deep").stat().st_mode) == mode
    assert stat.S_IMODE((tmp_path / "bundles" / "deep" / "one").stat().st_mode) == mode & 0o666


USES: dict[str, Callable[[Store, Path], Awaitable[object]]] = {
    "put": lambda store, _: store.put("logs/one", b"said"),
    "put_new": lambda store, _: store.put_new("logs/one", b"said"),
    "put_file": lambda store, file: store.put_file("logs/one", file),
    "put_blocks": lambda store, _: store.put_blocks("logs/one", iter([b"said"])),
    "get": lambda store, _: store.get("logs/one"),
    "get_file": lambda store, file: store.get_file("logs/one", file),
    "get_blocks": lambda store, _: store.get_blocks("logs/one", print),
    "head": lambda store, _: store.head("logs/one", 2),
    "modified": lambda store, _: store.modified("logs/one"),
    "copy": lambda store, _: store.copy("logs/one", "logs/two"),
    "folders": lambda store, _: store.folders("logs"),
    "objects": lambda store, _: store.objects("logs"),
    "sizes": lambda store, _: store.sizes("logs"),
    "stored": lambda store, _: store.stored(),
    "delete": lambda store, _: store.delete(["logs/one"]),
}


@pytest.mark.parametrize("use", USES)
async def test_a_store_that_is_not_mounted_is_away_and_neither_empty_nor_created(
    tmp_path: Path, use: str
) -> None:
    """Root created the missing mount point, and stored on the local disk. Whoever read it took the
    objects for deleted.
    """
    directory, file = tmp_path / "mnt" / "store", tmp_path / "file"
    file.write_text("said")
    store = Store(directory.as_uri())
    for _ in range(2):
        with pytest.raises(
            STORE_ERRORS, match=f"the store {store.url} cannot be reached: "
        ) as away:
            await USES[use](store, file)

        assert not isinstance(away.value, FileNotFoundError)  # an object that does not exist
        assert remedy(away.value) is None
        assert not directory.parent.exists()
        assert file.read_text() == "said"


async def test_a_store_that_is_mounted_again_is_used_again(tmp_path: Path) -> None:
    """Its agents and control planes run on meanwhile."""
    store, away = Store((tmp_path / "store").as_uri(), create=True), tmp_path / "away"
    await store.put("logs/one", b"said")
    (tmp_path / "store").rename(away)
    with pytest.raises(STORE_ERRORS):
        await store.put("logs/two", b"more")
    away.rename(tmp_path / "store")
    await store.put("logs/two", b"more")

    assert await store.objects("logs") == ["logs/one", "logs/two"]


class HangingServer:
    """A file server that answers one kind of call only after `answer`."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._answers = threading.Event()

    def answer(self) -> None:
        self._answers.set()

    def hangs(self, directory: Path, call: str) -> Path:
        """Returns the directory as a path of this server, on which this method hangs."""

        def hang(path: PosixPath, *args: object) -> object:
            self._loop.call_soon_threadsafe(self.asked.set)
            self._answers.wait(20)  # a call in the event loop's own thread would never end
            return getattr(PosixPath, call)(path, *args)

        return cast("Path", type("HangingPath", (PosixPath,), {call: hang})(directory))


@pytest.fixture
async def server() -> AsyncIterator[HangingServer]:
    hanging = HangingServer()
    yield hanging
    hanging.answer()


async def test_the_event_loop_continues_while_the_file_system_hangs_after_a_write(
    tmp_path: Path, server: HangingServer
) -> None:
    """The agent froze, its heartbeats stopped, and its attempts were started elsewhere."""
    tmp_path.chmod(0o700)
    store = Store(tmp_path.as_uri())
    store.directory = server.hangs(tmp_path, "chmod")
    writing = asyncio.create_task(store.put("logs/one", b"said"))
    await server.asked.wait()
    ended = writing.done()
    server.answer()
    await writing

    assert not ended
    assert stat.S_IMODE((tmp_path / "logs" / "one").stat().st_mode) == 0o600


@pytest.mark.parametrize("use", USES)
async def test_no_use_of_a_store_calls_the_file_system_in_the_thread_of_the_event_loop(
    tmp_path: Path, use: str
) -> None:
    """Any such call may hang, and stops the whole agent."""
    callers, file = set[threading.Thread](), tmp_path / "file"
    file.write_text("said")
    store = Store((tmp_path / "store").as_uri(), create=True)
    await store.put("logs/one", b"said")

    class WatchedPath(PosixPath):
        def __fspath__(self) -> str:  # every call to the file system begins with it
            callers.add(threading.current_thread())
            return super().__fspath__()

    store.directory = WatchedPath(tmp_path / "store")
    await USES[use](store, file)

    assert callers
    assert threading.current_thread() not in callers


async def test_calls_to_a_file_system_that_hangs_take_no_thread_from_other_work(
    tmp_path: Path, server: HangingServer
) -> None:
    """Six hanging calls on two cores stopped the work of the agent in all other threads."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    store = Store(tmp_path.as_uri())
    store.directory = server.hangs(tmp_path, "is_dir")
    reading = asyncio.create_task(store.get("logs/one"))
    await server.asked.wait()
    other = await asyncio.wait_for(asyncio.to_thread(os.getpid), 10)
    server.answer()

    assert other == os.getpid()
    assert await reading is None


async def test_a_head_and_a_list_may_be_cut(tmp_path: Path) -> None:
    """A job may be able to write objects of any size and number."""
    store = Store(tmp_path.as_uri())
    for number in range(5):
        await store.put(f"logs/{number}", b"said more")

    assert await store.head("logs/0", 4) == b"said"
    assert await store.head("logs/0", 100) == b"said more"
    assert await store.head("logs/none", 4) is None
    assert len(await store.stored("logs", 3)) == 3
    assert len(await store.stored("logs", 9)) == 5
