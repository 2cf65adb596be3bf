"""What a person changes in the browser, and what the command line says about it afterwards."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from iris.dashboard.actions.table import ACTIONS
from tests.dashboard.browser import Watched
from tests.dashboard.busy import Busy
from tests.e2e.cluster import USER, eventually

pytestmark = pytest.mark.long


def act(watched: Watched, action: str, target: str, **fields: str) -> None:
    """Opens the question of an action, fills its fields, and confirms it."""
    query = f"?target={target}" if target else ""
    watched.page.goto(f"{watched.base}/actions/{action}{query}")
    for name, value in fields.items():
        field = watched.page.locator(f"[name={name}]")
        if field.evaluate("each => each.localName") == "select":
            field.select_option(value)
        else:
            field.fill(value)
    watched.page.locator(".question button").click()


def test_a_job_is_held_and_released_from_its_page(watched: Watched, busy: Busy) -> None:
    """The browser returns to the page, which says once what was done."""
    busy.cluster.submit("act", "--cpu", "4", "--replicas", "9", "--", "true")
    page = watched.page
    watched.open(f"/jobs/{USER}/act")

    page.get_by_role("link", name="Hold", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Hold job")
    page.get_by_label("Reason").fill("until the data is there")
    page.get_by_role("button").click()

    expect(page).to_have_url(re.compile(rf"/jobs/{USER}/act$"))
    expect(page.locator(".said")).to_contain_text(f"Job {USER}/act is held.")
    assert busy.cluster.status("act")["state"] == "HELD"
    assert "by dashboard" in busy.cluster.iris("explain", "act").out
    page.reload()
    expect(page.locator(".said")).to_have_count(0)

    page.get_by_role("link", name="Release").click()
    page.get_by_role("button").click()
    eventually(lambda: busy.cluster.status("act")["state"] == "PENDING")
    assert watched.errors == []


def test_a_job_is_cancelled_and_run_again(watched: Watched, busy: Busy) -> None:
    """The new job belongs to the user of the earlier one, not to the control plane's."""
    busy.cluster.submit("again", "--cpu", "0.1", "--", "sleep", "900")
    eventually(lambda: busy.cluster.status("again")["state"] == "RUNNING")

    act(watched, "cancel-job", f"{USER}/again", reason="wrong data")
    eventually(lambda: busy.cluster.status("again")["state"] == "KILLED")
    assert "wrong data (by dashboard)" in busy.cluster.status("again")["reason"]

    act(watched, "rerun-job", f"{USER}/again")
    eventually(lambda: busy.cluster.status("again")["state"] == "RUNNING")
    assert busy.cluster.status("again")["user"] == USER
    busy.cluster.iris("cancel", "again")


def test_a_job_gets_another_priority(watched: Watched, busy: Busy) -> None:
    busy.cluster.submit("moved", "--cpu", "4", "--replicas", "9", "--", "true")

    act(watched, "set-job-priority", f"{USER}/moved", priority="batch")

    listed = {job["id"]: job for job in busy.cluster.iris("jobs", "--json").json}
    assert listed[f"{USER}/moved"]["priority"] == "batch"
    busy.cluster.iris("cancel", "moved")


def test_a_host_is_closed_and_opened(watched: Watched, busy: Busy) -> None:
    host = busy.cluster.host_ids()[0]

    act(watched, "cordon-host", host, reason="a loud fan")
    closed = {each["id"]: each for each in busy.cluster.iris("host", "list", "--json").json}
    assert "a loud fan (by dashboard)" in str(closed[host])

    act(watched, "uncordon-host", host)
    opened = {each["id"]: each for each in busy.cluster.iris("host", "list", "--json").json}
    assert "a loud fan" not in str(opened[host])


@pytest.mark.parametrize(("kind", "target"), [("group", "local-cpu"), ("cluster", "")])
def test_new_placements_are_paused_and_resumed(
    kind: str, target: str, watched: Watched, busy: Busy
) -> None:
    act(watched, f"pause-{kind}", target, reason="an upgrade")
    assert "an upgrade (by dashboard)" in busy.cluster.iris("cluster", "status").out

    act(watched, f"resume-{kind}", target)
    assert "an upgrade" not in busy.cluster.iris("cluster", "status").out


def test_a_refusal_says_why(watched: Watched, busy: Busy) -> None:
    """The page names what was to be done and why it was not."""
    act(watched, "resume-group", "local-cpu")

    problem = watched.page.locator(".notice.bad")
    expect(problem).to_contain_text("not paused")
    assert watched.page.locator("h1").inner_text() == "Refused"


@pytest.mark.parametrize("action", ACTIONS)
def test_every_question_can_be_read_and_answered_by_everybody(
    action: str, watched: Watched, busy: Busy
) -> None:
    """With a screen reader: each field has a name. It also says what will happen."""
    kind = ACTIONS[action].kind
    targets = {"cluster": "", "scale group": "local-cpu"} | busy.objects
    watched.page.goto(f"{watched.base}/actions/{action}?target={targets[kind]}")

    severe = [
        each["id"]
        for each in Axe().run(watched.page).response["violations"]
        if each["impact"] in ("serious", "critical")
    ]
    assert severe == []
    expect(watched.page.locator("main")).to_contain_text(ACTIONS[action].effect)
    assert watched.page.get_by_role("button").count() == 1
    assert watched.errors == []
