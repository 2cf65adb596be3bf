"""Debian's Chromium, as the tests and the pictures of the documentation use it.

`scripts/install-chromium` installs it. Playwright's own browsers are not needed.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser that runs without a screen."""
    path = shutil.which("chromium")
    assert path is not None, "there is no Chromium; run scripts/install-chromium"
    # Its sandbox refuses to run as root, and the pages are the dashboard's own.
    arguments = ["--no-sandbox"] if os.getuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page, and what went wrong in it."""

    def __init__(self, page: Page, base: str) -> None:
        self.page = page
        self.base = base
        #: Errors of scripts and of the content security policy, and failed requests.
        self.errors: list[str] = []
        #: The addresses that are not the dashboard's.
        self.elsewhere: list[str] = []
        page.on(
            "console", lambda said: self.errors.append(said.text) if said.type == "error" else None
        )
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self._check(request.url))

    def _check(self, url: str) -> None:
        if not url.startswith((f"{self.base}/", "data:")):
            self.elsewhere.append(url)

    def open(self, path: str) -> None:
        """Opens a page, and waits until it is live."""
        self.page.goto(self.base + path, wait_until="load")
        self.waits_for("live")

    def waits_for(self, state: str, within: float = 30_000) -> None:
        """Waits until the page says that its connection is in this state."""
        self.page.wait_for_selector(f'#connection[data-state="{state}"]', timeout=within)

    def picture(self, file: Path) -> None:
        """Saves the whole page as it looks."""
        file.parent.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=file, full_page=True)
