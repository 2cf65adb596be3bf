"""One job in Python: waiting for it, its result, its logs, its files."""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Generator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, Literal, overload

from typing_extensions import TypeVar

from iris.client.build.options import Duration, duration_of, parse_band
from iris.client.jobs.exec import ExecResult, profile_format, profile_task, run_command
from iris.client.jobs.results import check_own, results_of
from iris.client.logs.entries import LogEntry
from iris.client.logs.selection import milliseconds_since, streams_of
from iris.client.logs.stored import LogReader
from iris.client.logs.whole_lines import print_lines, whole_lines
from iris.client.views import check_task
from iris.model.errors import InvalidValue
from iris.model.job.spec import JobStatus, TaskStatus
from iris.storage.object_store import Store

if TYPE_CHECKING:
    from iris.client.client import AsyncIrisClient
    from iris.client.jobs.exec_session import TaskLocation
    from iris.client.jobs.notifications import NotificationRow
    from iris.client.jobs.usage import InUse
    from iris.client.views import Explanation

#: What the job's function returns; None for a program.
T = TypeVar("T", default=Any)


class AsyncJob(Generic[T]):
    """A job of a cluster. `await job` waits for its end and returns its result."""

    def __init__(
        self,
        client: "AsyncIrisClient",
        job_id: str,
        run_id: str | None,
        ui: str = "",
        run_number: int | None = None,
        *,
        is_bare: bool = False,
    ) -> None:
        """Creates the handle of a job that exists. `AsyncIrisClient.submit` and `.job` do this.

        Args:
            client: of the job's cluster.
            job_id: `USER/NAME`.
            run_id: the run of the job's workflow; None: the latest with this id, or that of the
                number.
            ui: the job's page in Temporal's Web UI; empty: unknown.
            run_number: the number of the run among those of the name; None: the job was not named
                by it.
        """
        self._client = client
        self._jobs = client.jobs
        self._store_url = client.record.store
        #: The status that was returned last; None: none was.
        self._seen: JobStatus | None = None
        #: The run of the job's workflow. None: the latest; or that of `run_number`, before the
        #: first question.
        self.run_id = run_id
        #: The run's number among those of the name, as in `NAME#2`; None: the job was not named by
        #: it.
        self.run_number = run_number
        #: `USER/NAME`, or `USER/PARENT/NAME`.
        self.id = job_id
        #: Whether the next question finds out which job is meant: it was named without its user by
        #: a program in a job, whose child of that name comes first. Such a handle has `USER/NAME`
        #: until a question has found the child.
        self.is_bare = is_bare
        #: The job's page in Temporal's Web UI; empty: there is none, or the run is not known yet.
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
            task: only this one; None: the job as a whole.

        Raises:
            NotFound: there is no such job, or it has no such task.
            Unreachable: no control plane answers, and the job has not ended.
        """
        run_id = await self._run()
        return await self._jobs.explain(self.id, task, run_id)

    async def cancel(self, reason: str = "", *, task: int | None = None) -> None:
        """Requests the job's cancellation. Does nothing if the job, or the task, has ended.

        Args:
            reason: for the people who look at the job.
            task: cancels only this one; the others continue. None: the whole job.

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
            reason: for the people who look at the job.

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

    async def notifications(self) -> "Sequence[NotificationRow]":
        """Returns what has become of the calls of the job's webhooks. Asks only the service.

        Raises:
            NotFound: there is no such job.
            Unreachable: the service does not answer.
        """
        from iris.client.jobs.notifications import notifications_of

        spec = await self._jobs.submitted_spec(*await self._found())
        return await notifications_of(
            self._client.connection,
            spec,
            (await self._jobs.log_source(*await self._found())).run_id,
        )

    async def wait(
        self, timeout: Duration | None = None, *, stream_logs: bool = False
    ) -> JobStatus:
        """Waits until the job has ended, with or without success, and returns its status.

        Args:
            timeout: in seconds if it is a number; None: no limit.
            stream_logs: prints the job's output meanwhile.

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
        """Waits for the job's end and returns what its function returned; for a command, None.

        Of several tasks it is the result of the first; `results` returns all.

        Args:
            timeout: as in `wait`.
            trusted: also unpickles the result of another user's job, which runs code that this user
                has chosen.

        Raises:
            Exception: what the function raised, with the job's traceback as its cause.
            JobFailed, JobCancelled: the job ended otherwise.
            NoResult: the result is not in the store, or cannot be restored here.
            Rejected: it is another user's job.
            WaitTimeout, NotFound, Unreachable: as in `wait`.
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
            timeout: as in `wait`.
            trusted: as in `result`.
            return_exceptions: for a job that may lose some tasks (`max_task_failures`): the
                exceptions of failed tasks are in the list, instead of being raised.

        Raises:
            Exception, JobFailed, JobCancelled, NoResult, Rejected: as in `result`.
            WaitTimeout, NotFound, Unreachable: as in `wait`.
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
            task: only this task; None: all.
            attempt: only this attempt; None: all.
            follow: waits for further output until the job has ended.
            tail: only so many last lines of what is there; None: all.
            since: only lines of this time or later, or of so long ago: `"10m"`, or seconds.
            stream: only `"stdout"`, `"stderr"` or `"build"`, or several of them; None: all.

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
            directory: if the files of several tasks are fetched, each has a folder in it.
            task: only this task's; None: all.
            attempt: only this attempt's; None: the latest of each task that has files.
            checkpoint: downloads the files of `$IRIS_CHECKPOINT_DIR` instead, as they were saved
                last.
            force: overwrites files that differ.

        Raises:
            Rejected: a different file exists, or a file would be added to a git repository; nothing
                was fetched.
            NotFound: there is no such job, or it has no such task.
            IrisError: the store does not answer.
        """
        from iris.client.jobs.files import fetch_task_files  # few programs need it

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
            task: None: the only task of the job.
            timeout: the command is ended after this time, in seconds if it is a number; None: with
                the attempt.
            input: the command's standard input, also of a binary file, which is not read into
                memory as a whole; None: empty.

        Raises:
            OSError: the file cannot be read.
            Rejected: the task does not run, or its host cannot run the command.
            NotFound: there is no such job, or it has no such task.
            InvalidValue: the command is empty; or the job has several tasks, and `task` is None.
            Unreachable: the host or the store does not answer.
        """
        if not command:
            raise InvalidValue("command", "", "is empty", "pass words, such as 'nvidia-smi', '-L'")
        limit = duration_of(timeout, "timeout")
        return await run_command(
            self._client.exec, await self._locate(task), command, timeout=limit, input=input
        )

    @asynccontextmanager
    async def port_forward(
        self, *ports: int | str, task: int | None = None
    ) -> AsyncIterator[tuple[int, ...]]:
        """Forwards ports of this machine to a running task during a block, and yields the numbers.

        async with job.port_forward(8888) as (port,):
            print(f"http://127.0.0.1:{port}")

        Args:
            ports: as for `iris port-forward`: a number, or a name given with the option `ports`;
                `"8080:http"` also chooses the port of this machine, 0 for any free one. Without it,
                the number is the same if that is free.
            task: None: the only task of the job.

        Raises:
            InvalidValue: a port is none or in use here; or the job has several tasks, and `task` is
                None.
            Rejected: the task does not run, or has no such port.
            NotFound: there is no such job, or it has no such task.
            Unreachable: the host or the store does not answer.
        """
        from iris.client.jobs.port_forward import forwarded  # few programs need it

        async with forwarded(self._client.exec, await self._locate(task), ports) as numbers:
            yield numbers

    async def profile(
        self, task: int | None = None, *, format: str = "dump", duration: Duration | None = None
    ) -> bytes:
        """Looks into the Python processes of a running task.

        Returns what `iris profile` prints or writes to a file.

        Args:
            task: None: the only task of the job.
            format: `dump` (what each thread does now), `flamegraph` (SVG), `speedscope` (JSON) or
                `raw`.
            duration: how long to sample, unless it is a dump; None: ten seconds.

        Raises:
            InvalidValue: there is no such format; or the job has several tasks, and `task` is None.
            Rejected: the task does not run, has no Python process, or its host does not allow it.
            NotFound: there is no such job, or it has no such task.
            Unreachable: the host or the store does not answer.
        """
        wanted, limit = profile_format(format), duration_of(duration, "duration")
        return await profile_task(self._client.exec, await self._locate(task), wanted, limit)

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

        The new job belongs to no other.

        Args:
            failed: only the tasks that failed or were cancelled, with their numbers and parameters.
                The tasks of a gang all run.
            name: None: the same name.
            secret: as for `submit`: secrets of the submitter are deleted with a job, and given to
                the new one again.

        Returns:
            The handle of the new job; None if there is no such task, only with `failed`.

        Raises:
            NotFound: there is no such job, or its files are not in the store any more.
            NameTaken: a live job has the name.
            Rejected: a secret of the submitter is not given again.
            IrisError: the store or the service does not answer, or, with `failed`, no control
                plane.
        """
        from iris.client.build.options import secret_sources
        from iris.client.jobs.rerun import submit_again  # few programs need it

        run_id = await self._run()
        store, secrets = Store(self._store_url), secret_sources(secret)
        submitted = await submit_again(
            self._jobs, store, self.id, run_id, failed=failed, name=name, secrets=secrets
        )
        return (
            None
            if submitted is None
            else AsyncJob(self._client, submitted.id, submitted.run_id, submitted.ui)
        )

    def __repr__(self) -> str:
        """Names the job, its cluster, the state that was seen last, and its page. Asks nothing."""
        number = "" if self.run_number is None else f"#{self.run_number}"
        facts = [f"<Job {self.id}{number} of cluster {self._client.record.name}"]
        if (seen := self._seen) is not None:
            facts.append(
                f"{'last seen ' * (not seen.state.ended)}{seen.state}{f': {seen.reason}' * bool(seen.reason)}"
            )
        return ", ".join([*facts, *([self.ui] if self.ui else [])]) + ">"

    # -- private
    # ----------------------------------------------------------------------------------------------

    async def _found(self) -> tuple[str, str | None]:
        """Returns the job's id and that of its run; None: the latest."""
        run_id = await self._run()
        return self.id, run_id

    async def _run(self) -> str | None:
        """Finds which job is meant, if its name does not tell, and returns the id of its run; None:
        the latest.
        """
        if (
            self.is_bare
            and self.run_id is None
            and (found := await self._jobs.nearest(self.id.rpartition("/")[2])) != self.id
        ):
            self.id, self.is_bare = found, False
            self.ui = self._jobs.page(found) if self.run_number is None else ""
        if self.run_id is None:
            self.run_id = await self._jobs.run(self.id, self.run_number)
        return self.run_id

    async def _locate(self, task: int | None) -> "TaskLocation":
        run_id = await self._run()
        return await self._client.exec.locate(self.id, task, run_id)

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
