"""The answer to who used what, from the records and the prices in a store."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest
from temporalio.client import Client

from iris.client.cluster import ClusterClient
from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.rpc import Connection
from iris.model import names
from iris.model.errors import InvalidValue, Rejected, Unreachable
from iris.storage.object_store import Store
from iris.usage.accounting import Accounting
from iris.usage.lines import day_folder, day_of, to_objects
from iris.usage.records import DroppedUses, Record
from iris.worker_agents.control_plane.accounting import publish
from tests.usage.made_uses import DAY, DOLLAR, T, at, attempt, slice_use


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path.as_uri())


def cluster(store: str) -> ClusterClient:
    """A cluster whose service is never asked: the records are in the store."""
    record = ClusterRecord(name="c", address="nowhere:1", store=store)
    return ClusterClient(Connection(cast(Client, None), record))


async def put(store: Store, *records: Record) -> None:
    for path, content in to_objects("c", records).items():
        await store.put(path, content)


async def test_the_answer_has_the_records_the_prices_and_the_teams(store: Store) -> None:
    """Everything that a client needs is in the store."""
    await put(store, slice_use(0, 1, 30), attempt(2, 4), attempt(28, 30, id="b", user="bob"))
    accounting = Accounting(currency="EUR", rates=DOLLAR, teams={"vision": ("ada",)})
    await publish(store, "c", accounting)
    report = await cluster(store.url).usage(["team", "user"], since=T, until=at(29))
    assert {tuple(row.by.values()): row.cost for row in report.rows} == {
        ("vision", "ada"): 2.0,
        ("", "bob"): 1.0,
    }
    assert (report.currency, report.gaps) == ("EUR", ())


async def test_new_prices_replace_the_old_ones_and_none_remain(store: Store) -> None:
    """A configuration without prices has no costs, whatever it had before."""
    await put(store, slice_use(0, 1, 30), attempt(2, 4))
    for accounting, cost in ((Accounting(rates=DOLLAR), 2.0), (Accounting(), None)):
        await publish(store, "c", accounting)
        assert (await cluster(store.url).usage(since=T, until=at(29))).total.cost == cost


async def test_a_time_without_records_has_no_rows(store: Store) -> None:
    """A new cluster has no records; that is no error."""
    report = await cluster(store.url).usage()
    assert report.rows == ()
    assert report.until - report.since == timedelta(days=7)
    assert abs(report.until - datetime.now(UTC)) < timedelta(minutes=1)


async def test_a_time_is_given_by_its_length_or_its_ends(store: Store) -> None:
    """`since` before `until` by three days, or from Monday on."""
    by_length = await cluster(store.url).usage(since=3 * DAY, until=T + 3 * DAY)
    by_ends = await cluster(store.url).usage(since=T, until=T + 3 * DAY)
    assert (by_length.since, by_length.until) == (by_ends.since, by_ends.until)


@pytest.mark.parametrize(
    ("by", "since"), [(["colour"], T), (["tag:"], T), (["user", "user"], T), (["user"], at(24))]
)
async def test_a_wrong_question_is_refused(store: Store, by: list[str], since: datetime) -> None:
    """An unknown key would be a column of empty values."""
    with pytest.raises(InvalidValue):
        await cluster(store.url).usage(by, since=since, until=T)


async def test_what_is_lost_or_cannot_be_read_is_said(store: Store) -> None:
    """A sum that is too small must say so."""
    lost = DroppedUses(id="d", count=7, since=at(1), until=at(2))
    await put(store, attempt(1, 2), lost)
    await store.put(f"{day_folder('c', day_of(T))}/x.jsonl", b'{"kind":"new"}\n')
    report = await cluster(store.url).usage(since=T, until=at(29))
    assert len(report.gaps) == 2
    assert "7 uses are lost" in report.gaps[0]


async def test_without_a_store_the_error_says_so(tmp_path: Path) -> None:
    """No store, no records; a store that is away is not an empty one."""
    with pytest.raises(Rejected, match="has no store"):
        await cluster("").usage()
    with pytest.raises(Unreachable):
        await cluster((tmp_path / "away").as_uri()).usage()


async def test_prices_that_cannot_be_read_are_an_error(store: Store) -> None:
    """Not costs of nothing."""
    await store.put(names.accounting("c"), b"{")
    with pytest.raises(Rejected, match="cannot be read"):
        await cluster(store.url).usage()
