"""The cache of a host: made once, shared by its agents, bounded, and never removed under somebody
who uses it.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from iris.activities.host.files.caches import Cache, CacheEntry, size_of
from iris.activities.host.runtimes.base import HostFault
from tests.small_disk import small_disk

#: What an entry of these tests takes on the disk, in bytes.
SIZE = 64 * 1024


async def make_some(place: Path) -> None:
    (place / "data").write_bytes(os.urandom(SIZE))


def making(
    *, count: list[str], name: str = "", until: asyncio.Event | None = None
) -> Callable[[Path], Awaitable[None]]:
    """Makes an entry, counts that, and ends no sooner than it may."""

    async def make(place: Path) -> None:
        count.append(name)
        if until is not None:
            await until.wait()
        await make_some(place)

    return make


async def used(cache: Cache, *keys: str) -> None:
    """Use each of them, one after the other, so that the last is the one that was used last."""
    for at, key in enumerate(keys):
        with await cache.use(key, make_some) as entry:
            os.utime(entry.path.parent / "complete", (at, at))


def failing(make: Callable[[Path], Awaitable[None]]) -> Callable[[Path], Awaitable[None]]:
    async def fail(place: Path) -> None:
        await make(place)
        raise ValueError("it fails")

    return fail


@contextmanager
def unprivileged() -> Iterator[None]:
    """Not as root, for a while, who may do everything."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def there(cache: Cache) -> set[str]:
    """The keys of what is kept; nothing else may lie there for long."""
    return {path.name for path in (cache.directory / "entries").iterdir() if path.suffix != ".lock"}


async def test_a_discarded_entry_is_made_anew_once_nobody_uses_it_any_more(tmp_path: Path) -> None:
    """Whoever still reads the old one finds it whole; the next user gets a new one."""
    cache, count = Cache(tmp_path, SIZE * 10), list[str]()
    waiting = asyncio.Event()
    reader = await cache.use("a", making(count=count))
    with await cache.use("a", making(count=count)) as found:
        cache.discard(found)
    next_user = asyncio.create_task(cache.use("a", making(count=count), waiting=waiting.set))
    await asyncio.wait_for(waiting.wait(), 60)
    assert (reader.path / "data").exists()
    assert len(count) == 1

    reader.release()
    with await asyncio.wait_for(next_user, 60) as new:
        assert new.path != reader.path
        assert len(count) == 2


async def test_an_entry_is_made_once_for_all_who_want_it_at_the_same_time(tmp_path: Path) -> None:
    """The tasks of a gang come to a host together and want the same thing; the others are told that
    they wait.
    """
    count: list[str] = []
    waiting, may_end = asyncio.Event(), asyncio.Event()

    async def use() -> CacheEntry:
        return await Cache(tmp_path, SIZE * 10).use(
            "a", making(count=count, until=may_end), waiting=waiting.set
        )

    tasks = [asyncio.create_task(use()) for _ in range(5)]
    await asyncio.wait_for(waiting.wait(), 60)
    may_end.set()
    entries = await asyncio.wait_for(asyncio.gather(*tasks), 60)

    assert count == [""]
    assert [entry.made for entry in entries].count(True) == 1
    assert {entry.path for entry in entries} == {entries[0].path}
    for entry in entries:
        entry.release()


async def test_what_was_unused_for_longest_goes_first(tmp_path: Path) -> None:
    """A host that runs for months must not fill its disk, and what is used every day must stay."""
    cache = Cache(tmp_path, int(SIZE * 3.5))
    await used(cache, "a", "b", "c")
    with await cache.use("a", make_some) as again:
        assert not again.made
    with await cache.use("d", make_some):
        pass

    assert there(cache) == {"a", "c", "d"}
    assert {path.name for path in (tmp_path / "entries").glob("*.lock")} == {
        "a.lock",
        "c.lock",
        "d.lock",
    }


async def test_an_entry_that_grows_counts_as_what_it_has_become(tmp_path: Path) -> None:
    """What uv downloads is found missing in no sum."""
    cache = Cache(tmp_path, SIZE * 5)
    await used(cache, "a", "b")
    with await cache.use("b", make_some) as grows:
        (grows.path / "more").write_bytes(os.urandom(SIZE * 6))
        await cache.measure(grows)
        await cache.trim()
        assert there(cache) == {"b"}
    await cache.trim()

    assert there(cache) == set()


def program_with(descriptor: int) -> subprocess.Popen[bytes]:
    """A process that has inherited this, and ends when its input does."""
    return subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[descriptor]
    )


async def test_what_a_program_uses_stays_although_its_agent_is_gone(tmp_path: Path) -> None:
    """A training run of a week must not lose its packages when its agent dies, or another agent
    needs room.
    """
    cache = Cache(tmp_path, 0)
    entry = await cache.use("a", make_some)
    program = program_with(entry.lock)
    entry.release()
    await cache.trim()
    assert (entry.path / "data").exists()

    program.communicate(b"\n")
    await cache.trim()
    assert there(cache) == set()


CRASHES = """
import asyncio, sys
from pathlib import Path
from iris.activities.host.files.caches import Cache

async def make(place):
    (place / "half").write_text("done")
    print("begun", flush=True)
    await asyncio.sleep(1000)

asyncio.run(Cache(Path(sys.argv[1]), 1 << 30).use("a", make))
"""


def agent_that_makes(directory: Path) -> subprocess.Popen[bytes]:
    """A process in the middle of making the entry "a"."""
    agent = subprocess.Popen(
        [sys.executable, "-c", CRASHES, str(directory)], stdout=subprocess.PIPE
    )
    assert agent.stdout is not None
    assert agent.stdout.readline() == b"begun\n"
    return agent


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


async def test_what_a_crash_left_half_made_is_made_anew(tmp_path: Path) -> None:
    """An agent may be killed at any moment; an environment with half of its packages would fail
    everybody after it.
    """
    agent = agent_that_makes(tmp_path)
    waits = asyncio.Event()
    coming = asyncio.create_task(Cache(tmp_path, SIZE * 10).use("a", make_some, waiting=waits.set))
    await asyncio.wait_for(waits.wait(), 60)
    kill(agent)

    with await asyncio.wait_for(coming, 60) as entry:
        assert entry.made
        assert [path.name for path in entry.path.iterdir()] == ["data"]
        assert {path.name for path in entry.path.parent.iterdir()} == {entry.path.name, "complete"}


async def test_rests_are_cleared_even_when_nobody_wants_that_entry_again(tmp_path: Path) -> None:
    """They are in no sum, so only this keeps them from filling the disk."""
    kill(agent_that_makes(tmp_path))
    cache = Cache(tmp_path, SIZE * 10)
    await used(cache, "b")

    assert there(cache) == {"b"}


@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_try_that_fails_leaves_nothing_and_the_next_one_is_free(
    tmp_path: Path, cancelled: bool
) -> None:
    """A cancelled job, a package that does not exist: neither may block whoever comes next."""
    cache = Cache(tmp_path, SIZE * 10)
    begun = asyncio.Event()

    async def fail(place: Path) -> None:
        await make_some(place)
        begun.set()
        if cancelled:
            await asyncio.Event().wait()
        raise ValueError("no such package")

    coming = asyncio.create_task(cache.use("a", fail))
    await asyncio.wait_for(begun.wait(), 60)
    if cancelled:
        coming.cancel()
    with pytest.raises(asyncio.CancelledError if cancelled else ValueError):
        await coming
    assert there(cache) == set()

    with await asyncio.wait_for(cache.use("a", make_some), 60) as entry:
        assert entry.made


async def test_an_entry_with_what_may_not_be_written_to_can_be_removed() -> None:
    """Packages have read-only directories now and then; not every agent is root."""

    async def make(place: Path) -> None:
        (place / "locked" / "twice").mkdir(parents=True)
        (place / "locked" / "twice" / "file").write_bytes(bytes(SIZE))
        (place / "locked" / "twice").chmod(0o500)
        (place / "locked").chmod(0o500)

    with unprivileged(), tempfile.TemporaryDirectory() as directory:
        cache = Cache(Path(directory), SIZE * 10)
        (await cache.use("a", make)).release()
        with pytest.raises(ValueError, match="fails"):
            await cache.use("b", failing(make))
        assert there(cache) == {"a"}
        os.utime(Path(directory) / "entries" / "a" / "complete", (0, 0))
        await used(cache, "c")
        await cache.trim(SIZE)

        assert there(cache) == {"c"}


async def test_a_full_disk_is_the_hosts_fault_and_what_nobody_uses_makes_room(
    tmp_path: Path,
) -> None:
    """The same attempt succeeds elsewhere, and the next one here."""

    async def too_much(place: Path) -> None:
        (place / "data").write_bytes(bytes(10_000_000))

    with small_disk(tmp_path / "disk", kib=2000) as disk:
        cache = Cache(disk, SIZE * 1000)
        await used(cache, "a")
        with pytest.raises(HostFault, match="full") as caught:
            await cache.use("b", too_much)
        assert caught.value.fault == "disk"
        assert there(cache) == set()
        (await cache.use("b", make_some)).release()


async def test_a_cache_that_cannot_be_written_to_is_the_hosts_fault(tmp_path: Path) -> None:
    """The user has not chosen it."""
    (tmp_path / "cache").write_text("a file")

    with pytest.raises(HostFault, match="cache of this host cannot be used"):
        await Cache(tmp_path / "cache", SIZE).use("a", make_some)


@pytest.mark.long
def test_the_agents_of_a_machine_share_what_they_make(tmp_path: Path) -> None:
    """A machine may have several: of several clusters, or in several roles. Four processes, three
    keys, room for one.
    """
    script = """
import asyncio, os, sys
from pathlib import Path
from iris.activities.host.files.caches import Cache

async def make(place):
    (place / "data").write_bytes(os.urandom(65536))

async def main():
    cache = Cache(Path(sys.argv[1]), 70_000)
    for turn in range(30):
        with await cache.use(f"key-{turn % 3}", make) as entry:
            assert (entry.path / "data").stat().st_size == 65536
            await asyncio.sleep(0)
            assert (entry.path / "data").stat().st_size == 65536

asyncio.run(main())
"""
    agents = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path)]) for _ in range(4)]

    assert [agent.wait(60) for agent in agents] == [0] * 4
    assert size_of(tmp_path / "entries") <= 3 * 70_000
