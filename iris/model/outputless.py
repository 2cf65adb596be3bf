"""Says why a job or a task has no output."""

from iris.model.job.cancelling import state_text
from iris.model.job.spec import JobStatus
from iris.model.units import format_duration


def why_no_output(status: JobStatus, task: int | None = None) -> str:
    """Returns the sentence for a job whose log is empty: whether it ran, and its state or how it
    ended.

    Args:
        task: only this task was asked for; None: all.
    """
    shown = next((each for each in status.tasks if each.index == task), status)
    name = status.id if task is None or shown is status else f"{status.id}:{task}"
    state = state_text(shown)
    ran = shown.started_at is not None
    if shown.started_at is not None and shown.finished_at is not None:
        state += f" after {format_duration(shown.finished_at - shown.started_at)}"
    if shown.reason:
        state += f": {shown.reason}"
    if status.state.ended or shown.finished_at is not None:
        return (
            f"{name} {'wrote no output' if ran else 'never ran, so it has no output'}; it ended"
            f" {state}"
        )
    return f"{name} {'has written no output yet' if ran else 'has not run yet'}; it is {state}"
