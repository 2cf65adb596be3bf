"""Shipping a log: what is stored by whom, in which pieces, and what is missing when the store is
away for too long.
"""

import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris.activities.host.files.logs import LogShipper
from iris.model import store_paths
from iris.storage.log_format import LogLine, Stream, decode
from iris.storage.object_store import Store
from tests.strategies import examples

PREFIX = "logs/ada/train/run/0/1"


class Away(Store):
    """A store that can be away, or lose the answer although it has stored what it was given."""

    def __init__(self, url: str) -> None:
        super().__init__(url, create=True)
        self.away = False
        self.loses_answers = False

    async def put(self, path: str, data: bytes) -> None:
        if self.away:
            raise OSError("away")
        await super().put(path, data)
        if self.loses_answers:
            raise OSError("no answer")

    async def get(self, path: str, most: int | None = None) -> bytes | None:
        if self.away:
            raise OSError("away")
        return await super().get(path, most)


class Desk:
    """An attempt's files and their log."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.dir = directory
        self.store = Away((directory / "store").as_uri())
        self.files = {
            stream: directory / stream.name.lower()
            for stream in (Stream.BUILD, Stream.STDOUT, Stream.STDERR)
        }

    def shipper(self, *, taken_over: bool = False, max_backlog: int = 2**30) -> LogShipper:
        state = self.dir / "shipped.json"
        return LogShipper(
            self.store, PREFIX, self.files, state, taken_over=taken_over, max_backlog=max_backlog
        )

    def write(self, stream: Stream, data: bytes) -> None:
        with self.files[stream].open("ab") as file:
            file.write(data)

    async def stored(self) -> list[LogLine]:
        chunks = [await self.store.get(path) or b"" for path in await self.store.objects(PREFIX)]
        return [line for chunk in chunks for line in decode(chunk)]

    async def bytes_of(self, stream: Stream) -> bytes:
        """What a reader makes of a stream."""
        return joined(line for line in await self.stored() if line.stream is stream)


def joined(lines: Iterable[LogLine]) -> bytes:
    return b"".join(line.written for line in lines)


async def all_shipped(shipper: LogShipper) -> None:
    while not await shipper.ship(ended=True):
        pass


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def test_each_stream_is_stored_in_its_order_and_marked(desk: Desk) -> None:
    """What the host says of the attempt is a stream of its own."""
    shipper = desk.shipper()
    desk.write(Stream.STDOUT, b"one\ntwo\n")
    desk.write(Stream.STDERR, b"oh\n")
    shipper.say("prepared")
    await all_shipped(shipper)

    assert await desk.bytes_of(Stream.STDOUT) == b"one\ntwo\n"
    assert await desk.bytes_of(Stream.STDERR) == b"oh\n"
    assert await desk.bytes_of(Stream.BUILD) == b"[iris] prepared\n"


@given(
    lives=st.lists(
        st.tuples(
            st.binary(max_size=200),
            st.binary(max_size=200),
            st.integers(0, 3),
            st.booleans(),
            st.booleans(),
        ),
        min_size=1,
        max_size=6,
    )
)
@settings(max_examples=examples(60), deadline=None)
async def test_agents_that_die_and_take_over_store_every_byte_once(
    tmp_path_factory: pytest.TempPathFactory, lives: list[tuple[bytes, bytes, int, bool, bool]]
) -> None:
    """Whenever each dies: before or after a chunk was stored, with or without having put that down,
    its answer lost or not.
    """
    desk = Desk(tmp_path_factory.mktemp("desk"))
    written = {Stream.STDOUT: b"", Stream.STDERR: b""}
    for number, (out, err, times, forgets, unanswered) in enumerate(lives):
        shipper = desk.shipper(taken_over=number > 0)
        ended = times == 3
        for stream, data in ((Stream.STDOUT, out), (Stream.STDERR, err)):
            data += b"\n" * ended  # nothing is written after the end
            desk.write(stream, data)
            written[stream] += data
        desk.store.loses_answers = unanswered
        for _ in range(times):
            await shipper.ship(ended=ended)
        if forgets:
            (desk.dir / "shipped.json").unlink(missing_ok=True)
    desk.store.loses_answers = False
    await all_shipped(desk.shipper(taken_over=True))

    for stream, data in written.items():
        assert await desk.bytes_of(stream) == data


async def test_a_log_is_in_the_order_of_its_times_although_the_clock_is_set_back(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line's place and its time must agree, also for the agent that takes over."""
    clock = iter((5_000, 4_000, 3_000, 6_000))
    monkeypatch.setattr(time, "time_ns", lambda: next(clock) * 1_000_000)
    for number in range(4):
        desk.write(Stream.STDOUT, b"%d\n" % number)
        await all_shipped(desk.shipper(taken_over=number > 0))

    stored = [(line.at_ms, line.data) for line in await desk.stored()]
    assert stored == [(5_000, b"0"), (5_000, b"1"), (5_000, b"2"), (6_000, b"3")]


async def test_a_store_that_is_away_costs_nothing_but_time(desk: Desk) -> None:
    """The file is the buffer; and memory holds no more than a piece of it."""
    shipper = desk.shipper()
    desk.store.away = True
    for number in range(200):
        desk.write(Stream.STDOUT, f"line {number} {'x' * 10_000}\n".encode())
        assert not await shipper.ship()
    desk.store.away = False
    await all_shipped(shipper)

    assert await desk.bytes_of(Stream.STDOUT) == desk.files[Stream.STDOUT].read_bytes()


async def test_a_store_that_is_away_for_too_long_costs_the_oldest_and_the_log_says_so(
    desk: Desk,
) -> None:
    """Neither does the disk fill up for ever, nor does anybody believe that nothing is missing."""
    shipper = desk.shipper(max_backlog=1_000_000)
    desk.store.away = True
    for number in range(500):
        desk.write(Stream.STDOUT, f"{number:06} {'x' * 10_000}\n".encode())
        await shipper.ship()
    desk.store.away = False
    await all_shipped(shipper)

    kept = (await desk.bytes_of(Stream.STDOUT)).splitlines()
    gaps = [
        int(line.data.split()[2])
        for line in await desk.stored()
        if line.data.startswith(b"[iris] gap: ")
    ]
    assert kept[-1].startswith(b"000499")
    assert len(gaps) > 0
    assert (
        sum(gaps) + len(await desk.bytes_of(Stream.STDOUT))
        == desk.files[Stream.STDOUT].stat().st_size
    )


async def test_an_agent_that_takes_over_behind_a_gap_repeats_nothing(desk: Desk) -> None:
    """What is missing counts as read, also for one that knows it only from the store."""
    shipper = desk.shipper(max_backlog=300_000)
    desk.store.away = True
    desk.write(
        Stream.STDOUT, b"".join(f"{number:06} {'x' * 1_000}\n".encode() for number in range(2_000))
    )
    for _ in range(5):
        await shipper.ship()
    desk.store.away = False
    await all_shipped(shipper)
    before = await desk.bytes_of(Stream.STDOUT)
    (desk.dir / "shipped.json").unlink()
    desk.write(Stream.STDOUT, b"behind\n")
    await all_shipped(desk.shipper(taken_over=True))

    assert await desk.bytes_of(Stream.STDOUT) == before + b"behind\n"


async def test_an_agent_that_takes_over_waits_for_a_store_that_is_away(desk: Desk) -> None:
    """It cannot know where to go on."""
    first = desk.shipper()
    desk.write(Stream.STDOUT, b"one\n")
    await all_shipped(first)
    second = desk.shipper(taken_over=True)
    desk.write(Stream.STDOUT, b"two\n")
    desk.store.away = True
    assert not await second.ship(ended=True)
    desk.store.away = False
    await all_shipped(second)

    assert await desk.bytes_of(Stream.STDOUT) == b"one\ntwo\n"
    assert second.last_lines == "one\ntwo"


async def test_what_has_been_stored_gives_its_disk_back(desk: Desk) -> None:
    """A program that talks for weeks does not fill the disk of its host."""
    shipper = desk.shipper()
    file = desk.files[Stream.STDOUT]
    for _ in range(40):
        desk.write(Stream.STDOUT, b"x" * 999_999 + b"\n")
        await all_shipped(shipper)

    assert file.stat().st_blocks * 512 < 12_000_000 < file.stat().st_size
    assert (await desk.store.get(store_paths.log_chunk(PREFIX, 0))) is not None


async def test_a_log_that_somebody_deletes_is_no_empty_log(desk: Desk) -> None:
    """The attempt cannot go on, and its host says so."""
    shipper = desk.shipper()
    desk.write(Stream.STDOUT, b"one\n")
    await all_shipped(shipper)
    desk.files[Stream.STDOUT].unlink()

    with pytest.raises(FileNotFoundError):
        await shipper.ship()
