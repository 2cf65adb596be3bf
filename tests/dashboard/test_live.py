"""Pages that stay open: what they show while the cluster changes, restarts, and while nobody looks."""

import os
import signal
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import expect

from tests.dashboard.browser import Watched
from tests.dashboard.busy import NASTY, Busy
from tests.e2e.cluster import eventually

pytestmark = pytest.mark.long

#: An event stream ends when the page is hidden, so this counts the connections of the browser.
ESTABLISHED = "ESTABLISHED"


def control_plane(busy: Busy) -> psutil.Process:
    """Returns the control plane's process."""
    state = str(busy.cluster.home)
    return next(
        process
        for process in psutil.process_iter(["cmdline"])
        if {"controller", "serve"} <= set(process.info["cmdline"] or ())
        and any(state in word for word in process.info["cmdline"])
    )


def streams(busy: Busy) -> int:
    """Returns the number of connections that browsers have to the dashboard."""
    port = int(busy.dashboard.rpartition(":")[2])
    return len(
        [
            each
            for each in control_plane(busy).net_connections("inet")
            if each.laddr.port == port and each.status == ESTABLISHED
        ]
    )


def test_a_job_appears_in_an_open_list(watched: Watched, busy: Busy) -> None:
    """Nobody presses reload. What the reader has focused stays focused."""
    watched.open("/jobs")
    watched.page.get_by_label("User").focus()
    watched.page.evaluate("window.same = true")

    busy.cluster.submit("late", "--", "true")

    expect(watched.page.locator("main")).to_contain_text("/late", timeout=60_000)
    assert watched.page.evaluate("window.same") is True
    assert watched.page.evaluate("document.activeElement.name") == "user"
    assert watched.errors == []


def test_what_a_job_contains_is_text(watched: Watched, busy: Busy) -> None:
    """A name, a command or a reason is never a tag, and never turns the text after it around."""
    watched.open(busy.path("/jobs/{job}").replace("runs", "nasty"))

    assert watched.page.title() != "1"
    text = watched.page.locator("body").inner_text()
    assert "\u202e" in NASTY
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert watched.page.locator("main script").count() == 0


def test_a_hidden_page_costs_nothing(watched: Watched, busy: Busy) -> None:
    """A browser allows six connections to a server: a seventh tab would wait for ever."""
    before = streams(busy)
    watched.open("/jobs")
    eventually(lambda: streams(busy) > before, within=30)

    watched.page.evaluate(
        """() => {
            Object.defineProperty(document, "hidden", {value: true, configurable: true});
            document.dispatchEvent(new Event("visibilitychange"));
        }"""
    )
    # An idle connection ends by itself after some seconds.
    eventually(lambda: streams(busy) <= before, within=60)

    watched.page.evaluate(
        """() => {
            Object.defineProperty(document, "hidden", {value: false, configurable: true});
            document.dispatchEvent(new Event("visibilitychange"));
        }"""
    )
    watched.waits_for("live")


def test_an_open_page_survives_a_restart_of_the_control_plane(
    watched: Watched, busy: Busy, pictures: Path
) -> None:
    """It says that it is no longer live, and goes on by itself when the next one serves."""
    watched.open("/jobs")
    os.kill(control_plane(busy).pid, signal.SIGKILL)

    watched.waits_for("lost")
    watched.picture(pictures / "connection-lost.png")
    watched.waits_for("live", within=120_000)
    busy.cluster.submit("after-the-restart", "--", "true")
    expect(watched.page.locator("main")).to_contain_text("after-the-restart", timeout=60_000)
