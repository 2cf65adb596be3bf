"""Why a job or a task has no output."""

from datetime import UTC, datetime, timedelta

import pytest

from iris.model.job.status import JobStatus, TaskStatus, why_no_output
from iris.model.states import JobState, TaskState

EIGHT = datetime(2026, 1, 31, 8, tzinfo=UTC)
LATER = EIGHT + timedelta(seconds=44)


@pytest.mark.parametrize(
    ("state", "started", "finished", "reason", "sentence"),
    [
        (
            JobState.KILLED,
            None,
            LATER,
            "stopped",
            "ada/x never ran, so it has no output; it ended KILLED: stopped",
        ),
        (
            JobState.UNSCHEDULABLE,
            None,
            LATER,
            "large",
            "ada/x never ran, so it has no output; it ended UNSCHEDULABLE: large",
        ),
        (
            JobState.SUCCEEDED,
            EIGHT,
            LATER,
            "",
            "ada/x wrote no output; it ended SUCCEEDED after 44s",
        ),
        (
            JobState.PENDING,
            None,
            None,
            "no free host",
            "ada/x has not run yet; it is PENDING: no free host",
        ),
        (JobState.RUNNING, EIGHT, None, "", "ada/x has written no output yet; it is RUNNING"),
    ],
)
def test_a_job_without_output_says_whether_it_ran_and_how_it_ended(
    state: JobState, started: datetime | None, finished: datetime | None, reason: str, sentence: str
) -> None:
    """An empty log could be a fault of the log, too."""
    status = JobStatus(
        id="ada/x",
        state=state,
        reason=reason,
        user="ada",
        submitted_at=EIGHT,
        started_at=started,
        finished_at=finished,
        tasks=(),
    )
    assert why_no_output(status) == sentence


def test_one_task_without_output_is_told_from_its_job() -> None:
    """The other tasks of the job may have written output."""
    waits = TaskStatus(index=1, state=TaskState.PENDING, reason="no free host")
    tasks = (TaskStatus(index=0, state=TaskState.RUNNING, started_at=EIGHT), waits)
    status = JobStatus(
        id="ada/x",
        state=JobState.RUNNING,
        user="ada",
        submitted_at=EIGHT,
        started_at=EIGHT,
        tasks=tasks,
    )

    assert why_no_output(status, 1) == "ada/x:1 has not run yet; it is PENDING: no free host"
