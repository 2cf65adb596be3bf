"""Open pages of a made cluster, in a browser: what the reader types and where the focus is, while
the page is renewed; sources that are away for a moment; a thousand hosts.
"""

from collections.abc import Callable, Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from iris.model.host.hosts import ClosedBy, Closure
from tests.dashboard.browser import Watched
from tests.dashboard.made_cluster import MadeReader, a_fleet_of
from tests.dashboard.site import a_site
from tests.dashboard.test_pages import SEVERE

pytestmark = pytest.mark.long

#: The href of the focused element.
FOCUSED = "document.activeElement.getAttribute('href')"
#: The number of stops of the tab key in the content.
STOPS = """[...document.querySelectorAll('main a[href], main button, main input, main select')]
    .filter((each) => each.tabIndex >= 0 && each.checkVisibility()).length"""


@pytest.fixture
def reader() -> MadeReader:
    return MadeReader(a_fleet_of(slices=250, busy=250, waiting=3))


@pytest.fixture
def opened(browser: Browser, reader: MadeReader) -> Iterator[Watched]:
    async def made() -> MadeReader:
        return reader

    with a_site(made) as base:
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        try:
            yield Watched(context.new_page(), base)
        finally:
            context.close()


def renewed(page: Page, change: Callable[[], None]) -> None:
    """Waits until the page shows a change of the cluster."""
    before = page.locator("main").inner_html()
    change()
    page.wait_for_function(
        "before => document.getElementById('main').innerHTML !== before", arg=before, timeout=30_000
    )


def test_a_source_that_is_away_for_a_moment_leaves_the_page_as_it_is(
    opened: Watched, reader: MadeReader
) -> None:
    """The reader is told that the page is not up to date, and why."""
    opened.open("/queue")
    queue = opened.page.locator("main table").last
    expect(queue).to_contain_text("wait-0")

    reader.fall_silent("queue")
    opened.waits_for("stale")
    expect(opened.page.locator("#connection")).to_contain_text("queue are away")
    expect(queue).to_contain_text("wait-0")

    reader.fall_silent()
    opened.waits_for("live")
    expect(queue).to_contain_text("wait-0")


def test_what_is_typed_into_a_form_stays_when_the_page_is_renewed(
    opened: Watched, reader: MadeReader
) -> None:
    """Also after the reader has gone on to another control."""
    opened.open("/more")
    page = opened.page
    page.get_by_label("Job").fill("ada/train")
    page.get_by_label("Text").focus()

    renewed(page, lambda: reader.fall_silent("schedules"))

    expect(page.get_by_text("Schedules cannot be shown")).to_be_visible()
    expect(page.get_by_label("Job")).to_have_value("ada/train")


def test_the_grid_of_a_thousand_hosts_is_one_stop_of_the_tab_key(
    opened: Watched, reader: MadeReader
) -> None:
    """The arrow keys go on inside, and an update leaves the reader there."""
    opened.open("/fleet")
    page = opened.page
    assert page.locator("[data-cells] a").count() == 1_250
    assert page.evaluate(STOPS) < 30

    page.locator("[data-cells] a").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate(FOCUSED) == "/hosts/tpus-00000000-0"
    page.keyboard.press("End")
    assert page.evaluate(FOCUSED) == "/hosts/tpus-000000f9-3"
    page.keyboard.press("ArrowUp")
    above = page.evaluate(FOCUSED)
    assert above != "/hosts/tpus-000000f9-3"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    focused = page.evaluate(FOCUSED)
    assert focused.startswith(("/hosts/", "/slices/"))

    cordon = Closure(by=ClosedBy.CORDON)
    renewed(page, lambda: reader.ledger.close("tpus-00000005-0", cordon))
    assert page.evaluate(FOCUSED) == focused
    assert page.evaluate("document.activeElement.tabIndex") == 0
    assert page.evaluate(STOPS) < 30
    assert opened.errors == []


def test_the_grid_of_a_thousand_hosts_has_no_severe_findings(opened: Watched) -> None:
    """A screen reader gets a name for the grid and for each cell."""
    opened.open("/fleet")
    found = Axe().run(opened.page).response["violations"]

    assert [each["id"] for each in found if each["impact"] in SEVERE] == []
