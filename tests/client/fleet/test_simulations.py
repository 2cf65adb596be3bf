"""Reports of simulations in the store of a cluster."""

import os
from pathlib import Path
from typing import cast

import pytest
from temporalio.client import Client

from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.rpc import Connection
from iris.client.fleet.simulations import SimulationsClient
from iris.model import store_paths
from iris.model.errors import InvalidValue, IrisError, NotFound, Rejected, Unreachable
from iris.simulation.report.stored import MOST_BYTES
from iris.storage.object_store import Store
from tests.simulation.report.test_stored import report


def simulations(store: str, dashboard: str = "") -> SimulationsClient:
    record = ClusterRecord(name="lab", address="127.0.0.1:1", store=store, dashboard=dashboard)
    return SimulationsClient(Connection(cast(Client, None), record))  # the store is all it needs


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store((tmp_path / "store").as_uri(), create=True)


def age(store: Store, name: str, seconds: int) -> None:
    """Makes a report as old as this."""
    assert store.directory is not None
    file = store.directory / store_paths.simulation_report("lab", name)
    then = file.stat().st_mtime - seconds
    os.utime(file, (then, then))


async def test_a_published_report_is_listed_and_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report of the same name replaces it, which the publisher is told."""
    monkeypatch.setenv("IRIS_USER", "ada")
    client = simulations(store.url)
    assert await client.list() == []
    assert await client.publish("more", report("old", "new")) is False
    assert (await client.show("more")).report == report("old", "new")
    assert await client.publish("more", report("spot")) is True
    (only,) = await client.list()
    assert only.heading is not None
    assert (only.name, only.heading.user, only.heading.configuration) == ("more", "ada", "spot")
    assert (await client.show("more")).report == report("spot")


async def test_the_newest_report_is_listed_first_and_a_list_has_an_end(store: Store) -> None:
    """A cluster that lives for years has many."""
    client = simulations(store.url)
    for number in range(5):
        await client.publish(f"r{number}", report("new"))
        age(store, f"r{number}", 3600 * (5 - number))
    assert [each.name for each in await client.list(3)] == ["r4", "r3", "r2"]


async def test_objects_that_are_no_reports_do_no_harm(store: Store) -> None:
    """A job may be able to write to the store: an empty object, one without end, other names."""
    client = simulations(store.url)
    await client.publish("good", report("new"))
    for name, content in {
        "empty": b"",
        "bad": b"x" * 100_000,
        "huge": b"{" * (MOST_BYTES + 1),
    }.items():
        await store.put(store_paths.simulation_report("lab", name), content)
    await store.put("simulations/lab/not a name/report.jsonl", b"{}\n{}\n")
    await store.put("simulations/lab/good/other.html", b"<script>")
    await store.put(store_paths.simulation_report("other", "theirs"), b"{}\n{}\n")

    listed = {each.name: each.heading is not None for each in await client.list()}
    assert listed == {"good": True, "empty": False, "bad": False, "huge": False}
    for name in ("empty", "bad", "huge"):
        with pytest.raises(IrisError, match="cannot be read"):
            await client.show(name)


async def test_a_name_without_a_report_and_a_name_that_none_can_have(store: Store) -> None:
    """A name is a folder of the store."""
    client = simulations(store.url)
    with pytest.raises(NotFound):
        await client.show("none")
    for name in ("", "a/b", "..", "a b"):
        with pytest.raises(InvalidValue):
            await client.check(name)
        with pytest.raises(InvalidValue):
            await client.publish(name, report("new"))
        with pytest.raises(InvalidValue):
            await client.show(name)


async def test_a_cluster_without_a_store_keeps_no_reports(tmp_path: Path) -> None:
    """The check comes before a long simulation."""
    for call in (simulations("").check("a"), simulations("").publish("a", report("new"))):
        with pytest.raises(Rejected, match="no store"):
            await call
    with pytest.raises(Unreachable):
        await simulations((tmp_path / "away").as_uri()).check("a")


def test_the_page_of_a_report_is_that_of_the_dashboard() -> None:
    """A cluster may have none that this machine reaches."""
    page = simulations("", "http://127.0.0.1:1").page("more")
    assert page == "http://127.0.0.1:1/simulations/more"
    assert simulations("").page("more") == ""
