"""Prints how jobs ended. Apart from `follow`, because most commands read no logs."""

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
    ran = f" after {format_duration(status.finished_at - status.started_at)}" if status.started_at and status.finished_at else ""
    if status.state is JobState.SUCCEEDED:
        click.echo(f"{status.id} SUCCEEDED{ran}{f': {status.reason}' if status.reason else ''}", err=True)
        return
    kind = JobCancelled if status.state is JobState.KILLED else JobFailed
    raise kind(f"{status.id} {status.state}{ran}: {status.reason}", status)
