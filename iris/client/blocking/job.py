"""The handle of a job for programs that are not asynchronous: the hand-written parts, and its
table in a notebook.
"""

import asyncio
import html
import time
from html import escape
from typing import Generic

from iris.client.blocking.event_loop import BackgroundLoop
from iris.client.blocking.generated.job import JobMethods
from iris.client.build.options import Duration, duration_of
from iris.client.jobs.explanation import reason_of
from iris.client.jobs.handle import AsyncJob, T
from iris.client.logs.whole_lines import print_line
from iris.model.errors import IrisError
from iris.model.job.cancelling import state_text
from iris.model.job.status import JobStatus

#: How long a notebook waits for the state of a job that it shows, in seconds.
SHOW_TIMEOUT = 5.0
#: The maximum number of tasks in the table that a notebook shows. A job can have thousands of
#: tasks.
MAX_TASKS = 20


class Job(JobMethods[T], Generic[T]):
    """A job of a cluster."""

    _asynchronous: AsyncJob[T]

    def __init__(self, job: AsyncJob[T], loop: BackgroundLoop) -> None:
        """Creates the handle of a job. `IrisClient.submit` and `IrisClient.job` do this.

        Args:
            job: the asynchronous handle.
            loop: the event loop of the asynchronous handle.
        """
        super().__init__(job, loop)

    @property
    def id(self) -> str:
        """The id of the job: `USER/NAME`, or `USER/PARENT/NAME` for a child job."""
        return self._asynchronous.id

    @property
    def run_id(self) -> str | None:
        """The id of the run of the job's workflow; None for the latest run."""
        return self._asynchronous.run_id

    @property
    def run_number(self) -> int | None:
        """The number of the run, as in `NAME#2`; None if the handle was made without a number."""
        return self._asynchronous.run_number

    @property
    def is_bare(self) -> bool:
        """Whether the next request finds out which job is meant: a program in a job named the job
        without its user.
        """
        return self._asynchronous.is_bare

    @property
    def ui(self) -> str:
        """The address of the job's page in Temporal's Web UI; empty if there is no such page, or
        the run is not known yet.
        """
        return self._asynchronous.ui

    def wait(self, timeout: Duration | None = None, *, stream_logs: bool = False) -> JobStatus:
        """Waits until the job has ended, with or without success, and returns its status.

        Ctrl-C ends the wait and not the job.

        Args:
            timeout: the longest wait, in seconds if it is a number; None for no limit.
            stream_logs: whether to print the job's output meanwhile.

        Raises:
            WaitTimeout: the timeout has expired; the job continues. The error is a `TimeoutError`.
            NotFound: there is no such job.
            Unreachable: the service does not answer.
        """
        if not stream_logs:
            return self._loop.run(self._asynchronous.wait(timeout))
        limit = duration_of(timeout, "timeout")
        end = time.monotonic() + limit.total_seconds() if limit is not None else None
        try:
            for entry in self._loop.iterate(self._asynchronous.logs(follow=True), end):
                print_line(entry)
        except TimeoutError:
            # The error says that the job continues.
            return self._loop.run(self._asynchronous.wait(0))
        return self._loop.run(self._asynchronous.wait(timeout))

    def __repr__(self) -> str:
        return repr(self._asynchronous)

    def _repr_html_(self) -> str:
        """Returns the job's current state as HTML for a notebook."""
        try:
            return job_table(
                self._loop.run(asyncio.wait_for(self._asynchronous.status(), SHOW_TIMEOUT)), self.ui
            )
        except (IrisError, TimeoutError) as error:
            return (
                f"{html.escape(repr(self))}: {html.escape(str(error) or 'its state is not known')}"
            )


def job_table(status: JobStatus, ui: str = "") -> str:
    """Returns the job's state, its reason and its tasks as HTML.

    Args:
        ui: the address of the job's page in Temporal's Web UI; empty for no link.
    """
    name = f'<a href="{escape(ui)}">{escape(status.id)}</a>' if ui else escape(status.id)
    head = f"<b>{name}</b> {escape(state_text(status))}: {escape(reason_of(status))}"
    rows = [
        _row(
            str(task.index),
            state_text(task),
            task.host or "",
            str(task.attempt),
            "" if task.exit_code is None else str(task.exit_code),
            task.reason,
        )
        for task in status.tasks[:MAX_TASKS]
    ]
    if len(status.tasks) > MAX_TASKS:
        rows.append(f'<tr><td colspan="6">and {len(status.tasks) - MAX_TASKS} more</td></tr>')
    columns = "".join(
        f"<th>{column}</th>"
        for column in ("task", "state", "host", "attempt", "exit code", "reason")
    )
    return f"<div>{head}<table><tr>{columns}</tr>{''.join(rows)}</table></div>"


def _row(*cells: str) -> str:
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
