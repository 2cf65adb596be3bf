"""The activity that stores records of use."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from temporalio.testing import ActivityEnvironment

from iris.activities.control.usage_records import UsageRecords
from iris.messages.scheduler import EndedRecords
from iris.storage.object_store import STORE_ERRORS, Store
from iris.usage.lines import to_line
from iris.usage.records import SliceUse

MIDNIGHT = datetime(2026, 11, 28, tzinfo=UTC)


def a_slice(name: str, gone_at: datetime) -> SliceUse:
    life = {"group": "g", "zone": "z", "machine": "m", "hosts": 1}
    return SliceUse(id=name, **life, requested_at=gone_at - timedelta(hours=1), gone_at=gone_at)


async def test_records_are_in_the_folder_of_the_day_and_a_repeated_call_adds_nothing(
    tmp_path: Path,
) -> None:
    """The service repeats a call whose answer it did not get."""
    before, after = a_slice("s1", MIDNIGHT - timedelta(seconds=1)), a_slice("s2", MIDNIGHT)
    batch = EndedRecords(cluster="c", records=(before, after))
    for _ in range(2):
        await ActivityEnvironment().run(UsageRecords(tmp_path.as_uri()).store_uses, batch)

    stored = await Store(tmp_path.as_uri()).stored("usage/c")
    assert sorted(each.path.split("/")[2] for each in stored) == ["2026-11-27", "2026-11-28"]
    contents = {(tmp_path / each.path).read_bytes() for each in stored}
    assert contents == {to_line(before), to_line(after)}


async def test_the_call_fails_while_the_store_is_away(tmp_path: Path) -> None:
    """The service repeats it then. A directory that is not mounted is not created."""
    away = tmp_path / "not-mounted"
    batch = EndedRecords(cluster="c", records=(a_slice("s1", MIDNIGHT),))
    with pytest.raises(STORE_ERRORS):
        await ActivityEnvironment().run(UsageRecords(away.as_uri()).store_uses, batch)
    assert not away.exists()


async def test_a_cluster_without_a_store_stores_nothing() -> None:
    """Its scheduler must not keep the records for ever."""
    batch = EndedRecords(cluster="c", records=(a_slice("s1", MIDNIGHT),))
    await ActivityEnvironment().run(UsageRecords("").store_uses, batch)
