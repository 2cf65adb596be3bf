"""A busy cluster with its dashboard, and a browser."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from iris.dashboard.app import PAGES
from tests.dashboard.browser import Watched, chromium
from tests.dashboard.busy import Busy, busy_cluster


@pytest.fixture(scope="package")
def busy() -> Iterator[Busy]:
    """Ends with the tests of the dashboard: its programs take CPU time from the tests after them."""
    with busy_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for one file: while it is open, its event loop runs in this thread, so no test that
    is a coroutine could.
    """
    with chromium() as running:
        yield running


@pytest.fixture
def watched(browser: Browser, busy: Busy) -> Iterator[Watched]:
    """A page of a laptop's size, in a browser without a past."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    try:
        yield Watched(context.new_page(), busy.dashboard)
    finally:
        context.close()


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the pictures of this run."""
    return tmp_path_factory.mktemp("dashboard-pictures", numbered=False)


def pytest_generate_tests(metafunc: Any) -> None:
    """A test with the argument `path` runs for each page of the dashboard."""
    if "path" in metafunc.fixturenames:
        paths = [page.path for page in PAGES]
        metafunc.parametrize("path", paths, ids=[re.sub(r"\W+", "-", each) for each in paths])
