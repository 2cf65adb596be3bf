"""The answer to who used what, from the records and the prices in a store."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest
from temporalio.client import Client

from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.rpc import Connection
from iris.client.fleet.cluster_store import store_of
from iris.client.fleet.usage_report import question, read_accounting, report_of
from iris.model import store_paths
from iris.model.errors import InvalidValue, Rejected, Unreachable
from iris.storage.object_store import Store
from iris.usage.accounting import Accounting
from iris.usage.lines import day_folder, day_of, to_objects
from iris.usage.records import DroppedUses, Record, Use, UseEnd
from iris.usage.report import UsageReport, WasteKind
from iris.worker_agents.control_plane.budgets import publish
from tests.usage.made_uses import DAY, DOLLAR, T, at, attempt, slice_use


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path.as_uri())


async def report(
    store: Store,
    by: Sequence[str] = ("user",),
    since: datetime | timedelta | None = T,
    until: datetime | None = None,
    present: Sequence[Use] = (),
) -> UsageReport:
    asked = question(by, since, until or at(29))
    return await report_of(store, "c", asked, present, await read_accounting(store, "c"))


async def put(store: Store, *records: Record) -> None:
    for path, content in to_objects("c", records).items():
        await store.put(path, content)


async def test_the_answer_has_the_records_the_prices_and_the_teams(store: Store) -> None:
    """Everything that a client needs is in the store."""
    await put(store, slice_use(0, 1, 30), attempt(2, 4), attempt(28, 30, id="b", user="bob"))
    accounting = Accounting(currency="EUR", rates=DOLLAR, teams={"vision": ("ada",)})
    await publish(store, "c", accounting)
    found = await report(store, ["team", "user"])
    assert {tuple(row.by.values()): row.cost for row in found.rows} == {
        ("vision", "ada"): 2.0,
        ("", "bob"): 1.0,
    }
    assert (found.currency, found.gaps) == ("EUR", ())


async def test_new_prices_replace_the_old_ones_and_none_remain(store: Store) -> None:
    """A configuration without prices has no costs, whatever it had before."""
    await put(store, slice_use(0, 1, 30), attempt(2, 4))
    for accounting, cost in ((Accounting(rates=DOLLAR), 2.0), (Accounting(), None)):
        await publish(store, "c", accounting)
        assert (await report(store)).total.cost == cost


async def test_a_time_without_records_has_no_rows(store: Store) -> None:
    """A new cluster has no records; that is no error."""
    found = await report(store)
    assert (found.rows, found.gaps) == ((), ())


def test_the_time_is_the_last_week_unless_it_is_given() -> None:
    """By its length or by its ends."""
    week = question((), None, None)
    assert week.until - week.since == timedelta(days=7)
    assert abs(week.until - datetime.now(UTC)) < timedelta(minutes=1)
    assert question((), 3 * DAY, T + 3 * DAY) == question((), T, T + 3 * DAY)


async def test_uses_of_the_present_count_once(store: Store) -> None:
    """They may be stored while the answer is made: an attempt counts as it is stored, with its
    end, and a slice once.
    """
    await publish(store, "c", Accounting(currency="EUR", rates=DOLLAR))
    running = attempt(2, 6, id="a", end=UseEnd.OPEN)
    ended = attempt(2, 7, id="a", end=UseEnd.FAILED)
    present = [attempt(2, 4, id="b", end=UseEnd.OPEN), running, slice_use(0, 1, 9, open=True)]
    await put(store, ended, slice_use(0, 1, 9))
    found = await report(store, present=present)
    assert (found.total.attempts, found.total.cost) == (2, 5 + 2)
    assert found.slices is not None
    assert found.slices.cost == 9
    assert [each.count for each in found.waste if each.kind is WasteKind.FAILED] == [1]


@pytest.mark.parametrize(
    ("by", "since"), [(["colour"], T), (["tag:"], T), (["user", "user"], T), (["user"], at(24))]
)
def test_a_wrong_question_is_refused(by: list[str], since: datetime) -> None:
    """An unknown key would be a column of empty values."""
    with pytest.raises(InvalidValue):
        question(by, since, T)


async def test_what_is_lost_or_cannot_be_read_is_said(store: Store) -> None:
    """A sum that is too small must say so."""
    lost = DroppedUses(id="d", count=7, since=at(1), until=at(2))
    await put(store, attempt(1, 2), lost)
    await store.put(f"{day_folder('c', day_of(T))}/x.jsonl", b'{"kind":"new"}\n')
    found = await report(store)
    assert len(found.gaps) == 2
    assert "7 uses are lost" in found.gaps[0]


async def test_without_a_store_the_error_says_so(tmp_path: Path) -> None:
    """No store, no records; a store that is away is not an empty one."""
    record = ClusterRecord(name="c", address="nowhere:1", store="")
    with pytest.raises(Rejected, match="has no store"):
        store_of(Connection(cast(Client, None), record))
    with pytest.raises(Unreachable):
        await report(Store((tmp_path / "away").as_uri()))


async def test_prices_that_cannot_be_read_are_an_error(store: Store) -> None:
    """Not costs of nothing."""
    await store.put(store_paths.accounting("c"), b"{")
    with pytest.raises(Rejected, match="cannot be read"):
        await report(store)


def test_a_time_without_a_zone_is_by_utc_and_an_absurd_length_is_refused() -> None:
    """A script in another zone gets the same answer as the command line."""
    asked = question(("user",), datetime(2026, 11, 1), datetime(2026, 11, 2))  # noqa: DTZ001
    assert asked.since == datetime(2026, 11, 1, tzinfo=UTC)
    with pytest.raises(InvalidValue, match="since"):
        question(("user",), timedelta(days=999_999), None)
