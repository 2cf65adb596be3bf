"""Each page of the dashboard, in a browser: what must hold for all of them, and the links to the Web UI."""

import re
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from tests.dashboard.browser import Watched
from tests.dashboard.busy import Busy
from tests.e2e.cluster import USER

pytestmark = pytest.mark.long

#: The widths of a phone, a laptop and a wall.
WIDTHS = (360, 1280, 2560)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
#: The findings of axe-core that keep a person from using a page.
SEVERE = ("serious", "critical")
#: Whether an element is wider than the window. A table may scroll in a box of its own.
TOO_WIDE = "document.documentElement.scrollWidth > document.documentElement.clientWidth"


def name_of(path: str) -> str:
    return re.sub(r"\W+", "-", path).strip("-") or "overview"


def test_a_page_works_and_is_read_by_everybody_in_every_window(
    path: str, watched: Watched, busy: Busy
) -> None:
    """In both colour schemes: contrast, names of controls, headings, tables. From a phone to a
    wall: only a table may be wider, and scrolls by itself. The content security policy would stop a
    script or style in a page, and log an error; a machine without internet shows the same pages.
    """
    watched.open(busy.path(path))
    page = watched.page
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        found = Axe().run(page).response["violations"]
        assert [
            (scheme, each["id"], [node["html"][:200] for node in each["nodes"][:3]])
            for each in found
            if each["impact"] in SEVERE
        ] == []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        assert (width, page.evaluate(TOO_WIDE)) == (width, False)
    page.wait_for_timeout(2_500)  # at least one live update

    assert page.locator("main h1").count() == 1
    assert page.locator(".notice.bad strong", has_text="Problem:").count() == 0
    assert watched.errors == []
    assert watched.elsewhere == []


def test_a_page_is_used_with_the_keyboard_alone(path: str, watched: Watched, busy: Busy) -> None:
    """The first key leads past the navigation, and every control can be reached and is seen."""
    watched.open(busy.path(path))
    page = watched.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"

    unreachable = page.evaluate(
        """() => [...document.querySelectorAll("a[href], button, input, select, summary")]
            .filter((each) => each.checkVisibility() && each.tabIndex < 0)
            .map((each) => each.outerHTML.slice(0, 200))"""
    )
    assert unreachable == []
    page.keyboard.press("Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline not in ("none", "")


def test_a_page_is_read_without_scripts(path: str, browser: Browser, busy: Busy) -> None:
    """The server renders everything; scripts only keep it up to date."""
    context = browser.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(busy.dashboard + busy.path(path))
        assert page.locator("main h1").count() == 1
        assert page.locator("time.ago:empty").count() == 0
    finally:
        context.close()


def test_each_page_of_a_job_leads_to_the_other(browser: Browser, busy: Busy) -> None:
    """The Web UI renders the link from Markdown in a frame of its own, and follows it there."""
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(f"{busy.dashboard}/jobs/{USER}/runs")
        page.get_by_role("link", name="in Temporal's Web UI").click()
        page.get_by_text("User Metadata").first.click()
        link = page.frame_locator('iframe[src*="dashboard"]').get_by_role("link")
        with context.expect_page() as opened:
            link.click(timeout=60_000)
        opened.value.wait_for_load_state()
        assert opened.value.url == f"{busy.dashboard}/jobs/{USER}/runs"
        assert opened.value.locator("main h1").inner_text().startswith(f"{USER}/runs")
    finally:
        context.close()
