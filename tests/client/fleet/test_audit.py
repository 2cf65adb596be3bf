"""The audit of Temporal's servers on its way into the store, and out of it again."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from iris.access.audit import AuditQuestion
from iris.client.fleet.audit import KEPT_FOR, read_audit, ship, ship_until
from iris.model.errors import Rejected
from iris.storage.object_store import Store

NOW = datetime(2026, 11, 28, 21, 30, tzinfo=UTC)
NAME = "audit-20261128T21-server-0.jsonl"
ALL = AuditQuestion(NOW - timedelta(days=1), NOW + timedelta(days=1))


class Bench:
    """A server's directory and a cluster's store."""

    def __init__(self, root: Path) -> None:
        self.dir = root / "audit"
        self.dir.mkdir(0o700)
        self.store = Store((root / "store").as_uri(), create=True)

    def says(self, *details: str, end: str = "\n") -> None:
        """Appends entries, as the server does."""
        with (self.dir / NAME).open("a") as file:
            for detail in details:
                file.write(f'{{"at": "{NOW.isoformat()}", "detail": "{detail}"}}{end}')

    async def ship(self, now: datetime = NOW) -> None:
        await ship(self.store, "lab", self.dir, now)

    async def stored(self) -> list[str]:
        audit = await read_audit(self.store, "lab", ALL)
        assert audit.unreadable == 0
        return [entry.detail for entry in audit.entries]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_what_a_server_appends_is_stored_once_and_in_order(bench: Bench) -> None:
    """Whole lines only: the end of a line may not be written yet."""
    bench.says("one", "two")
    bench.says("three", end="")
    await bench.ship()
    before = await bench.stored()
    with (bench.dir / NAME).open("a") as file:
        file.write("\n")
    bench.says("four")
    await bench.ship()
    await bench.ship()

    assert before == ["one", "two"]
    assert await bench.stored() == ["one", "two", "three", "four"]


async def test_a_shipper_that_died_before_it_noted_what_it_stored_stores_nothing_twice(
    bench: Bench,
) -> None:
    """It can die after any step."""
    bench.says("one")
    await bench.ship()
    for mark in bench.dir.glob("*.shipped"):
        mark.unlink()
    bench.says("two")
    await bench.ship()

    assert await bench.stored() == ["one", "two"]


async def test_a_file_stays_for_a_week_and_until_all_of_it_is_stored(bench: Bench) -> None:
    """The disk of a server does not fill, and nothing that is not stored is deleted."""
    later = NOW + timedelta(hours=1) + KEPT_FOR
    bench.says("one")
    await bench.ship()
    kept = (bench.dir / NAME).exists()
    bench.says("half", end="")
    await bench.ship(later)
    waits = (bench.dir / NAME).exists()
    with (bench.dir / NAME).open("a") as file:
        file.write("\n")
    await bench.ship(later)

    assert (kept, waits, list(bench.dir.iterdir())) == (True, True, [])
    assert await bench.stored() == ["one", "half"]


async def test_one_directory_has_one_shipper(bench: Bench) -> None:
    """Two would note different places."""
    stop = asyncio.Event()
    first = asyncio.create_task(ship_until(stop, bench.store, "lab", bench.dir))
    await asyncio.sleep(0)  # the first one takes the lock

    with pytest.raises(Rejected, match="another process"):
        await ship_until(stop, bench.store, "lab", bench.dir)
    bench.says("last")
    stop.set()
    await first

    assert await bench.stored() == ["last"]
