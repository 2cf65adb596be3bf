"""How cancelled tasks end."""

from iris.model.states import TaskState
from iris.scheduling.jobs.cancellations import Cancellations


def test_a_task_that_the_user_cancelled_keeps_that_end_when_its_job_ends_too() -> None:
    """The user's request for one task explains its end better than the later end of the job."""
    asked = (
        Cancellations()
        .with_task(1, "too slow")
        .with_task(1, "again")
        .with_all("the job ended FAILED")
    )

    assert asked.end_of(1) == (TaskState.CANCELLED, "too slow")
    assert asked.end_of(0) == (TaskState.KILLED, "the job ended FAILED")


def test_a_task_whose_cancellation_its_job_did_not_request_has_no_end_here() -> None:
    """Another caller cancelled the task and decides how it ends."""
    assert Cancellations().with_task(1, "too slow").end_of(0) is None
