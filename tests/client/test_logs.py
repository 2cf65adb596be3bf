"""Reading logs back from the store, while they grow and afterwards."""

from pathlib import Path

import pytest

from iris import names
from iris.activities.logship import LogShipper
from iris.client.logs import LogReader, TaskLine
from iris.store import Store

JOB, RUN = "ada/train", "0123456789abcdef"


class Writer:
    """A task whose output is shipped whenever a test says so."""

    def __init__(self, store: Store, directory: Path, task: int = 0, attempt: int = 1) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._out, self._err = directory / f"{task}.{attempt}.out", directory / f"{task}.{attempt}.err"
        self._out.touch()
        self._err.touch()
        self._shipper = LogShipper(store, names.attempt_logs(JOB, RUN, task, attempt), self._out, self._err)

    async def writes(self, text: bytes, *, ended: bool = True) -> None:
        with self._out.open("ab") as out:
            out.write(text)
        while not await self._shipper.ship(ended=ended) and ended:
            pass


async def lines_of(reader: LogReader) -> list[TaskLine]:
    return [line for piece in [piece async for piece in reader.new_lines()] for line in piece]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store((tmp_path / "store").as_uri())


async def test_a_reader_that_goes_on_loses_and_repeats_no_line(store: Store, tmp_path: Path) -> None:
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

    assert [(line.attempt, line.line.text) for line in before + after] == [(1, "first"), (2, "second")]


async def test_one_task_or_one_attempt_can_be_read_alone(store: Store, tmp_path: Path) -> None:
    """With a thousand tasks nobody wants to read them all."""
    for task in (0, 1):
        for attempt in (1, 2):
            await Writer(store, tmp_path, task, attempt).writes(b"task %d attempt %d\n" % (task, attempt))

    only_task = await lines_of(LogReader(store, JOB, RUN, task=1))
    only_attempt = await lines_of(LogReader(store, JOB, RUN, task=1, attempt=2))

    assert [line.line.text for line in only_task] == ["task 1 attempt 1", "task 1 attempt 2"]
    assert [line.line.text for line in only_attempt] == ["task 1 attempt 2"]


@pytest.mark.parametrize(("count", "expected"), [(0, []), (1, ["c"]), (2, ["b", "c"]), (9, ["a", "b", "c"])])
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


async def test_output_is_stored_within_a_chunk_or_a_second_not_only_at_the_end(store: Store, tmp_path: Path) -> None:
    """A running task's log can be read: a full chunk is stored although the program goes on."""
    writer = Writer(store, tmp_path)
    text = b"".join(b"%06d %s\n" % (number, b"x" * 90) for number in range(1000))

    await writer.writes(text, ended=False)

    assert len(await lines_of(LogReader(store, JOB, RUN))) == 1000
