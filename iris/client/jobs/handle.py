"""The handle of one job in Python: its status, its result, its logs and its files."""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Generator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, Literal, overload

from typing_extensions import TypeVar

from iris.client.build.options import Duration, duration_of, parse_band, secret_sources
from iris.client.connect.rpc import Connection
from iris.client.jobs.client import JobsClient
from iris.client.jobs.exec.commands import ExecResult, profile_format, profile_task, run_command
from iris.client.jobs.exec.port_forward import forwarded
from iris.client.jobs.exec.session import ExecClient, TaskLocation
from iris.client.jobs.fetch import fetch_task_files
from iris.client.jobs.notifications import NotificationRow, notifications_of
from iris.client.jobs.results import check_own, results_of
from iris.client.jobs.status import check_task
from iris.client.jobs.submit.rerun import submit_again
from iris.client.logs.entries import LogEntry
from iris.client.logs.selection import milliseconds_since, streams_of
from iris.client.logs.stored import LogReader
from iris.client.logs.whole_lines import print_lines, whole_lines
from iris.model.errors import InvalidValue
from iris.model.job.status import JobStatus, TaskStatus
from iris.storage.object_store import Store

if TYPE_CHECKING:
    from iris.client.jobs.explanation import Explanation
    from iris.client.jobs.usage import InUse
    from iris.usage.summary import JobUse

#: The type that the job's function returns. None for a program.
T = TypeVar("T", default=Any)


class AsyncJob(Generic[T]):
    """A handle of one job. `await job` waits until the job ends, and returns its result."""

    def __init__(
        self,
        connection: Connection,
        job_id: str,
        run_id: str | None,
        ui: str = "",
        run_number: int | None = None,
        *,
        is_bare: bool = False,
    ) -> None:
        """Creates the handle of a job that exists. `AsyncIrisClient.submit` and `.job` do this.

        Args:
            connection: the connection to the job's cluster.
            job_id: `USER/NAME`.
            run_id: the run of the job's workflow. None is the run with this number, or the latest
                run.
            ui: the job's page in Temporal's Web UI. Empty if it is unknown.
            run_number: the number in `NAME#2`. None if the job was named without a number.
        """
        self._connection = connection
        self._jobs = JobsClient(connection)
        self._exec = ExecClient(connection, self._jobs)
        self._store_url = connection.record.store
        #: The job's status as it was last returned. None if no status was returned yet.
        self._seen: JobStatus | None = None
        #: The run id of the job's workflow. None means the latest run. If `run_number` is given,
        #: `run_id` is None until the first request.
        self.run_id = run_id
        #: The number of the run, such as 2 in `NAME#2`. None if the job was named without a number.
        self.run_number = run_number
        #: The id of the job: `USER/NAME`, or `USER/PARENT/NAME` for a child job.
        self.id = job_id
        #: True if the full id is not known yet. In a program of a job, a name without a user means
        #: a child of that job, or else a job of the user. Until the first request decides, `id` is
        #: `USER/NAME`.
        self.is_bare = is_bare
        #: The address of the job's page in Temporal's Web UI. Empty if there is no page, or if the
        #: run is not known yet.
        self.ui = ui

    async def status(self) -> JobStatus:
        """Returns the job's state, and that of each of its tasks.

        Raises:
            NotFound: there is no such job.
            Unreachable: no control plane answers.
        """
        self._seen = await self._jobs.status(*await self._found())
        return self._seen

    async def tasks(self) -> tuple[TaskStatus, ...]:
        """Returns the tasks, each with its state, its host and its exit code.

        Raises:
            NotFound: there is no such job.
            Unreachable: no control plane answers.
        """
        return (await self.status()).tasks

    async def explain(self, task: int | None = None) -> "Explanation":
        """Explains the state of the job, or of one task, and lists the outcome of each attempt.

        Args:
            task: explains only this task. None explains the job as a whole.

        Raises:
            NotFound: there is no such job, or it has no such task.
            Unreachable: no control plane answers, and the job has not ended.
        """
        run_id = await self._run()
        return await self._jobs.explain(self.id, task, run_id)

    async def cancel(self, reason: str = "", *, task: int | None = None) -> None:
        """Requests the job's cancellation. Does nothing if the job, or the task, has ended.

        Args:
            reason: a text for the people who look at the job.
            task: cancels only this task; the others continue. None cancels the whole job.

        Raises:
            NotFound: there is no such job, or it has no such task.
            Rejected: the tasks of the job are a gang, which ends as a whole.
            Unreachable: the service does not answer.
        """
        run_id = await self._run()
        if task is None:
            await self._jobs.cancel(self.id, reason, run_id)
        else:
            await self._jobs.cancel_task(self.id, task, reason, run_id)

    async def hold(self, reason: str = "") -> None:
        """Holds the job: no task of it starts until it is released, and running tasks continue.

        Args:
            reason: a text for the people who look at the job.

        Raises:
            NotFound: there is no such job.
            Rejected: the job has ended.
            Unreachable: no control plane answers.
        """
        run_id = await self._run()
        await self._jobs.hold(self.id, reason, run_id)

    async def release(self) -> None:
        """Releases a job that is held.

        Raises:
            NotFound: there is no such job.
            Rejected: the job has ended, or is not held.
            Unreachable: no control plane answers.
        """
        await self._jobs.release(*await self._found())

    async def set_priority(self, priority: str) -> None:
        """Moves the job to another priority band. Running tasks continue in that band.

        Args:
            priority: `production`, `interactive` or `batch`.

        Raises:
            InvalidValue: there is no such band.
            NotFound: there is no such job.
            Rejected: the job has ended.
            Unreachable: no control plane answers.
        """
        band, run_id = parse_band(priority), await self._run()
        await self._jobs.set_priority(self.id, band, run_id)

    async def usage(self) -> "Sequence[InUse]":
        """Returns the resource use of each task on a host now, as the host last reported it.

        Raises:
            NotFound: there is no such job.
            Unreachable: no control plane answers.
        """
        return await self._jobs.usage(await self.status())

    async def usage_over_time(self, task: int | None = None) -> "JobUse":
        """Returns the resource use of the tasks over time: the series of each task's last attempt,
        their peaks and means, and smaller requests that would do. Asks only the service and the
        store.

        Args:
            task: reads only the use of this task. None reads that of all tasks.

        Raises:
            NotFound: there is no such job, or it has no such task.
            Unreachable: the service does not answer.
            IrisError: the store does not answer.
        """
        run_id = await self._run()
        return await self._jobs.use_over_time(self.id, task, run_id)

    async def notifications(self) -> Sequence[NotificationRow]:
        """Returns whether the job's webhooks were called. Asks only the service.

        Raises:
            NotFound: there is no such job.
            Unreachable: the service does not answer.
        """
        spec = await self._jobs.submitted_spec(*await self._found())
        return await notifications_of(
            self._connection,
            spec,
            (await self._jobs.log_source(*await self._found())).run_id,
        )

    async def wait(
        self, timeout: Duration | None = None, *, stream_logs: bool = False
    ) -> JobStatus:
        """Waits until the job has ended, with or without success, and returns its status.

        Args:
            timeout: the maximum time to wait. A number is in seconds. None waits without a limit.
            stream_logs: prints the job's output while it waits.

        Raises:
            WaitTimeout: the timeout has expired; the job continues. It is a `TimeoutError`.
            NotFound: there is no such job.
            Unreachable: the service does not answer.
        """
        limit = duration_of(timeout, "timeout")
        if stream_logs and not await print_lines(self.logs(follow=True), limit):
            limit = timedelta()  # the error says that the job continues
        self._seen = await self._jobs.wait(*await self._found(), limit)
        return self._seen

    async def result(self, timeout: Duration | None = None, *, trusted: bool = False) -> T:
        """Waits for the job's end and returns the result of its function. The result of a command
        is None.

        If the job has several tasks, this is the result of the first; `results` returns all.

        Args:
            timeout: as for `wait`.
            trusted: also unpickles the result of another user's job. This runs code that the other
                user chose.

        Raises:
            Exception: the exception of the function, with the job's traceback as its cause.
            JobFailed, JobCancelled: the job failed without an exception, or was cancelled.
            NoResult: the result is not in the store, or cannot be restored here.
            Rejected: it is another user's job.
            WaitTimeout, NotFound, Unreachable: as for `wait`.
        """
        first: T = (await self._results(timeout, only_first=True, trusted=trusted))[0]
        return first

    @overload
    async def results(
        self,
        timeout: Duration | None = None,
        *,
        trusted: bool = False,
        return_exceptions: Literal[False] = False,
    ) -> list[T]: ...

    @overload
    async def results(
        self, timeout: Duration | None = None, *, trusted: bool = False, return_exceptions: bool
    ) -> list[T | Exception]: ...

    async def results(
        self,
        timeout: Duration | None = None,
        *,
        trusted: bool = False,
        return_exceptions: bool = False,
    ) -> list[T] | list[T | Exception]:
        """Waits for the job's end and returns the result of each task.

        Args:
            timeout: as for `wait`.
            trusted: as for `result`.
            return_exceptions: puts the exceptions of failed tasks into the list instead of raising
                one. This is for jobs that succeed although tasks failed (`max_task_failures`).

        Raises:
            Exception, JobFailed, JobCancelled, NoResult, Rejected: as for `result`.
            WaitTimeout, NotFound, Unreachable: as for `wait`.
        """
        return await self._results(
            timeout, only_first=False, trusted=trusted, return_exceptions=return_exceptions
        )

    def __await__(self) -> Generator[Any, None, T]:
        return self.result().__await__()

    async def logs(
        self,
        task: int | None = None,
        attempt: int | None = None,
        *,
        follow: bool = False,
        tail: int | None = None,
        since: Duration | datetime | None = None,
        stream: str | Collection[str] | None = None,
    ) -> AsyncGenerator[LogEntry, None]:
        """Yields the job's output, by time.

        Args:
            task: yields only the output of this task. None yields the output of all tasks.
            attempt: yields only the output of this attempt. None yields the output of all attempts.
            follow: waits for further output until the job has ended.
            tail: the number of last lines with which the output begins. None begins at the start.
            since: yields only lines from this time on. A duration counts back from now: `"10m"`, or
                seconds.
            stream: `"stdout"`, `"stderr"` or `"build"`, or several of them. None yields all
                streams.

        Raises:
            InvalidValue: `since` is neither a duration nor a time, or there is no such stream.
            NotFound: there is no such job, or it has no such task.
            Unreachable: the cluster is local and was stopped before the job had ended.
            IrisError: the store does not answer.
        """
        since_ms, streams = None if since is None else milliseconds_since(since), streams_of(stream)
        source = await self._jobs.log_source(*await self._found())
        if task is not None:
            check_task(self.id, task, source.numbers)
        reader = LogReader(
            Store(self._store_url),
            self.id,
            source.run_id,
            task,
            attempt,
            streams=streams,
            since_ms=since_ms,
        )
        until = self._jobs.wait_until_ended(*await self._found()) if follow else None
        async with aclosing(
            whole_lines(reader, until, f"the log of {self.id}", tail=tail)
        ) as lines:
            async for entry in lines:
                yield entry

    async def fetch(
        self,
        directory: Path | str = ".",
        *,
        task: int | None = None,
        attempt: int | None = None,
        checkpoint: bool = False,
        force: bool = False,
    ) -> list[Path]:
        """Downloads the files that the tasks left in `$IRIS_OUTPUT_DIR`, and returns their paths.

        Warns of git repositories among them: git runs programs that their settings name.

        Args:
            directory: the target. If the files of several tasks are fetched, each task has a folder
                in it.
            task: downloads only the files of this task. None downloads the files of all tasks.
            attempt: downloads only the files of this attempt. None downloads the files of the
                latest attempt of each task that has files.
            checkpoint: downloads the files of `$IRIS_CHECKPOINT_DIR` instead, as they were saved
                last.
            force: overwrites files that differ.

        Raises:
            Rejected: a different file exists, or a file would be added to a git repository; nothing
                was fetched.
            NotFound: there is no such job, or it has no such task.
            IrisError: the store does not answer.
        """
        source = await self._jobs.log_source(*await self._found())
        found = (Store(self._store_url), self.id, source, Path(directory), task, attempt)
        return await fetch_task_files(*found, checkpoint=checkpoint, force=force)

    async def exec(
        self,
        *command: str,
        task: int | None = None,
        timeout: Duration | None = None,
        input: bytes | str | BinaryIO | None = None,
    ) -> ExecResult:
        """Runs a command beside a running task, and waits for its end.

        It has the task's environment, directory and limits.

        Args:
            command: the program and its arguments, each a text.
            task: the index of the task. None is the only task of the job.
            timeout: the time after which the command is stopped. A number is in seconds. None lets
                the command run until the attempt ends.
            input: the command's standard input: a text, bytes, or an open binary file, which is not
                read into memory as a whole. None is an empty input.

        Raises:
            OSError: the input file cannot be read.
            Rejected: the task does not run, or its host cannot run the command.
            NotFound: there is no such job, or it has no such task.
            InvalidValue: the command is empty; or the job has several tasks, and `task` is None.
            Unreachable: the host or the store does not answer.
        """
        if not command:
            raise InvalidValue("command", "", "is empty", "pass words, such as 'nvidia-smi', '-L'")
        limit = duration_of(timeout, "timeout")
        return await run_command(
            self._exec, await self._locate(task), command, timeout=limit, input=input
        )

    @asynccontextmanager
    async def port_forward(
        self, *ports: int | str, task: int | None = None
    ) -> AsyncIterator[tuple[int, ...]]:
        """Forwards ports of this machine to a running task during a block, and yields the numbers.

        async with job.port_forward(8888) as (port,):
            print(f"http://127.0.0.1:{port}")

        Args:
            ports: as for `iris port-forward`: a number, or a name given with the option `ports`.
                `"8080:http"` also chooses the port of this machine; 0 takes any free port. Without
                a choice, the port of this machine has the same number if it is free.
            task: the index of the task. None is the only task of the job.

        Raises:
            InvalidValue: a port is not valid or is in use here; or the job has several tasks, and
                `task` is None.
            Rejected: the task does not run, or has no such port.
            NotFound: there is no such job, or it has no such task.
            Unreachable: the host or the store does not answer.
        """
        async with forwarded(self._exec, await self._locate(task), ports) as numbers:
            yield numbers

    async def profile(
        self, task: int | None = None, *, format: str = "dump", duration: Duration | None = None
    ) -> bytes:
        """Profiles the Python processes of a running task.

        Returns the profile that `iris profile` prints or writes to a file.

        Args:
            task: the index of the task. None is the only task of the job.
            format: `dump` (the stack of each thread), `flamegraph` (SVG), `speedscope` (JSON) or
                `raw`.
            duration: the time to sample. None is ten seconds. A dump takes no samples.

        Raises:
            InvalidValue: there is no such format; or the job has several tasks, and `task` is None.
            Rejected: the task does not run, has no Python process, or its host does not allow it.
            NotFound: there is no such job, or it has no such task.
            Unreachable: the host or the store does not answer.
        """
        wanted, limit = profile_format(format), duration_of(duration, "duration")
        return await profile_task(self._exec, await self._locate(task), wanted, limit)

    @overload
    async def rerun(
        self,
        *,
        failed: Literal[False] = False,
        name: str | None = None,
        secret: Mapping[str, str] | Sequence[str] = (),
    ) -> "AsyncJob[T]": ...

    @overload
    async def rerun(
        self,
        *,
        failed: bool,
        name: str | None = None,
        secret: Mapping[str, str] | Sequence[str] = (),
    ) -> "AsyncJob[T] | None": ...

    async def rerun(
        self,
        *,
        failed: bool = False,
        name: str | None = None,
        secret: Mapping[str, str] | Sequence[str] = (),
    ) -> "AsyncJob[T] | None":
        """Submits the job again: the same program or call, files, resources and environment.

        The new job has no parent.

        Args:
            failed: runs only the tasks that failed or were cancelled, with their indices and
                parameters. A gang runs as a whole.
            name: the name of the new job. None keeps the name.
            secret: as for `submit`. The values of the submitter's secrets are deleted with a job,
                so they are given again.

        Returns:
            The handle of the new job. None if `failed` is set and no task failed.

        Raises:
            NotFound: there is no such job, or its files are not in the store any more.
            NameTaken: a live job has the name.
            Rejected: a secret of the submitter is not given again.
            IrisError: the store or the service does not answer, or, with `failed`, no control
                plane.
        """
        run_id = await self._run()
        store, secrets = Store(self._store_url), secret_sources(secret)
        submitted = await submit_again(
            self._jobs, store, self.id, run_id, failed=failed, name=name, secrets=secrets
        )
        return (
            None
            if submitted is None
            else AsyncJob(self._connection, submitted.id, submitted.run_id, submitted.ui)
        )

    def __repr__(self) -> str:
        """Shows the job, its cluster, its last known state and its page. Sends no request."""
        number = "" if self.run_number is None else f"#{self.run_number}"
        facts = [f"<Job {self.id}{number} of cluster {self._connection.record.name}"]
        if (seen := self._seen) is not None:
            reason = f": {seen.reason}" if seen.reason else ""
            facts.append(f"{'' if seen.state.ended else 'last seen '}{seen.state}{reason}")
        return ", ".join([*facts, *([self.ui] if self.ui else [])]) + ">"

    async def _found(self) -> tuple[str, str | None]:
        """Returns the job's id and the id of its run. The run None is the latest run."""
        run_id = await self._run()
        return self.id, run_id

    async def _run(self) -> str | None:
        """Finds the job if only its bare name is known, and returns the id of its run. The run None
        is the latest run.
        """
        if (
            self.is_bare
            and self.run_id is None
            and (found := await self._jobs.resolve_id(self.id.rpartition("/")[2])) != self.id
        ):
            self.id, self.is_bare = found, False
            self.ui = self._jobs.page(found) if self.run_number is None else ""
        if self.run_id is None:
            self.run_id = await self._jobs.run(self.id, self.run_number)
        return self.run_id

    async def _locate(self, task: int | None) -> TaskLocation:
        run_id = await self._run()
        return await self._exec.locate(self.id, task, run_id)

    async def _results(
        self,
        timeout: Duration | None,
        *,
        only_first: bool,
        trusted: bool,
        return_exceptions: bool = False,
    ) -> list[Any]:
        if not trusted:
            check_own(self.id)
        status = await self.wait(timeout)
        source, store = await self._jobs.log_source(*await self._found()), Store(self._store_url)
        return await results_of(
            store, source, status, only_first=only_first, return_exceptions=return_exceptions
        )
