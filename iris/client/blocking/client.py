"""The client for programs that are not asynchronous: scripts, threads and notebooks. Each call waits for its result."""

import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from iris.client.blocking.event_loop import BackgroundLoop
from iris.client.client import AsyncIrisClient
from iris.client.job import AsyncJob, ExecResult, LogEntry
from iris.client.job_filter import JobFilter
from iris.client.job_options import JobOptions
from iris.client.slices import SliceRow
from iris.client.views import Explanation, JobRow
from iris.client.work import Work
from iris.messages.scheduler import HostView
from iris.model import names
from iris.model.errors import Unreachable
from iris.model.jobs import JobStatus, TaskStatus

if TYPE_CHECKING:
    from iris.config import ClusterConfig


class Job:
    """A job of a cluster."""

    def __init__(self, job: AsyncJob, loop: BackgroundLoop) -> None:
        """Creates the handle of a job. `IrisClient.submit` and `IrisClient.job` do this."""
        self._job = job
        self._loop = loop

    @property
    def id(self) -> str:
        """`USER/NAME`."""
        return self._job.id

    @property
    def ui(self) -> str:
        """The job's page in Temporal's Web UI; empty: there is none, or the job was submitted elsewhere."""
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

    def cancel(self, reason: str = "") -> None:
        """As `AsyncJob.cancel`."""
        self._loop.run(self._job.cancel(reason))

    def wait(self, timeout: timedelta | float | None = None, *, stream_logs: bool = False) -> JobStatus:
        """As `AsyncJob.wait`. Ctrl-C ends the wait and not the job.

        Args:
            stream_logs: prints the job's output meanwhile.
        """
        if not stream_logs:
            return self._loop.run(self._job.wait(timeout))
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        end = time.monotonic() + seconds if seconds is not None else None
        try:
            for entry in self._loop.iterate(self._job.logs(follow=True), end):
                print(entry)
        except TimeoutError:
            return self._loop.run(self._job.wait(0))  # its error says that the job continues
        return self._loop.run(self._job.wait(timeout))

    def result(self, timeout: timedelta | float | None = None, *, trusted: bool = False) -> Any:
        """As `AsyncJob.result`."""
        return self._loop.run(self._job.result(timeout, trusted=trusted))

    def results(
        self, timeout: timedelta | float | None = None, *, trusted: bool = False, return_exceptions: bool = False
    ) -> list[Any]:
        """As `AsyncJob.results`."""
        return self._loop.run(self._job.results(timeout, trusted=trusted, return_exceptions=return_exceptions))

    def logs(self, task: int | None = None, attempt: int | None = None, *, follow: bool = False) -> Iterator[LogEntry]:
        """As `AsyncJob.logs`."""
        return self._loop.iterate(self._job.logs(task, attempt, follow=follow))

    def fetch(self, directory: Path | str = ".", *, force: bool = False) -> list[Path]:
        """As `AsyncJob.fetch`."""
        return self._loop.run(self._job.fetch(directory, force=force))

    def exec(self, *command: str, task: int | None = None, timeout: timedelta | float | None = None) -> ExecResult:
        """As `AsyncJob.exec`."""
        return self._loop.run(self._job.exec(*command, task=task, timeout=timeout))

    def __repr__(self) -> str:
        return repr(self._job)


class IrisClient:
    """A connection to one cluster, which any thread may use.

    with IrisClient.local() as client:
        job = client.submit(train, 0.1, resources=Resources(cpu=2))
        print(job.result())
    """

    def __init__(self, cluster: str | None = None) -> None:
        """Connects to a cluster: as `AsyncIrisClient.connect`."""
        self._undo = ExitStack()
        self._loop = BackgroundLoop()
        self._undo.callback(self._loop.close)
        try:
            self._client = self._loop.run(AsyncIrisClient.connect(cluster))
        except BaseException:
            self.close()
            raise

    @classmethod
    def remote(cls, cluster: str) -> Self:
        """Connects to a cluster by its name or its address.

        Raises:
            Unreachable: the cluster does not run or does not answer.
            NotFound: the service has no such cluster.
        """
        return cls(cluster)

    @classmethod
    def from_env(cls) -> Self:
        """Connects to the cluster of the job that this program runs in.

        Raises:
            Unreachable: the program does not run in a job, or the cluster does not answer.
        """
        if names.ENV_JOB_ID not in os.environ:
            raise Unreachable(f"this program does not run in a job: {names.ENV_JOB_ID} is not set")
        return cls()

    @classmethod
    def local(cls, config: "ClusterConfig | None" = None) -> Self:
        """Starts a cluster on this machine, which ends with the client and at the latest with this program.

        Args:
            config: its groups' shapes; None: one host.

        Raises:
            IrisError: it did not start.
        """
        from iris.client.operate.cluster_manager import ClusterManager
        from iris.config import local_config, make_local_config

        name = f"python-{secrets.token_hex(4)}"
        own = make_local_config(config, name) if config is not None else local_config(name)
        manager = ClusterManager(own, ephemeral=True, owned=True)
        manager.start()
        try:
            client = cls(name)
        except BaseException:
            manager.stop()
            raise
        client._undo.callback(manager.stop)
        return client

    @property
    def cluster(self) -> str:
        """The cluster's name."""
        return self._client.record.name

    @property
    def address(self) -> str:
        """The address of the cluster's Temporal service."""
        return self._client.record.address

    @property
    def parts(self) -> tuple[AsyncIrisClient, BackgroundLoop]:
        """The asynchronous client, and the loop on which it runs: for what is built on both, such as pools."""
        return self._client, self._loop

    def submit(
        self,
        work: Work,
        *args: Any,
        kwargs: Mapping[str, Any] = {},
        workspace: Path | str | bool | None = None,
        **options: Unpack[JobOptions],
    ) -> Job:
        """As `AsyncIrisClient.submit`."""
        made = self._client.submit(work, *args, kwargs=kwargs, workspace=workspace, **options)
        return Job(self._loop.run(made), self._loop)

    def job(self, job: str) -> Job:
        """As `AsyncIrisClient.job`."""
        return Job(self._client.job(job), self._loop)

    def jobs(self, wanted: JobFilter | None = None, *, limit: int = 50) -> Sequence[JobRow]:
        """As `JobsClient.list`."""
        return self._loop.run(self._client.jobs.list(wanted, limit=limit))

    def hosts(self) -> Sequence[HostView]:
        """As `HostsClient.list`."""
        return self._loop.run(self._client.hosts.list())

    def slices(self) -> Sequence[SliceRow]:
        """As `SlicesClient.list`."""
        return self._loop.run(self._client.slices.list())

    def close(self) -> None:
        """Ends the connection, and the cluster if `local` has started it. Jobs elsewhere continue."""
        self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<IrisClient of {self.cluster} at {self.address}>"
