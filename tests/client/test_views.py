"""What people read of a job's state."""

import pytest

from iris.client.views import cancelling, described
from iris.model.jobs import JobStatus, TaskStatus
from iris.model.states import JobState, TaskState
from tests.builders import at


def a_job(state: JobState, *tasks: TaskState, attempt: int = 1) -> JobStatus:
    shown = [TaskStatus(index=index, state=each, host=f"h{index}", attempt=attempt) for index, each in enumerate(tasks)]
    return JobStatus(id="ada/train", state=state, user="ada", submitted_at=at(0), tasks=tuple(shown))


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (a_job(JobState.SUCCEEDED, TaskState.SUCCEEDED, TaskState.SUCCEEDED), "every task ended with exit code 0"),
        (a_job(JobState.RUNNING, TaskState.RUNNING, TaskState.SUCCEEDED), "runs on h0"),
        (a_job(JobState.RUNNING, TaskState.RUNNING, TaskState.BUILDING, attempt=2), "attempt 2 runs on h0, h1"),
        (a_job(JobState.PENDING, TaskState.PENDING), "has just been submitted"),
    ],
)
def test_a_job_without_a_reason_is_described_as_it_is(status: JobStatus, text: str) -> None:
    """One that runs again is not in its first attempt."""
    assert described(status) == text


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (
            a_job(JobState.RUNNING, TaskState.RUNNING),
            "is being cancelled: its programs got SIGTERM, and get SIGKILL after their grace period",
        ),
        (a_job(JobState.PENDING, TaskState.PENDING), "is being cancelled"),
        (a_job(JobState.KILLED, TaskState.KILLED), ""),
    ],
)
def test_a_job_that_is_being_cancelled_says_so_until_it_has_ended(status: JobStatus, reason: str) -> None:
    """Programs may take their whole grace period; the list still says RUNNING."""
    assert cancelling(status).reason == reason
