"""What people read of a job's state."""

import pytest

from iris.client.jobs.explanation import reason_of
from iris.model.job.cancelling import Cancelling
from iris.model.job.status import JobStatus, TaskStatus
from iris.model.states import JobState, TaskState
from tests.builders import a_task, at


def a_job(state: JobState, *tasks: TaskState, attempt: int = 1) -> JobStatus:
    shown = [
        TaskStatus(index=index, state=each, host=f"h{index}", attempt=attempt)
        for index, each in enumerate(tasks)
    ]
    return JobStatus(
        id="ada/train", state=state, user="ada", submitted_at=at(0), tasks=tuple(shown)
    )


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (
            a_job(JobState.SUCCEEDED, TaskState.SUCCEEDED, TaskState.SUCCEEDED),
            "every task ended with exit code 0",
        ),
        (a_job(JobState.RUNNING, TaskState.RUNNING, TaskState.SUCCEEDED), "runs on h0"),
        (
            a_job(JobState.RUNNING, TaskState.RUNNING, TaskState.BUILDING, attempt=2),
            "attempt 2 runs on h0, h1",
        ),
        (a_job(JobState.PENDING, TaskState.PENDING), "has just been submitted"),
    ],
)
def test_a_job_without_a_reason_is_described_as_it_is(status: JobStatus, text: str) -> None:
    """One that runs again is not in its first attempt."""
    assert reason_of(status) == text


def test_a_cancelled_job_and_a_task_cancelled_alone_say_so_themselves() -> None:
    """Beside the others of its job, only the cancelled one has another reason."""
    cancelling = Cancelling(reason="too slow", since=at(0), until=at(62))
    tasks = (
        a_task(state=TaskState.RUNNING),
        a_task(index=1, state=TaskState.RUNNING, cancelling=cancelling),
    )
    status = JobStatus(
        id="ada/train",
        state=JobState.RUNNING,
        reason="why",
        user="ada",
        submitted_at=at(0),
        tasks=tasks,
    )

    assert reason_of(status, 0) == reason_of(status) == "why"
    assert (
        reason_of(status, 1)
        == "too slow; programs that ignore SIGTERM get SIGKILL at about 12:01:02 UTC"
    )
