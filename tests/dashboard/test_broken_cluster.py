"""Each page of a broken cluster, in a browser: its control plane does not answer, its store is
away, and its agents are gone.

A control plane that does not answer would not serve pages either, so the test serves them, as a
second control plane does.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from iris.client.client import AsyncIrisClient
from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.connection import connect
from iris.dashboard.reader import Reader
from tests.dashboard.browser import Watched
from tests.dashboard.busy import SIMULATION, Busy, publish_a_simulation
from tests.dashboard.site import a_site
from tests.dashboard.test_pages import SEVERE, name_of
from tests.e2e.cluster import USER, Cluster, a_cluster, eventually

pytestmark = pytest.mark.long

#: How long an open page takes to notice, in milliseconds: the scheduler has ten seconds to answer.
NOTICED = 90_000
#: The pages whose sources are the service alone.
FROM_SERVICE = ("/jobs", "/more")


@contextmanager
def broken(cluster: Cluster) -> Iterator[None]:
    """Suspends the control plane, kills the agents, and takes the store away."""
    store = cluster.home / "clusters" / cluster.name / "store"
    away = store.with_name("store-away")
    (control_plane,) = cluster.processes_with("controller", "serve")
    with cluster.no_machine_starts():
        control_plane.suspend()
        for agent in cluster.processes_with("agent"):
            with suppress(psutil.Error):  # one may be the parent of another
                agent.kill()
        store.rename(away)
        try:
            yield
        finally:
            away.rename(store)
            control_plane.resume()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Busy]:
    """A cluster with a job that runs, one that has failed and one that waits, and its pages."""
    with a_cluster("--hosts", "2", "--cpu", "4", "--ephemeral", name="broken") as cluster:
        cluster.submit("runs", "--", "sh", "-c", "echo begun; sleep 900")
        cluster.submit("fails", "--", "sh", "-c", "echo what went wrong >&2; exit 3")
        cluster.submit("waits", "--cpu", "4", "--replicas", "9", "--", "sleep", "900")
        cluster.iris("wait", "fails", code=None)
        publish_a_simulation(cluster)
        eventually(lambda: cluster.status("runs")["state"] == "RUNNING")
        objects = {
            "job": f"{USER}/runs",
            "host": cluster.host_ids()[0],
            "simulation": SIMULATION,
            "slice": cluster.iris("slice", "list", "--json").json[0]["id"],
        }
        record = ClusterRecord.model_validate_json(
            (cluster.home / "clusters" / cluster.name / "cluster.json").read_bytes()
        )

        async def reader() -> Reader:
            return Reader(AsyncIrisClient(await connect(record.address), record))

        with a_site(reader) as base:
            yield Busy(cluster, base, objects)


@pytest.fixture
def opened(browser: Browser, cluster: Busy) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    try:
        yield Watched(context.new_page(), cluster.dashboard)
    finally:
        context.close()


def test_an_open_page_says_that_it_is_not_up_to_date_until_the_cluster_answers(
    opened: Watched, cluster: Busy
) -> None:
    """Its content stays, which is what the reader came for."""
    opened.open("/queue")
    expect(opened.page.locator("main")).to_contain_text(f"{USER}/waits")

    with broken(cluster.cluster):
        opened.waits_for("stale", within=NOTICED)
        expect(opened.page.locator("#connection")).to_contain_text("not up to date")
        expect(opened.page.locator("main")).to_contain_text(f"{USER}/waits")

    opened.waits_for("live", within=NOTICED)
    assert opened.errors == []


@pytest.fixture(scope="module")
def broken_cluster(cluster: Busy) -> Iterator[Busy]:
    with broken(cluster.cluster):
        yield cluster


def test_a_page_of_a_broken_cluster_names_what_does_not_answer(
    path: str, opened: Watched, broken_cluster: Busy, pictures: Path
) -> None:
    """Soon, readable for everybody, and with all parts whose sources answer."""
    page = opened.page
    page.goto(opened.base + broken_cluster.path(path), wait_until="load", timeout=30_000)

    assert page.locator("main h1").count() == 1
    assert (page.locator(".notice.bad").count() == 0) == (path in FROM_SERVICE)
    opened.picture(pictures / f"{name_of(path)}-broken.png")
    found = Axe().run(page).response["violations"]
    assert [each["id"] for each in found if each["impact"] in SEVERE] == []
    assert [each for each in opened.errors if "503" not in each] == []
    assert opened.elsewhere == []


def test_the_overview_of_a_broken_cluster_tells_the_cause_first(
    opened: Watched, broken_cluster: Busy
) -> None:
    """And shows what the service knows by itself: the jobs that have failed."""
    opened.page.goto(f"{opened.base}/", timeout=30_000)
    main = opened.page.locator("main")

    expect(main.locator(".problems li").first).to_contain_text("the scheduler does not answer")
    expect(main).to_contain_text("iris debug health")
    expect(main).to_contain_text(f"{USER}/fails")
    expect(main).to_contain_text("cannot be shown")
