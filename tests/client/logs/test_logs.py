"""Reading logs back from the store, while they grow and afterwards."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from iris.activities.host.files.logs import LogShipper
from iris.client.logs.entries import Entries
from iris.client.logs.reading import QUICK_LOOKS, QUIET
from iris.client.logs.selection import streams_of
from iris.client.logs.stored import LogReader, TaskLine
from iris.client.logs.whole_lines import whole_lines
from iris.model import store_paths
from iris.model.errors import InvalidValue
from iris.storage.log_format import MAX_PIECE, LogLine, Stream, encode
from iris.storage.object_store import Store

JOB, RUN = "ada/train", "0123456789abcdef"


class Writer:
    """A task whose output is shipped whenever a test says so."""

    def __init__(self, store: Store, directory: Path, task: int = 0, attempt: int = 1) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._out, self._err = (
            directory / f"{task}.{attempt}.out",
            directory / f"{task}.{attempt}.err",
        )
        self._out.touch()
        self._err.touch()
        files = {Stream.STDOUT: self._out, Stream.STDERR: self._err}
        self._shipper = LogShipper(store, store_paths.attempt_logs(JOB, RUN, task, attempt), files)

    async def writes(self, text: bytes, *, ended: bool = True) -> None:
        with self._out.open("ab") as out:
            out.write(text)
        while not await self._shipper.ship(ended=ended) and ended:
            pass


class WatchedStore(Store):
    """Counts what is asked of it, and fails when it is told to."""

    def __init__(self, url: str) -> None:
        super().__init__(url, create=True)
        self.gets = 0
        self.away = False

    async def get(self, path: str, most: int | None = None) -> bytes | None:
        self.gets += 1
        if self.away:
            raise ConnectionError("the store is away")
        return await super().get(path, most)


async def stored(
    store: Store, task: int, lines: Sequence[tuple[int, str]], *, attempt: int = 1, chunk: int = 2
) -> None:
    """The log of an attempt that wrote these at these times, so many lines in a chunk."""
    prefix = store_paths.attempt_logs(JOB, RUN, task, attempt)
    for sequence, start in enumerate(range(0, len(lines), chunk)):
        records = [
            encode(at, Stream.STDOUT, [(text.encode(), False)])
            for at, text in lines[start : start + chunk]
        ]
        await store.put(store_paths.log_chunk(prefix, sequence), b"".join(records))


def texts(lines: Sequence[TaskLine]) -> list[str]:
    return [entry.line.text for entry in lines]


async def lines_of(reader: LogReader) -> list[TaskLine]:
    return [line for piece in [piece async for piece in reader.new_lines()] for line in piece]


@pytest.fixture
def store(tmp_path: Path) -> WatchedStore:
    return WatchedStore((tmp_path / "store").as_uri())


async def test_a_reader_that_goes_on_loses_and_repeats_no_line(
    store: Store, tmp_path: Path
) -> None:
    """`logs -f` looks again and again; every line must be seen exactly once."""
    writer, reader = Writer(store, tmp_path), LogReader(store, JOB, RUN)
    seen = []
    for number in range(5):
        await writer.writes(b"line %d\n" % number)
        seen += [line.line.text for line in await lines_of(reader)]
        assert await lines_of(reader) == []

    assert seen == [f"line {number}" for number in range(5)]


async def test_a_second_attempt_is_read_after_the_first(store: Store, tmp_path: Path) -> None:
    """A retried task's story is told in order, and `-f` follows it into the next attempt."""
    reader = LogReader(store, JOB, RUN)
    await Writer(store, tmp_path, attempt=1).writes(b"first\n")
    before = await lines_of(reader)
    await Writer(store, tmp_path, attempt=2).writes(b"second\n")

    after = await lines_of(reader)

    assert [(line.attempt, line.line.text) for line in before + after] == [
        (1, "first"),
        (2, "second"),
    ]


async def test_one_task_or_one_attempt_can_be_read_alone(store: Store, tmp_path: Path) -> None:
    """With a thousand tasks nobody wants to read them all."""
    for task in (0, 1):
        for attempt in (1, 2):
            await Writer(store, tmp_path, task, attempt).writes(
                b"task %d attempt %d\n" % (task, attempt)
            )

    only_task = await lines_of(LogReader(store, JOB, RUN, task=1))
    only_attempt = await lines_of(LogReader(store, JOB, RUN, task=1, attempt=2))

    assert [line.line.text for line in only_task] == ["task 1 attempt 1", "task 1 attempt 2"]
    assert [line.line.text for line in only_attempt] == ["task 1 attempt 2"]


@pytest.mark.parametrize(
    ("count", "expected"), [(0, []), (1, ["c"]), (2, ["b", "c"]), (9, ["a", "b", "c"])]
)
async def test_a_tail_is_the_last_lines_and_reading_goes_on_behind_it(
    store: Store, tmp_path: Path, count: int, expected: list[str]
) -> None:
    """`logs --tail 2 -f` shows two lines and then only new ones."""
    writer, reader = Writer(store, tmp_path), LogReader(store, JOB, RUN)
    for line in (b"a\n", b"b\n", b"c\n"):
        await writer.writes(line)

    tail = await reader.tail(count)
    await writer.writes(b"d\n")

    assert [line.line.text for line in tail] == expected
    assert [line.line.text for line in await lines_of(reader)] == ["d"]


async def test_output_is_stored_within_a_chunk_or_a_second_not_only_at_the_end(
    store: Store, tmp_path: Path
) -> None:
    """A running task's log can be read: a full chunk is stored although the program goes on."""
    writer = Writer(store, tmp_path)
    text = b"".join(b"%06d %s\n" % (number, b"x" * 90) for number in range(1000))

    await writer.writes(text, ended=False)

    assert len(await lines_of(LogReader(store, JOB, RUN))) == 1000


async def test_tasks_are_put_together_by_time_however_their_chunks_are_cut(store: Store) -> None:
    """One writes much and one little: a chunk of the one is a second, of the other an hour."""
    await stored(store, 0, [(at, f"busy {at}") for at in range(0, 100, 2)])
    await stored(store, 1, [(at, f"quiet {at}") for at in range(1, 100, 30)], chunk=50)

    lines = await lines_of(LogReader(store, JOB, RUN))

    assert [entry.line.at_ms for entry in lines] == sorted([*range(0, 100, 2), *range(1, 100, 30)])


async def test_the_attempts_of_a_task_follow_each_other_although_their_hosts_clocks_differ(
    store: Store,
) -> None:
    """The order in which they ran is known better than the time; a clock that was set back confuses
    nothing either.
    """
    await stored(
        store, 0, [(900, "first"), (950, "attempt"), (300, "set back")], attempt=1, chunk=1
    )
    await stored(store, 0, [(100, "second"), (101, "attempt")], attempt=2)
    await stored(store, 1, [(500, "another task"), (20, "set back, too")])

    lines = await lines_of(LogReader(store, JOB, RUN))

    assert [text for entry, text in zip(lines, texts(lines), strict=True) if entry.task == 0] == [
        "first",
        "attempt",
        "set back",
        "second",
        "attempt",
    ]
    assert len(lines) == 7
    assert texts(await LogReader(store, JOB, RUN, task=0).tail(3)) == [
        "set back",
        "second",
        "attempt",
    ]


@pytest.mark.long
async def test_a_long_log_is_read_several_chunks_at_once_and_in_order(store: Store) -> None:
    """From a bucket a chunk takes 50 ms, and a day of output has thousands."""
    await stored(store, 0, [(at, str(at)) for at in range(2001)])
    reader = LogReader(store, JOB, RUN)
    assert texts(await lines_of(reader)) == [str(at) for at in range(2001)]

    # Its last chunk was half full; it is not read again.
    await stored(store, 0, [(at, str(at)) for at in range(2006)])
    assert texts(await lines_of(reader)) == ["2002", "2003", "2004", "2005"]


async def test_a_store_that_is_away_for_a_moment_costs_no_line(store: WatchedStore) -> None:
    """A follower goes on where it was when the store comes back."""
    await stored(store, 0, [(at, str(at)) for at in range(50)], chunk=1)
    reader = LogReader(store, JOB, RUN)
    seen: list[TaskLine] = []
    pieces = reader.new_lines()
    seen += await anext(pieces)
    store.away = True
    with pytest.raises(ConnectionError):
        await anext(pieces)
    store.away = False

    seen += await lines_of(reader)

    assert texts(seen) == [str(at) for at in range(50)]


@pytest.mark.long
async def test_only_what_is_new_enough_is_read(store: WatchedStore) -> None:
    """The last ten minutes of a week must not take the time of a week."""
    await stored(store, 0, [(at, str(at)) for at in range(4000)])
    await stored(store, 1, [(at, f"other {at}") for at in range(10)])
    reader = LogReader(store, JOB, RUN, since_ms=3991)

    assert texts(await lines_of(reader)) == [str(at) for at in range(3991, 4000)]
    # Of 2,000 chunks: a search by halves, the newest ones, and what was requested ahead of the end.
    assert store.gets < 80
    assert texts(await LogReader(store, JOB, RUN, since_ms=3991).tail(3)) == [
        "3997",
        "3998",
        "3999",
    ]
    assert texts(await LogReader(store, JOB, RUN, task=0, since_ms=3998).tail(9)) == [
        "3998",
        "3999",
    ]
    assert await lines_of(LogReader(store, JOB, RUN, since_ms=4000)) == []
    assert len(await lines_of(LogReader(store, JOB, RUN, since_ms=0))) == 4010


@pytest.mark.long
async def test_a_tail_reads_only_the_end(store: WatchedStore) -> None:
    """The last ten lines of a gigabyte are there at once."""
    await stored(store, 0, [(at, str(at)) for at in range(4000)])

    assert texts(await LogReader(store, JOB, RUN).tail(3)) == ["3997", "3998", "3999"]
    assert store.gets < 5


async def test_one_stream_can_be_read_alone_also_its_tail(store: Store) -> None:
    """How the environment was set up is in the same log as what the program printed afterwards."""
    prefix = store_paths.attempt_logs(JOB, RUN, 0, 1)
    await store.put(
        store_paths.log_chunk(prefix, 0),
        encode(1, Stream.BUILD, [(b"installing", False), (b"installed", False)]),
    )
    await store.put(
        store_paths.log_chunk(prefix, 1),
        encode(2, Stream.STDOUT, [(b"out", False)]) + encode(3, Stream.STDERR, [(b"err", False)]),
    )

    assert texts(await lines_of(LogReader(store, JOB, RUN, streams={Stream.BUILD}))) == [
        "installing",
        "installed",
    ]
    assert texts(await LogReader(store, JOB, RUN, streams={Stream.BUILD}).tail(1)) == ["installed"]
    assert texts(
        await lines_of(LogReader(store, JOB, RUN, streams={Stream.STDOUT, Stream.STDERR}))
    ) == ["out", "err"]


async def test_the_tail_of_several_tasks_has_whole_lines(store: Store) -> None:
    """Pieces of one task's long line lie between the lines of others; the line counts as one and is
    not cut.
    """
    prefix = store_paths.attempt_logs(JOB, RUN, 0, 1)
    pieces = encode(1, Stream.STDOUT, [(b"before", False), (b"a", True)])
    await store.put(
        store_paths.log_chunk(prefix, 0),
        pieces
        + encode(5, Stream.STDOUT, [(b"b", True)])
        + encode(9, Stream.STDOUT, [(b"c", False)]),
    )
    await stored(store, 1, [(at, f"other {at}") for at in (2, 3, 4, 6, 7)])

    assert texts(await LogReader(store, JOB, RUN).tail(2)) == ["a", "b", "other 7", "c"]


@pytest.mark.long
async def test_quick_looks_at_many_tasks_are_bounded_and_miss_nothing_in_the_end(
    store: WatchedStore,
) -> None:
    """Who follows a thousand tasks does not send a thousand requests four times a second; those
    that print are seen at once.
    """
    for task in range(300):
        await stored(store, task, [(1, f"{task} begins")])
    reader = LogReader(store, JOB, RUN)
    assert len(await lines_of(reader)) == 300
    for _ in range(QUIET + 1):
        assert [piece async for piece in reader.new_lines(quick=True)] == []
    store.gets = 0
    for _ in range(4):
        assert [piece async for piece in reader.new_lines(quick=True)] == []
    assert store.gets <= 4 * QUICK_LOOKS

    prefix = store_paths.attempt_logs(JOB, RUN, 7, 1)
    found: list[TaskLine] = []
    for sequence in range(1, 4):
        await store.put(
            store_paths.log_chunk(prefix, sequence),
            encode(sequence, Stream.STDOUT, [(b"%d" % sequence, False)]),
        )
        looks = 0
        while len(found) < sequence:
            looks += 1
            found += [line async for piece in reader.new_lines(quick=True) for line in piece]
        assert looks == 1 or sequence == 1  # it has shown that it prints
        assert looks <= 300 // QUICK_LOOKS + 2

    for task in range(300):
        await stored(store, task, [(1, f"{task} ends")], attempt=2)
    assert len(await lines_of(reader)) == 300


def test_a_line_that_was_stored_in_pieces_is_one_entry_of_the_log() -> None:
    """A slow program's text is stored before its newline; who reads lines in Python gets no empty
    one for the newline alone.
    """

    def piece(task: int, at: int, data: bytes, *, goes_on: bool) -> TaskLine:
        return TaskLine(task, 1, LogLine(at * 1000, Stream.STDOUT, data, goes_on))

    entries = Entries()
    pieces = [
        piece(0, 1, b"caf\xc3", goes_on=True),
        piece(1, 2, b"other", goes_on=False),
        piece(0, 3, b"\xa9", goes_on=True),
        piece(0, 4, b"", goes_on=False),
        piece(1, 5, b"name? ", goes_on=True),
    ]
    found = [*entries.add(pieces[:2]), *entries.add(pieces[2:])]
    assert [(each.task, each.time.timestamp(), str(each)) for each in found] == [
        (1, 2, "other"),
        (0, 4, "café"),
    ]
    assert [str(each) for each in entries.finish()] == ["name? "]
    assert list(entries.finish()) == []


async def followed(store: Store, until: "asyncio.Future[None]", *, tail: int) -> AsyncIterator[str]:
    """The text of each line, as `job.logs(follow=True, tail=tail)` yields them."""
    async for entry in whole_lines(LogReader(store, JOB, RUN), _done(until), "the log", tail=tail):
        yield entry.text


async def _done(until: "asyncio.Future[None]") -> None:
    await until


async def test_the_last_lines_are_yielded_whole_and_then_followed_without_a_gap(
    store: Store, tmp_path: Path
) -> None:
    """A program looks at the end of a long log; a line of many pieces is one line, and none comes
    twice.
    """
    writer, until = Writer(store, tmp_path), asyncio.get_running_loop().create_future()
    long = b"x" * (2 * MAX_PIECE)
    await writer.writes(b"first\nsecond\n" + long + b"\n")
    lines = followed(store, until, tail=2)
    seen = [await anext(lines), await anext(lines)]
    await writer.writes(b"third\n")
    until.set_result(None)
    seen += [text async for text in lines]

    assert seen == ["second", long.decode(), "third"]


async def test_only_the_lines_that_are_there_are_yielded_if_none_are_awaited(store: Store) -> None:
    """Without `follow` a call ends, also with `tail=0`."""
    await stored(store, 0, [(at, f"line {at}") for at in range(5)])

    async def texts_of(**options: Any) -> list[str]:
        reader = LogReader(store, JOB, RUN, since_ms=options.pop("since_ms", None))
        return [entry.text async for entry in whole_lines(reader, None, "the log", **options)]

    assert await texts_of(tail=None) == [f"line {at}" for at in range(5)]
    assert await texts_of(tail=2) == ["line 3", "line 4"]
    assert await texts_of(tail=0) == []
    assert await texts_of(tail=None, since_ms=3) == ["line 3", "line 4"]


def test_a_stream_is_chosen_by_its_name() -> None:
    """One or several, as `iris logs --stream`."""
    assert streams_of(None) is None
    assert streams_of("stderr") == {Stream.STDERR}
    assert streams_of(["stdout", "build"]) == {Stream.STDOUT, Stream.BUILD}
    for wrong in ("out", ["stdout", "out"], []):
        with pytest.raises(InvalidValue, match="is not a stream; write stdout, stderr, build"):
            streams_of(wrong)


async def test_a_reader_continues_at_the_position_of_another(tmp_path: Path) -> None:
    """The page of a log is read by one request and followed by another, maybe of another process."""
    store = Store(f"file://{tmp_path}", create=True)
    await stored(store, 0, [(n, f"a{n}") for n in range(4)])
    first = LogReader(store, JOB, RUN)
    assert texts(await first.tail(1)) == ["a3"]
    await stored(store, 0, [(n, f"a{n}") for n in range(6)])
    await stored(store, 1, [(7, "b")])

    second = LogReader(store, JOB, RUN, position=first.position)

    assert first.position == {(0, 1): 2}
    assert sorted(texts(await lines_of(second))) == ["a4", "a5", "b"]
    assert second.position == {(0, 1): 3, (1, 1): 1}


async def test_a_log_is_read_back_from_a_time_within_a_limit(tmp_path: Path) -> None:
    """The page of earlier lines must not read the log from its start."""
    store = WatchedStore(f"file://{tmp_path}")
    await stored(store, 0, [(n, f"line {n}") for n in range(2_000)])

    reader = LogReader(store, JOB, RUN)

    assert texts(await reader.tail(3, until_ms=1_000)) == ["line 998", "line 999", "line 1000"]
    assert reader.has_earlier
    assert store.gets < 20
    assert len(await reader.tail(10**6, most_bytes=1)) == 2
    assert texts(await reader.tail(3, until_ms=1)) == ["line 0", "line 1"]
    assert not reader.has_earlier
