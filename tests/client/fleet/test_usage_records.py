"""The records of use in the store: read, merged, and damaged."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris.client.fleet import usage_records
from iris.client.fleet.usage_records import merge_objects, read_uses
from iris.model import store_paths
from iris.model.job.spec import Band
from iris.storage.object_store import Store
from iris.usage.lines import day_folder, day_of, to_line, to_objects
from iris.usage.records import AttemptUse, DroppedUses, Record, SliceUse, Use, UseEnd

DAY = timedelta(days=1)
NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)
BEGINNING, END = datetime(2020, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)


def an_attempt(
    name: str, ended: datetime = NOON, end: UseEnd = UseEnd.SUCCEEDED, hours: float = 1
) -> AttemptUse:
    return AttemptUse(
        id=f"ada/{name}:0@1/019ac3f2-7b12",
        job=f"ada/{name}",
        user="ada",
        band=Band.BATCH,
        hosts=1,
        host_share=0.5,
        placed_at=ended - timedelta(hours=hours),
        ended_at=ended,
        end=end,
    )


def a_slice(name: str, gone: datetime = NOON) -> SliceUse:
    return SliceUse(
        id=name,
        group="tpu",
        zone="z",
        machine="v5e",
        hosts=1,
        requested_at=gone - DAY,
        gone_at=gone,
    )


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path.as_uri())


async def put(store: Store, *records: Record) -> None:
    for path, content in to_objects("c", records).items():
        await store.put(path, content)


async def stored(
    store: Store, since: datetime = BEGINNING, until: datetime = END
) -> dict[str, Use]:
    found = [use async for use in read_uses(store, "c", since, until)]
    assert len(found) == len({use.id for use in found}), "a record came twice"
    return {use.id: use for use in found}


async def paths(store: Store) -> list[str]:
    return [path for path, _ in await store.sizes(store_paths.usage_records("c"))]


async def test_what_was_stored_is_read_each_record_once(store):
    """The control plane stores a record again when it does not know that it is stored."""
    attempt, slice_ = an_attempt("a"), a_slice("s1")
    await put(store, attempt, slice_)
    await put(store, attempt)
    assert await stored(store) == {attempt.id: attempt, "s1": slice_}


async def test_a_period_has_the_uses_that_overlap_it(store):
    """A job of three days counts in each of them, though its record is in the folder of the last
    one.
    """
    await put(
        store,
        an_attempt("before", NOON - 2 * DAY),
        an_attempt("into", NOON - DAY, hours=48),
        an_attempt("over", NOON + DAY, hours=72),
        an_attempt("after", NOON + DAY),
    )
    found = await stored(store, NOON - DAY - timedelta(hours=2), NOON)
    assert {use.id.partition(":")[0] for use in found.values()} == {"ada/into", "ada/over"}


async def test_days_before_the_period_are_not_read(store):
    """A cluster of many years reads the folders that can have what is asked for, and no others."""
    await put(store, an_attempt("a"))
    await store.put(f"{day_folder('c', day_of(NOON - DAY))}/x.jsonl", b"no record\n")
    uses = read_uses(store, "c", NOON - timedelta(hours=3), END)
    assert len([use async for use in uses]) == 1
    assert uses.unreadable == 0


async def test_a_line_without_a_record_is_counted_and_the_others_are_read(store):
    """A later version may write kinds of records that this one does not know."""
    attempt = an_attempt("a")
    content = to_line(attempt) + b'{"kind":"disk","id":"x"}\n' + to_line(an_attempt("b"))[:40]
    await store.put(f"{day_folder('c', day_of(NOON))}/x.jsonl", content)
    await store.put(f"{store_paths.usage_records('c')}/notes/readme.txt", b"not of Iris")
    uses = read_uses(store, "c", BEGINNING, END)
    assert [use async for use in uses] == [attempt]
    assert uses.unreadable == 2


async def test_lost_records_are_counted(store):
    """A reader can say that the sums are too small."""
    lost = DroppedUses(id="d", count=7, since=NOON - DAY, until=NOON)
    await put(store, lost, an_attempt("a"))
    uses = read_uses(store, "c", BEGINNING, END)
    assert len([use async for use in uses]) == 1
    assert uses.dropped == 7


async def test_a_known_end_replaces_an_unknown_one(store):
    """A scheduler that lost its ledger may have given up a gang that another one has seen end."""
    await put(store, an_attempt("a", NOON - DAY, UseEnd.UNKNOWN))
    await put(store, an_attempt("a", NOON, UseEnd.FAILED))
    await put(store, an_attempt("b", NOON, UseEnd.UNKNOWN))
    ends = {use.job: use.end for use in (await stored(store)).values() if use.kind == "attempt"}
    assert ends == {"ada/a": UseEnd.FAILED, "ada/b": UseEnd.UNKNOWN}


async def test_the_objects_of_a_past_day_become_one(store):
    """There is one every half minute. Reading a year of them would take hours."""
    for number in range(5):
        await put(store, an_attempt(f"j{number}"), an_attempt("twice"))
    before = await stored(store)
    assert await merge_objects(store, "c", NOON) == 0, "the day is not over"
    assert await merge_objects(store, "c", NOON + DAY) == 5
    assert await stored(store) == before
    assert len(before) == 6
    assert len(await paths(store)) == 1
    assert await merge_objects(store, "c", NOON + DAY) == 0


async def test_many_objects_of_the_present_day_become_one(store, monkeypatch):
    """The use of today is asked for most often."""
    monkeypatch.setattr(usage_records, "MOST_OBJECTS", 3)
    for number in range(4):
        await put(store, an_attempt(f"j{number}"))
    assert await merge_objects(store, "c", NOON) == 4
    assert len(await stored(store)) == 4


async def test_merged_objects_do_not_grow_without_limit(store, monkeypatch):
    """A merge has whole objects in memory, as a reader has."""
    monkeypatch.setattr(usage_records, "MERGED_BYTES", 2 * len(to_line(an_attempt("j0"))))
    for number in range(6):
        await put(store, an_attempt(f"j{number}"))
    await merge_objects(store, "c", NOON + DAY)
    assert len(await paths(store)) == 3
    assert len(await stored(store)) == 6


async def test_an_object_with_an_unknown_line_is_not_merged(store):
    """A later version of the control plane wrote it, and will read it."""
    unknown = f"{day_folder('c', day_of(NOON))}/x.jsonl"
    await store.put(unknown, to_line(an_attempt("x")) + b'{"kind":"disk"}\n')
    await put(store, an_attempt("a"))
    await put(store, an_attempt("b"))
    assert await merge_objects(store, "c", NOON + DAY) == 2
    assert unknown in await paths(store)
    assert len(await stored(store)) == 3


class Killed(Exception):
    """Ends a merge in the middle."""


class Breaking(Store):
    """A store before which a process is killed, after so many writes and deletions. A deletion of
    several objects may end after some of them.
    """

    def __init__(self, url: str, left: int) -> None:
        super().__init__(url)
        self._left = left

    def _use(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Killed

    async def put(self, path: str, data: bytes) -> None:
        self._use()
        await super().put(path, data)

    async def delete(self, paths) -> None:
        for path in paths:
            self._use()
            await super().delete([path])


@settings(max_examples=40, deadline=None)
@given(
    objects=st.lists(st.sets(st.integers(0, 9), min_size=1), min_size=1, max_size=6),
    kills=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=3),
)
def test_no_record_is_lost_by_merges_that_are_killed_or_meet(tmp_path_factory, objects, kills):
    """Two control planes may merge at the same time, and each may die at any place."""

    async def run() -> None:
        url = tmp_path_factory.mktemp("store").as_uri()
        for members in objects:
            await put(Store(url), *(an_attempt(f"j{number}") for number in members))
        before = await stored(Store(url))
        for pair in kills:
            both = [merge_objects(Breaking(url, left), "c", NOON + DAY) for left in pair]
            for result in await asyncio.gather(*both, return_exceptions=True):
                assert isinstance(result, int | Killed), result
            assert await stored(Store(url)) == before
        while await merge_objects(Store(url), "c", NOON + DAY):
            pass
        assert await stored(Store(url)) == before
        assert len(await paths(Store(url))) == 1

    asyncio.run(run())
