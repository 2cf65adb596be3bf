"""One job, for programs that are not asynchronous."""

import asyncio
import html
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, Literal, overload

from typing_extensions import TypeVar

from iris.client.blocking.event_loop import BackgroundLoop
from iris.client.job import AsyncJob
from iris.client.job_options import Duration, duration_of
from iris.client.logs.entries import LogEntry
from iris.client.logs.whole_lines import print_line
from iris.client.task_commands import ExecResult
from iris.client.usage import InUse
from iris.client.views import Explanation
from iris.model.errors import IrisError
from iris.model.jobs import JobStatus, TaskStatus

if TYPE_CHECKING:
    from iris.client.notifications import NotificationRow

#: What the job's function returns; None for a program.
T = TypeVar("T", default=Any)
#: How long a notebook waits for the state of a job that it shows.
SHOW_TIMEOUT = 5.0


class Job(Generic[T]):
    """A job of a cluster."""

    def __init__(self, job: AsyncJob[T], loop: BackgroundLoop) -> None:
        """Creates the handle of a job. `IrisClient.submit` and `IrisClient.job` do this."""
        self._job = job
        self._loop = loop

    @property
    def id(self) -> str:
        """`USER/NAME`."""
        return self._job.id

    @property
    def run_id(self) -> str | None:
        """The run of the job's workflow; None: the latest."""
        return self._job.run_id

    @property
    def run_number(self) -> int | None:
        """The run's number among those of the name, as in `NAME#2`; None: the job was not named by it."""
        return self._job.run_number

    @property
    def ui(self) -> str:
        """The job's page in Temporal's Web UI; empty: there is none, or the run is not known yet."""
        return self._job.ui

    def status(self) -> JobStatus:
        """As `AsyncJob.status`."""
        return self._loop.run(self._job.status())

    def tasks(self) -> tuple[TaskStatus, ...]:
        """As `AsyncJob.tasks`."""
        return self._loop.run(self._job.tasks())

    def explain(self, task: int | None = None) -> Explanation:
        """As `AsyncJob.explain`."""
        return self._loop.run(self._job.explain(task))

    def cancel(self, reason: str = "", *, task: int | None = None) -> None:
        """As `AsyncJob.cancel`."""
        self._loop.run(self._job.cancel(reason, task=task))

    def hold(self, reason: str = "") -> None:
        """As `AsyncJob.hold`."""
        self._loop.run(self._job.hold(reason))

    def release(self) -> None:
        """As `AsyncJob.release`."""
        self._loop.run(self._job.release())

    def set_priority(self, priority: str) -> None:
        """As `AsyncJob.set_priority`."""
        self._loop.run(self._job.set_priority(priority))

    def usage(self) -> Sequence[InUse]:
        """As `AsyncJob.usage`."""
        return self._loop.run(self._job.usage())

    def notifications(self) -> "Sequence[NotificationRow]":
        """As `AsyncJob.notifications`."""
        return self._loop.run(self._job.notifications())

    def wait(self, timeout: Duration | None = None, *, stream_logs: bool = False) -> JobStatus:
        """As `AsyncJob.wait`. Ctrl-C ends the wait and not the job.

        Args:
            stream_logs: prints the job's output meanwhile.
        """
        if not stream_logs:
            return self._loop.run(self._job.wait(timeout))
        limit = duration_of(timeout, "timeout")
        end = time.monotonic() + limit.total_seconds() if limit is not None else None
        try:
            for entry in self._loop.iterate(self._job.logs(follow=True), end):
                print_line(entry)
        except TimeoutError:
            return self._loop.run(self._job.wait(0))  # its error says that the job continues
        return self._loop.run(self._job.wait(timeout))

    def result(self, timeout: Duration | None = None, *, trusted: bool = False) -> T:
        """As `AsyncJob.result`."""
        return self._loop.run(self._job.result(timeout, trusted=trusted))

    @overload
    def results(
        self, timeout: Duration | None = None, *, trusted: bool = False, return_exceptions: Literal[False] = False
    ) -> list[T]: ...

    @overload
    def results(
        self, timeout: Duration | None = None, *, trusted: bool = False, return_exceptions: bool
    ) -> list[T | Exception]: ...

    def results(
        self, timeout: Duration | None = None, *, trusted: bool = False, return_exceptions: bool = False
    ) -> list[T] | list[T | Exception]:
        """As `AsyncJob.results`."""
        return self._loop.run(self._job.results(timeout, trusted=trusted, return_exceptions=return_exceptions))

    def logs(
        self,
        task: int | None = None,
        attempt: int | None = None,
        *,
        follow: bool = False,
        tail: int | None = None,
        since: Duration | datetime | None = None,
        stream: str | Collection[str] | None = None,
    ) -> Iterator[LogEntry]:
        """As `AsyncJob.logs`."""
        return self._loop.iterate(self._job.logs(task, attempt, follow=follow, tail=tail, since=since, stream=stream))

    def fetch(
        self,
        directory: Path | str = ".",
        *,
        task: int | None = None,
        attempt: int | None = None,
        checkpoint: bool = False,
        force: bool = False,
    ) -> list[Path]:
        """As `AsyncJob.fetch`."""
        fetching = self._job.fetch(directory, task=task, attempt=attempt, checkpoint=checkpoint, force=force)
        return self._loop.run(fetching)

    def exec(
        self,
        *command: str,
        task: int | None = None,
        timeout: Duration | None = None,
        input: bytes | str | BinaryIO | None = None,
    ) -> ExecResult:
        """As `AsyncJob.exec`."""
        return self._loop.run(self._job.exec(*command, task=task, timeout=timeout, input=input))

    @contextmanager
    def port_forward(self, *ports: int | str, task: int | None = None) -> Iterator[tuple[int, ...]]:
        """As `AsyncJob.port_forward`.

        with job.port_forward(8888) as (port,):
            print(f"http://127.0.0.1:{port}")
        """
        forward = self._job.port_forward(*ports, task=task)
        numbers = self._loop.run(forward.__aenter__())
        try:
            yield numbers
        finally:
            self._loop.run(forward.__aexit__(None, None, None))

    def profile(self, task: int | None = None, *, format: str = "dump", duration: Duration | None = None) -> bytes:
        """As `AsyncJob.profile`."""
        return self._loop.run(self._job.profile(task, format=format, duration=duration))

    @overload
    def rerun(self, *, failed: Literal[False] = False, name: str | None = None) -> "Job[T]": ...

    @overload
    def rerun(self, *, failed: bool, name: str | None = None) -> "Job[T] | None": ...

    def rerun(self, *, failed: bool = False, name: str | None = None) -> "Job[T] | None":
        """As `AsyncJob.rerun`."""
        again = self._loop.run(self._job.rerun(failed=failed, name=name))
        return None if again is None else Job(again, self._loop)

    def __repr__(self) -> str:
        return repr(self._job)

    def _repr_html_(self) -> str:
        """A notebook shows the job's current state."""
        from iris.client.blocking.job_table import job_table

        try:
            return job_table(self._loop.run(asyncio.wait_for(self._job.status(), SHOW_TIMEOUT)), self.ui)
        except (IrisError, TimeoutError) as error:
            return f"{html.escape(repr(self))}: {html.escape(str(error) or 'its state is not known')}"
