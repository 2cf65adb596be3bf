"""How a notebook shows a job."""

from iris.client.blocking.job import job_table
from iris.model.job.status import JobStatus, TaskStatus
from iris.model.states import JobState, TaskState
from tests.builders import at


def test_what_a_program_said_of_itself_cannot_change_the_notebook() -> None:
    """Reasons have the last lines of programs, and a notebook runs the HTML that it shows."""
    task = TaskStatus(
        index=0,
        state=TaskState.FAILED,
        host="h0",
        attempt=2,
        exit_code=3,
        reason="<script>alert(1)</script>",
    )
    status = JobStatus(
        id="ada/train",
        state=JobState.FAILED,
        reason="code 3 & <b>",
        user="ada",
        submitted_at=at(0),
        tasks=(task,),
    )
    shown = job_table(status, 'http://localhost/"onmouseover=')

    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "FAILED: code 3 &amp; &lt;b&gt;" in shown
    assert '<a href="http://localhost/&quot;onmouseover=">ada/train</a>' in shown


def test_a_job_of_thousands_of_tasks_stays_readable() -> None:
    """A notebook keeps what it shows in its file."""
    tasks = tuple(TaskStatus(index=index) for index in range(5000))
    status = JobStatus(
        id="ada/sweep", state=JobState.PENDING, user="ada", submitted_at=at(0), tasks=tasks
    )
    shown = job_table(status)

    assert "ada/sweep</b> PENDING: has just been submitted" in shown
    assert "and 4980 more" in shown
    assert len(shown) < 5000
