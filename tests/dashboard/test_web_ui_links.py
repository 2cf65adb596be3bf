"""The links between a job's page in the dashboard and its page in Temporal's Web UI."""

import pytest
from playwright.sync_api import Browser

from tests.dashboard.busy import Busy
from tests.e2e.cluster import USER

pytestmark = pytest.mark.long


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
