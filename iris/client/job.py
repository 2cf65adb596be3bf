"""One job in Python: waiting for it, its result, its logs, its files."""

import asyncio
import io
from collections.abc import AsyncIterator, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, Literal, NamedTuple, overload

from typing_extensions import TypeVar

from iris.client import outputs
from iris.client.checkpoints import checkpoint_files
from iris.client.connect.identity import current_user
from iris.client.exec import new_session
from iris.client.job_options import Duration, duration_of, parse_band
from iris.client.job_results import results_of
from iris.client.logs.entries import Entries, LogEntry
from iris.client.logs.follow import new_lines, reading_from
from iris.client.logs.stored import LogReader
from iris.client.views import check_task
from iris.messages.exec import ExecRequest, FrameKind, ProfileFormat, ProfileRequest
from iris.model.errors import InvalidValue, Rejected
from iris.model.jobs import JobStatus, TaskStatus
from iris.storage.object_store import Store

if TYPE_CHECKING:
    from iris.client.client import AsyncIrisClient
    from iris.client.notifications import NotificationRow
    from iris.client.usage import InUse
    from iris.client.views import Explanation

#: What the job's function returns; None for a program.
T = TypeVar("T", default=Any)


class ExecResult(NamedTuple):
    """The end of a command beside a task."""

    exit_code: int
    stdout: str
    stderr: str
    #: Why it could not be started or was ended; empty: it ended by itself.
    reason: str


class AsyncJob(Generic[T]):
    """A job of a cluster. `await job` waits for its end and returns its result."""

    def __init__(self, client: "AsyncIrisClient", job_id: str, run_id: str | None, ui: str = "") -> None:
        """Creates the handle of a job that exists. `AsyncIrisClient.submit` and `.job` do this.

        Args:
            run_id: the run of the job's workflow; None: the latest with this id.
        """
        self._connection = client.connection
        self._jobs = client.jobs
        self._exec = client.exec
        self._store_url = client.record.store
        self.run_id = run_id
        #: `USER/NAME`.
        self.id = job_id
        #: The job's page in Temporal's Web UI; empty: there is none, or the job was submitted elsewhere.
        self.ui = ui

    async def status(self) -> JobStatus:
        """Returns the job's current status.

        Raises:
            NotFound: there is no such job.
            Unreachable: no control plane answers.
        """
        return await self._jobs.status(self.id, self.run_id)

    async def tasks(self) -> tuple[TaskStatus, ...]:
        """Returns the current status of each task.

        Raises:
            NotFound, Unreachable: as in `status`.
        """
        return (await self.status()).tasks

    async def explain(self, task: int | None = None) -> "Explanation":
        """Explains the state of the job, or of one task.

        Raises:
            NotFound: there is no such job, or it has no such task.
            Unreachable: no control plane answers.
        """
        return await self._jobs.explain(self.id, task, self.run_id)

    async def cancel(self, reason: str = "", *, task: int | None = None) -> None:
        """Requests the job's cancellation. Does nothing if the job, or the task, has ended.

        Args:
            task: cancels only this one; the others continue. None: the whole job.

        Raises:
            NotFound: there is no such job, or it has no such task.
            Rejected: the tasks of the job are a gang, which ends as a whole.
        """
        if task is None:
            await self._jobs.cancel(self.id, reason, self.run_id)
        else:
            await self._jobs.cancel_task(self.id, task, reason, self.run_id)

    async def hold(self, reason: str = "") -> None:
        """Holds the job: no task of it starts until it is released, and running tasks continue.

        Raises:
            NotFound: there is no such job.
            Rejected: the job has ended.
        """
        await self._jobs.hold(self.id, reason, self.run_id)

    async def release(self) -> None:
        """Releases a job that is held.

        Raises:
            NotFound: there is no such job.
            Rejected: the job has ended, or is not held.
        """
        await self._jobs.release(self.id, self.run_id)

    async def set_priority(self, priority: str) -> None:
        """Moves the job to another priority band: `production`, `interactive` or `batch`. Running tasks continue in that band.

        Raises:
            InvalidValue: there is no such band.
            NotFound: there is no such job.
            Rejected: the job has ended.
        """
        await self._jobs.set_priority(self.id, parse_band(priority), self.run_id)

    async def usage(self) -> "Sequence[InUse]":
        """Returns the resource use of each task that is on a host now, from its host's last heartbeat.

        Raises:
            NotFound: there is no such job.
            Unreachable: no control plane answers.
        """
        return await self._jobs.usage(await self.status())

    async def notifications(self) -> "Sequence[NotificationRow]":
        """Returns what has become of the calls of the job's webhooks. Asks only the service.

        Raises:
            NotFound: there is no such job.
            Unreachable: the service does not answer.
        """
        from iris.client.notifications import notifications_of

        spec = await self._jobs.submitted_spec(self.id, self.run_id)
        return await notifications_of(self._connection, spec, (await self._jobs.log_source(self.id, self.run_id)).run_id)

    async def wait(self, timeout: Duration | None = None) -> JobStatus:
        """Waits until the job has ended, with or without success, and returns its status.

        Args:
            timeout: in seconds if it is a number; None: no limit.

        Raises:
            WaitTimeout: the timeout has expired; the job continues.
            NotFound: there is no such job.
        """
        return await self._jobs.wait(self.id, self.run_id, duration_of(timeout, "timeout"))

    async def result(self, timeout: Duration | None = None, *, trusted: bool = False) -> T:
        """Waits for the job's end and returns what its function returned; for a command, None.

        Of several tasks it is the result of the first; `results` returns all.

        Args:
            timeout: as in `wait`.
            trusted: also unpickles the result of another user's job, which runs code that this user has chosen.

        Raises:
            Exception: what the function raised, with the job's traceback as its cause.
            JobFailed, JobCancelled: the job ended otherwise.
            NoResult: the result is not in the store, or cannot be restored here.
            Rejected: it is another user's job.
            WaitTimeout, NotFound: as in `wait`.
        """
        first: T = (await self._results(timeout, only_first=True, trusted=trusted))[0]
        return first

    @overload
    async def results(
        self, timeout: Duration | None = None, *, trusted: bool = False, return_exceptions: Literal[False] = False
    ) -> list[T]: ...

    @overload
    async def results(
        self, timeout: Duration | None = None, *, trusted: bool = False, return_exceptions: bool
    ) -> list[T | Exception]: ...

    async def results(
        self, timeout: Duration | None = None, *, trusted: bool = False, return_exceptions: bool = False
    ) -> list[T] | list[T | Exception]:
        """Waits for the job's end and returns the result of each task.

        Args:
            return_exceptions: for a job that may lose some tasks (`max_task_failures`): the exceptions of failed tasks are in the
                list, instead of being raised.

        Raises:
            Exception, JobFailed, JobCancelled, NoResult, Rejected, WaitTimeout, NotFound: as in `result`.
        """
        return await self._results(timeout, only_first=False, trusted=trusted, return_exceptions=return_exceptions)

    def __await__(self) -> Generator[Any, None, T]:
        return self.result().__await__()

    async def logs(self, task: int | None = None, attempt: int | None = None, *, follow: bool = False) -> AsyncIterator[LogEntry]:
        """Yields the job's output, by time.

        Args:
            task: only this task; None: all.
            attempt: only this attempt; None: all.
            follow: waits for further output until the job has ended.

        Raises:
            NotFound: there is no such job, or it has no such task.
            Unreachable: the cluster is local and was stopped before the job had ended.
            IrisError: the store does not answer.
        """
        source = await self._jobs.log_source(self.id, self.run_id)
        if task is not None:
            check_task(self.id, task, source.numbers)
        reader, entries = LogReader(Store(self._store_url), self.id, source.run_id, task, attempt), Entries()
        ended: asyncio.Future[None]
        if follow:
            ended = asyncio.create_task(self._jobs.wait_until_ended(self.id, self.run_id))
        else:
            ended = asyncio.get_running_loop().create_future()
            ended.set_result(None)
        try:
            async for lines in new_lines(reader, ended, f"the log of {self.id}"):
                for entry in entries.add(lines):
                    yield entry
            for entry in entries.finish():
                yield entry
            await ended
        finally:
            ended.cancel()

    async def fetch(self, directory: Path | str = ".", *, checkpoint: bool = False, force: bool = False) -> list[Path]:
        """Downloads the files that the tasks left in `$IRIS_OUTPUT_DIR`, and returns their paths.

        Args:
            directory: with several tasks, each has a folder in it.
            checkpoint: downloads the files of `$IRIS_CHECKPOINT_DIR` instead, as they were saved last.
            force: overwrites files that differ.

        Raises:
            Rejected: a different file exists; nothing was fetched.
            NotFound: there is no such job.
            IrisError: the store does not answer.
        """
        source = await self._jobs.log_source(self.id, self.run_id)
        store = Store(self._store_url)
        with reading_from(store, f"the files of {self.id}"):
            files_of = checkpoint_files if checkpoint else outputs.outputs_of
            files = await files_of(store, self.id, source.run_id)
            fetched = await outputs.fetch(store, files, Path(directory), by_task=source.tasks > 1, force=force)
        return [each.to for each in fetched]

    async def exec(
        self,
        *command: str,
        task: int | None = None,
        timeout: Duration | None = None,
        input: bytes | str | BinaryIO | None = None,
    ) -> ExecResult:
        """Runs a command beside a running task, with the task's environment, directory and limits, and waits for its end.

        Args:
            task: None: the only task of the job.
            timeout: the command is ended after this time, in seconds if it is a number; None: with the attempt.
            input: the command's standard input, also of a binary file, which is not read into memory as a whole; None: empty.

        Raises:
            OSError: the file cannot be read.
            Rejected: the task does not run, or its host cannot run the command.
            NotFound: there is no such job, or it has no such task.
            InvalidValue: the command is empty; or the job has several tasks, and `task` is None.
            Unreachable: the host or the store does not answer.
        """
        if not command:
            raise InvalidValue("command", "", "is empty", "pass words, such as 'nvidia-smi', '-L'")
        where = await self._exec.locate(self.id, task, self.run_id)
        request = ExecRequest(
            session=new_session(),
            job=where.job,
            index=where.task,
            argv=command,
            stdin=input is not None,
            timeout=duration_of(timeout, "timeout"),
        )
        given = input.encode() if isinstance(input, str) else input or b""
        source = io.BytesIO(given) if isinstance(given, bytes) else given
        written = {FrameKind.OUT: bytearray(), FrameKind.ERR: bytearray()}
        async with self._exec.run(where, request) as session:
            feeding = asyncio.create_task(session.feed(source) if request.stdin else asyncio.sleep(0))
            try:
                async for kind, data in session.output():
                    if kind in written:
                        written[kind] += data
                end = await session.end()
            finally:
                feeding.cancel()  # a command need not read all of its input
            (failed,) = await asyncio.gather(feeding, return_exceptions=True)
            if isinstance(failed, Exception):
                raise failed
        out, err = (written[kind].decode(errors="replace") for kind in (FrameKind.OUT, FrameKind.ERR))
        return ExecResult(end.exit_code, out, err, end.reason)

    async def profile(self, task: int | None = None, *, format: str = "dump", duration: Duration | None = None) -> bytes:
        """Looks into the Python processes of a running task, and returns what `iris profile` prints or writes to a file.

        Args:
            task: None: the only task of the job.
            format: `dump` (what each thread does now), `flamegraph` (SVG), `speedscope` (JSON) or `raw`.
            duration: how long to sample, unless it is a dump; None: ten seconds.

        Raises:
            InvalidValue: there is no such format; or the job has several tasks, and `task` is None.
            Rejected: the task does not run, has no Python process, or its host does not allow it.
            NotFound: there is no such job, or it has no such task.
            Unreachable: the host or the store does not answer.
        """
        if format not in list(ProfileFormat):
            raise InvalidValue("format", format, "is not a format of profiles", f"write {', '.join(ProfileFormat)}")
        where = await self._exec.locate(self.id, task, self.run_id)
        request = ProfileRequest(session=new_session(), job=where.job, index=where.task, format=ProfileFormat(format))
        if duration is not None:
            request = request.model_copy(update={"duration": duration_of(duration, "duration")})
        return (await self._exec.profile(where, request))[0]

    def __repr__(self) -> str:
        return f"<Job {self.id}>"

    # -- private -------------------------------------------------------------------------------------------------------------

    async def _results(
        self, timeout: Duration | None, *, only_first: bool, trusted: bool, return_exceptions: bool = False
    ) -> list[Any]:
        user = self.id.partition("/")[0]
        if not trusted and user != current_user():
            raise Rejected(
                f"the result of {self.id} is not unpickled: this can run code of {user}; to trust it, pass trusted=True"
            )
        status = await self.wait(timeout)
        source = await self._jobs.log_source(self.id, self.run_id)
        return await results_of(
            Store(self._store_url), source, status, only_first=only_first, return_exceptions=return_exceptions
        )
