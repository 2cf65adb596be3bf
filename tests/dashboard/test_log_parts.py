"""Parts of a log: each line is on exactly one page, and a stream goes on where it ended."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.dashboard.log_parts import (
    MOST_AT_ONCE,
    MOST_CHARACTERS,
    MOST_LINES,
    News,
    Selection,
    last_part,
    news,
    parse_place,
    parse_position,
    position_text,
)
from iris.model import store_paths
from iris.model.errors import InvalidValue
from iris.storage.log_format import MAX_PIECE, Stream, encode
from iris.storage.object_store import Store

JOB, RUN = "ada/train", "0123456789abcdef"
ALL = Selection(JOB, RUN, None, 2)


async def write(store: Store, task: int, sequence: int, *lines: tuple[int, str]) -> None:
    """Writes a chunk of lines, each with its time in milliseconds."""
    records = [encode(at, Stream.STDOUT, [(text.encode(), False)]) for at, text in lines]
    path = store_paths.log_chunk(store_paths.attempt_logs(JOB, RUN, task, 1), sequence)
    await store.put(path, b"".join(records))


async def pages(store: Store, wanted: Selection, most: int) -> list[list[str]]:
    """The pages from the last to the first one."""
    found, before = [], None
    while True:
        part = await last_part(store, wanted, before, most)
        found.append([entry.text for entry in part.entries])
        if part.earlier is None:
            return found
        before = parse_place(str(part.earlier))


@given(
    tasks=st.lists(
        st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), max_size=4),
        min_size=1,
        max_size=2,
    ),
    most=st.integers(1, 5),
)
async def test_each_line_is_on_exactly_one_page(
    tmp_path_factory: pytest.TempPathFactory, tasks: list[list[list[int]]], most: int
) -> None:
    """A program writes many lines in one millisecond, and several tasks write at the same time."""
    store = Store(f"file://{tmp_path_factory.mktemp('store')}", create=True)
    written = []
    for task, chunks in enumerate(tasks):
        at = 1_000
        for sequence, steps in enumerate(chunks):
            lines = []
            for step in steps:
                at += step
                written.append(f"{task} line {len(written)}")
                lines.append((at, written[-1]))
            await write(store, task, sequence, *lines)

    found = await pages(store, ALL, most)

    assert sorted(text for page in found for text in page) == sorted(written)
    for task in range(len(tasks)):
        own = [text for page in reversed(found) for text in page if text.startswith(f"{task} ")]
        assert own == [text for text in written if text.startswith(f"{task} ")]


async def test_a_search_finds_lines_on_all_pages(tmp_path: Path) -> None:
    """Upper and lower case are the same, as in the other filters."""
    store = Store(f"file://{tmp_path}", create=True)
    await write(store, 0, 0, *((n, f"Loss {n}" if n % 3 == 0 else "x") for n in range(30)))

    found = await pages(store, ALL._replace(find="loss"), 4)

    assert [text for page in reversed(found) for text in page] == [
        f"Loss {n}" for n in range(0, 30, 3)
    ]


async def test_long_lines_do_not_make_a_page_long(tmp_path: Path) -> None:
    """Lines of a megabyte each would make a page of a gigabyte."""
    store = Store(f"file://{tmp_path}", create=True)
    for sequence in range(200):
        await write(store, 0, sequence, (sequence, "x" * MAX_PIECE))

    part = await last_part(store, ALL)

    assert part.earlier is not None
    assert 0 < len(part.entries) <= MOST_CHARACTERS / 8_000 + 1


async def collected(
    store: Store, wanted: Selection, position: str, ended: "asyncio.Future[None]", upto: int
) -> list[News]:
    """The news from a position on, until there are so many lines."""
    reader = wanted.reader(store, parse_position(position))
    found: list[News] = []
    async for each in news(reader, wanted, ended, 0.01):
        found.append(each)
        if sum(len(one.entries) for one in found) >= upto:
            break
    return found


async def test_a_stream_goes_on_at_the_position_where_another_ended(tmp_path: Path) -> None:
    """The control plane restarts, and the browser sends the position of its last event."""
    store = Store(f"file://{tmp_path}", create=True)
    running = asyncio.get_running_loop().create_future()
    await write(store, 0, 0, (1, "a"), (2, "b"))
    part = await last_part(store, ALL)
    await write(store, 0, 1, (3, "c"))
    first = await collected(store, ALL, position_text(part.position), running, 1)
    await write(store, 0, 2, (4, "d"))
    await write(store, 1, 0, (4, "other task"))
    running.set_result(None)
    second = await collected(store, ALL, position_text(first[-1].position), running, 9)

    texts = [entry.text for each in (*first, *second) for entry in each.entries]
    assert [entry.text for entry in part.entries] + texts == ["a", "b", "c", "d", "other task"]


async def test_a_flood_of_new_lines_is_cut_and_says_so(tmp_path: Path) -> None:
    """A page keeps some thousand lines; the download has all."""
    store = Store(f"file://{tmp_path}", create=True)
    ended = asyncio.get_running_loop().create_future()
    ended.set_result(None)
    await write(store, 0, 0, *((n, str(n)) for n in range(MOST_LINES + 500)))

    (only,) = await collected(store, ALL, "0.1.0", ended, 10**6)

    assert only.left_out == 500
    assert only.entries[-1].text == str(MOST_LINES + 499)


async def test_long_lines_of_one_event_are_few(tmp_path: Path) -> None:
    """A job that writes megabytes a second must not make the control plane render them all."""
    store = Store(f"file://{tmp_path}", create=True)
    ended = asyncio.get_running_loop().create_future()
    ended.set_result(None)
    await write(store, 0, 0, *((n, "x" * 8_000) for n in range(60)))

    (only,) = await collected(store, ALL, "0.1.0", ended, 10**6)

    assert sum(len(each.text) for each in only.entries) <= MOST_AT_ONCE
    assert only.left_out == 60 - len(only.entries) > 0


async def test_a_line_without_its_end_is_shown_before_it_ends(tmp_path: Path) -> None:
    """A progress bar has no newline for hours."""
    store = Store(f"file://{tmp_path}", create=True)
    ended = asyncio.get_running_loop().create_future()
    ended.set_result(None)
    path = store_paths.log_chunk(store_paths.attempt_logs(JOB, RUN, 0, 1), 0)
    await store.put(path, encode(1, Stream.STDERR, [(b"10%\r20%", True)]))

    (only,) = await collected(store, ALL, "0.1.0", ended, 10**6)

    assert [entry.text for entry in only.begun] == ["10%\r20%"]
    assert only.entries == []


@pytest.mark.parametrize("text", ["5", "x~1", "-1~0", "1~" + "9" * 50, "<script>~0"])
def test_a_wrong_place_is_refused(text: str) -> None:
    """The address comes from anybody."""
    with pytest.raises(InvalidValue):
        parse_place(text)


@pytest.mark.parametrize("text", ["", "x", "1.1", "1.1.x", "1.1.1__", "1.1.-1"])
def test_a_wrong_position_is_none(text: str) -> None:
    """The stream then begins with the last lines."""
    assert parse_position(text) is None
