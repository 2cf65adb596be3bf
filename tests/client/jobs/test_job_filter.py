"""Which jobs a list has, and what it believes of a memo."""

from datetime import UTC, datetime
from typing import Any

import pytest

from iris.client.jobs.lists import JobFilter
from iris.client.jobs.rows import commit_in, device_in, reason_in, tasks_in
from iris.model.errors import InvalidValue
from iris.model.job.spec import JobSpec
from iris.model.names import MEMO_COMMIT, MEMO_DEVICE, MEMO_REASON, MEMO_TASKS
from iris.model.states import JobState
from iris.workflows.search_attributes import job_facts


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
    assert (" AND ExecutionStatus = 'Running'" in wanted.query()) is asks


@pytest.mark.parametrize(
    ("memo", "tasks"),
    [
        ({}, 1),
        ({MEMO_TASKS: 8}, 8),
        *(({MEMO_TASKS: odd}, 1) for odd in ("many", None, -1, 10**9, [2])),
    ],
)
def test_a_memo_of_somebody_else_is_not_believed(memo: dict[str, Any], tasks: int) -> None:
    """One job with a text in it ended `iris jobs` for everybody."""
    assert tasks_in(memo) == tasks


def test_accelerators_of_an_odd_memo_are_none() -> None:
    """As with its number of tasks."""
    assert [device_in({MEMO_DEVICE: value}) for value in ("gpu:H100:8", 8, None)] == [
        "gpu:H100:8",
        "",
        "",
    ]


def test_a_list_has_the_commit_of_a_jobs_files() -> None:
    """A program that compares runs finds the code of each without a question for every job."""
    memo, _ = job_facts(
        "local", JobSpec(user="ada", name="train", command=("true",), commit="28af1b6+")
    )
    assert [commit_in(each) for each in (memo, {}, {MEMO_COMMIT: 8})] == ["28af1b6+", "", ""]


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ({"state": "FAILED", "reason": "exited with code 3"}, "exited with code 3"),
        *(
            (odd, "")
            for odd in (
                {"state": "PENDING", "reason": "BUSY"},
                {"reason": "why"},
                {"state": "FAILED"},
                "why",
                None,
            )
        ),
        ({"state": "FAILED", "reason": 3}, ""),
    ],
)
def test_a_reason_is_that_of_the_jobs_state(reason: Any, shown: str) -> None:
    """A terminated job cannot take back that it waited."""
    assert reason_in({MEMO_REASON: reason}, JobState.FAILED) == shown


@pytest.mark.parametrize(
    ("text", "takes"),
    [
        ("", True),
        ("TRAIN", True),
        ("lr 0.1", True),
        ("lr 0.2", False),
        ("pending", True),
        ("busy", True),
    ],
)
def test_a_text_is_looked_for_in_all_that_a_list_has_of_a_job(text: str, takes: bool) -> None:
    """Whoever has a sweep knows a part of its name or an argument; whoever waits, the state."""
    assert (
        JobFilter(text=text).takes(
            "ada/train-7", "python train.py --lr 0.1", JobState.PENDING, "BUSY"
        )
        is takes
    )


def test_the_service_looks_for_tags_and_the_list_compares_them_again() -> None:
    """Temporal's dev server takes small and capital letters for the same."""
    wanted = JobFilter(tags=[("sweep", "lr"), ("baseline", "")])

    assert "IrisTags = 'sweep=lr' AND IrisTags = 'baseline'" in wanted.query()
    assert wanted.takes("ada/train", tags={"sweep": "lr", "baseline": "", "more": "1"})
    assert not wanted.takes("ada/train", tags={"sweep": "LR", "baseline": ""})


def test_a_tag_that_would_change_the_query_is_refused() -> None:
    """A filter may come from a program, which has not parsed it."""
    with pytest.raises(InvalidValue, match="has no valid value"):
        JobFilter(tags=[("a", "' OR IrisUser = 'bob")]).query()


def test_a_time_at_which_a_list_ends_has_its_whole_microsecond() -> None:
    """Some services store nanoseconds, which Python's times do not have."""
    until = datetime(2026, 1, 1, 12, 0, 0, 5, tzinfo=UTC)
    assert "StartTime < '2026-01-01T12:00:00.000006+00:00'" in JobFilter(until=until).query()


@pytest.mark.parametrize("state", JobState)
def test_the_service_looks_for_states(state: JobState) -> None:
    """A list of the failed jobs among ten thousand must not read them all."""
    query = JobFilter(states=[state]).query()
    running = "ExecutionStatus = 'Running'" in query
    assert running is not state.ended
    assert query.count("(") == query.count(")")
