"""The upload of what an attempt leaves, while the store is away."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from iris.activities.host.files import upload
from iris.activities.host.files.logs import LogShipper
from iris.activities.host.files.upload import Delivery
from iris.storage.log_format import Stream
from iris.storage.object_store import Store

PATIENCE = timedelta(days=1)


class Away(Store):
    """A store that refuses every request, and counts them."""

    def __init__(self, url: str) -> None:
        super().__init__(url, create=True)
        self.tries = 0
        self.tried = asyncio.Event()

    async def get(self, path: str, most: int | None = None) -> bytes | None:
        self.tries += 1
        self.tried.set()
        raise OSError("away")


@pytest.fixture
def store(tmp_path: Path) -> Away:
    return Away((tmp_path / "store").as_uri())


@pytest.fixture
def delivery(store: Away, tmp_path: Path) -> Delivery:
    """The log of an attempt that another agent began."""
    logs = LogShipper(store, "logs", {Stream.STDOUT: tmp_path / "stdout"}, taken_over=True)
    return Delivery(store, logs, tmp_path / "outputs", "", asyncio.Semaphore(), 2**40)


async def test_a_hurried_upload_pauses_between_its_tries(
    store: Away, delivery: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 0, 50, 150 and 350 ms. A loop without a pause used a whole core for as long as the store
    was away.
    """
    monkeypatch.setattr(upload, "FIRST_RETRY_DELAY", timedelta(milliseconds=50))
    monkeypatch.setattr(upload, "HURRIED_TIMEOUT", timedelta(milliseconds=500))
    delivery.hurry()

    assert not await delivery.done(PATIENCE)
    assert 1 <= store.tries <= 4


async def test_a_hurry_ends_the_pause_of_an_upload(
    store: Away, delivery: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host's incarnation is over: it tries once more now, and does not wait for the end of the
    pause.
    """
    monkeypatch.setattr(upload, "FIRST_RETRY_DELAY", timedelta(hours=1))
    monkeypatch.setattr(upload, "HURRIED_TIMEOUT", timedelta(milliseconds=200))
    done = asyncio.create_task(delivery.done(PATIENCE))
    await asyncio.wait_for(store.tried.wait(), 60)
    delivery.hurry()

    assert not await asyncio.wait_for(done, 60)
    assert store.tries == 2
