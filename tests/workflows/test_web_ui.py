"""The Markdown of the pages: text that users and hosts chose appears as it is, and nothing relies
on tables.
"""

import re
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.model.job.status import JobStatus
from iris.model.states import JobState, TaskState
from iris.scheduling.placement.refusals import Refusal, RefusalCode
from iris.workflows import web_ui
from tests.builders import NOON, a_spec, a_task
from tests.strategies import CHEAP


def a_page(
    command: str = "true",
    reason: str = "",
    state: JobState = JobState.FAILED,
    refusal: Refusal | None = None,
    refused_at: datetime | None = None,
) -> str:
    spec = a_spec(command=("sh", "-c", command), replicas=2)
    tasks = (
        a_task(state=TaskState.FAILED, host="h1", attempt=1, exit_code=1, reason=reason),
        a_task(index=1, reason="other"),
    )
    status = JobStatus(
        id=spec.id, state=state, reason=reason, user="ada", submitted_at=NOON, tasks=tasks
    )
    return web_ui.job_details(spec, status, refusal, refused_at)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("echo $(date) $HOME", r"echo \$(date) \$HOME"),
        ("a | b", r"a \| b"),
        ("<b>*bold*</b> _x_", r"\<b\>\*bold\*\</b\> \_x\_"),
        ("[link](http://x) `code` # 1", r"\[link\](http://x) \`code\` \# 1"),
        ("two\nlines\tand a \\", r"two lines and a \\"),
        ("plain: 4 cpu, 8 GiB-memory; exit code 1.", "plain: 4 cpu, 8 GiB-memory; exit code 1."),
    ],
)
def test_markup_in_a_text_is_escaped(text: str, shown: str) -> None:
    """A command with `$(date) $HOME` was shown as a formula."""
    assert web_ui.escaped(text) == shown


@CHEAP
@given(st.text(st.sampled_from("`a$ \n|")))
def test_code_is_fenced_by_more_backquotes_than_it_has(text: str) -> None:
    """Else the rest of the page would be code, or the code would be markup."""
    shown = web_ui.code(text)
    fence = shown[: len(shown) - len(shown.lstrip("`"))] if text.strip() else ""

    assert "\n" not in shown
    if fence:
        assert fence not in re.findall("`+", " ".join(text.split()))


def test_a_page_has_no_table_and_each_reason_once() -> None:
    """The Web UI joined the rows of a table to one paragraph."""
    page = a_page("date | tee `x`", "exited with code 1: $x | y")

    assert not re.search(r"^\|", page, re.MULTILINE)
    assert page.count("exited with code 1") == 1
    assert page.startswith(r"**FAILED** exited with code 1: \$x \| y")
    assert (
        "- task 0 **FAILED** on `h1`, attempt 1, exit code 1\n- task 1 **PENDING**: other\n" in page
    )


def test_the_page_of_a_waiting_job_has_the_code_and_the_remedy() -> None:
    """A user who has only the Web UI must see what to do."""
    refusal = Refusal(
        code=RefusalCode.BUSY,
        message="needs 4 cpu; first in the queue",
        remedy="wait, or add a host",
    )
    page = a_page(reason=refusal.message, state=JobState.PENDING, refusal=refusal)

    assert page.startswith(
        "**PENDING** (BUSY) needs 4 cpu; first in the queue\n\nRemedy: wait, or add a host\n"
    )
    assert "BUSY" not in a_page(state=JobState.RUNNING, refusal=refusal)


def test_a_place_in_the_queue_has_the_time_and_the_command_that_tells_the_present_one() -> None:
    """The page changes with the code, and a place with every job that ends. What is too big has no
    place.
    """
    busy, too_big = (
        Refusal(code=code, message="why") for code in (RefusalCode.BUSY, RefusalCode.TOO_BIG)
    )
    as_of = "As of 2026-01-01 12:00 UTC; its present place in the queue: `iris explain ada/train`"

    assert f"\n\n{as_of}\n\n" in a_page(
        reason="why", state=JobState.PENDING, refusal=busy, refused_at=NOON
    )
    assert "As of" not in a_page(
        reason="why", state=JobState.PENDING, refusal=too_big, refused_at=NOON
    )
