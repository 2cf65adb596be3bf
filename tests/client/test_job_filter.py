"""Which jobs a list has, and what it believes of a memo."""

from typing import Any

import pytest

from iris.client.job_filter import JobFilter, tasks_in
from iris.model.names import MEMO_TASKS
from iris.model.states import JobState


@pytest.mark.parametrize(
    ("wanted", "asks"),
    [
        (JobFilter(), False),
        (JobFilter(live_only=True), True),
        (JobFilter(states=[JobState.PENDING, JobState.HELD]), True),
        (JobFilter(states=[JobState.PENDING, JobState.FAILED]), False),
    ],
)
def test_jobs_that_have_ended_are_not_read_for_live_states(wanted: JobFilter, asks: bool) -> None:
    """The service has those of a month."""
    assert ("ExecutionStatus = 'Running'" in wanted.query()) is asks


@pytest.mark.parametrize(
    ("memo", "tasks"), [({}, 1), ({MEMO_TASKS: 8}, 8), *(({MEMO_TASKS: odd}, 1) for odd in ("many", None, -1, 10**9, [2]))]
)
def test_a_memo_of_somebody_else_is_not_believed(memo: dict[str, Any], tasks: int) -> None:
    """One job with a text in it ended `iris jobs` for everybody."""
    assert tasks_in(memo) == tasks
