"""How tasks that are cancelled end."""

from iris.model.states import TaskState
from iris.scheduling.jobs.cancellations import Cancellations


def test_a_task_that_the_user_cancelled_keeps_that_end_when_its_job_ends_too() -> None:
    """The user's first word about one task explains its end better than what became of the job
    afterwards.
    """
    asked = (
        Cancellations()
        .with_task(1, "too slow")
        .with_task(1, "again")
        .with_all("the job ended FAILED")
    )

    assert asked.end_of(1) == (TaskState.CANCELLED, "too slow")
    assert asked.end_of(0) == (TaskState.KILLED, "the job ended FAILED")


def test_a_task_whose_cancellation_its_job_did_not_request_has_no_end_here() -> None:
    """It was cancelled elsewhere, and the caller knows where."""
    assert Cancellations().with_task(1, "too slow").end_of(0) is None
