"""The last line of a command that waited for a job."""

from datetime import timedelta

import pytest

from iris.cli.show.jobs import print_end
from iris.model.job.errors import JobFailed
from iris.model.job.status import JobStatus
from iris.model.states import JobState
from tests.builders import at


def ended(state: JobState, started: float | None, seconds: float, reason: str = "") -> JobStatus:
    """A job that was submitted at 0 and ended after some seconds."""
    return JobStatus(
        id="ada/train",
        state=state,
        reason=reason,
        user="ada",
        submitted_at=at(0),
        started_at=None if started is None else at(0) + timedelta(seconds=started),
        finished_at=at(0) + timedelta(seconds=seconds),
        tasks=(),
    )


@pytest.mark.parametrize(
    ("started", "seconds", "said"),
    [
        (43.78, 44, "ada/train SUCCEEDED after 44s (ran 220ms)"),
        (0, 44, "ada/train SUCCEEDED after 44s"),
        (60, 3660, "ada/train SUCCEEDED after 1h 1m (ran 1h)"),
    ],
)
def test_the_end_of_a_job_tells_the_wait_from_the_run(
    started: float, seconds: float, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user who waited 44 seconds read that the job ended after 220 milliseconds."""
    print_end(ended(JobState.SUCCEEDED, started, seconds))
    assert capsys.readouterr().err == f"{said}\n"


def test_a_failure_says_the_same_before_its_reason() -> None:
    """Also of a job that never ran, which has waited only."""
    with pytest.raises(
        JobFailed, match=r"^ada/train FAILED after 44s \(ran 4s\): exited with code 3$"
    ):
        print_end(ended(JobState.FAILED, 40, 44, "exited with code 3"))
    with pytest.raises(JobFailed, match=r"^ada/train UNSCHEDULABLE after 44s: no host has room$"):
        print_end(ended(JobState.UNSCHEDULABLE, None, 44, "no host has room"))
