"""Each page of the dashboard, in a browser: what must hold for all of them."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from tests.dashboard.browser import WIDTHS, Watched
from tests.dashboard.busy import Busy

pytestmark = pytest.mark.long

#: The findings of axe-core that keep a person from using a page.
SEVERE = ("serious", "critical")
#: Whether an element is wider than the window. A table may scroll in a box of its own.
TOO_WIDE = "document.documentElement.scrollWidth > document.documentElement.clientWidth"


def name_of(path: str) -> str:
    return re.sub(r"\W+", "-", path).strip("-") or "overview"


@pytest.fixture(params=["light", "dark"])
def in_colours(request: pytest.FixtureRequest, browser: Browser, busy: Busy) -> Iterator[Watched]:
    context = browser.new_context(
        color_scheme=request.param, viewport={"width": 1280, "height": 800}
    )
    try:
        yield Watched(context.new_page(), busy.dashboard)
    finally:
        context.close()


def test_a_page_works_without_errors_and_without_other_servers(
    path: str, watched: Watched, busy: Busy
) -> None:
    """The content security policy would stop a script or style in a page, and log an error. A
    machine without internet shows the same pages.
    """
    watched.open(busy.path(path))
    watched.page.wait_for_timeout(2_500)  # at least one live update

    assert watched.page.locator("main h1").count() == 1
    assert watched.page.locator(".notice.bad strong", has_text="Problem:").count() == 0
    assert watched.errors == []
    assert watched.elsewhere == []


def test_a_page_has_no_severe_findings_for_people_with_disabilities(
    path: str, in_colours: Watched, busy: Busy, pictures: Path, request: pytest.FixtureRequest
) -> None:
    """In both colour schemes: contrast, names of controls, headings, tables."""
    in_colours.open(busy.path(path))
    scheme = request.node.callspec.params["in_colours"]
    in_colours.picture(pictures / f"{name_of(path)}-{scheme}.png")

    found = Axe().run(in_colours.page).response["violations"]

    assert [
        (each["id"], [node["html"][:200] for node in each["nodes"][:3]])
        for each in found
        if each["impact"] in SEVERE
    ] == []


@pytest.mark.parametrize("width", WIDTHS)
def test_a_page_fits_every_window(
    path: str, width: str, browser: Browser, busy: Busy, pictures: Path
) -> None:
    """From a phone to a wall: only a table may be wider, and scrolls by itself."""
    context = browser.new_context(viewport={"width": WIDTHS[width], "height": 800})
    try:
        watched = Watched(context.new_page(), busy.dashboard)
        watched.open(busy.path(path))
        watched.picture(pictures / f"{name_of(path)}-{width}.png")
        assert watched.page.evaluate(TOO_WIDE) is False
    finally:
        context.close()


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
