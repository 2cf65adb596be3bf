"""Prints how jobs ended. Apart from `follow`, because most commands read no logs."""

from datetime import timedelta

import click

from iris.model.errors import JobCancelled, JobFailed
from iris.model.jobs import JobStatus
from iris.model.states import JobState
from iris.model.units import format_duration


def print_end(status: JobStatus) -> None:
    """Prints how the job ended.

    Raises:
        JobFailed, JobCancelled: the job did not succeed; they set the exit code.
    """
    ran = _after(status)
    if status.state is JobState.SUCCEEDED:
        click.echo(f"{status.id} SUCCEEDED{ran}{f': {status.reason}' if status.reason else ''}", err=True)
        return
    kind = JobCancelled if status.state is JobState.KILLED else JobFailed
    raise kind(f"{status.id} {status.state}{ran}: {status.reason}", status)


def _after(status: JobStatus) -> str:
    """Returns ` after 44s (ran 220ms)`: the time since the submission, and that of the run."""
    if status.finished_at is None:
        return ""
    whole = format_duration(max(timedelta(0), status.finished_at - status.submitted_at))
    if status.started_at is None:
        return f" after {whole}"
    ran = format_duration(max(timedelta(0), status.finished_at - status.started_at))
    return f" after {whole}" if ran == whole else f" after {whole} (ran {ran})"
