"""Methods of `Job`, one for each method of `AsyncJob`.

`scripts/make-blocking.py` writes this module. Change the asynchronous classes, and run it again.
"""

# mypy: disable-error-code=no-any-return
from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Generic, Literal, Self, overload

from iris.client.blocking.event_loop import Blocking
from iris.client.jobs.handle import T

if TYPE_CHECKING:
    from collections.abc import (
        Collection,
        Iterator,
        Mapping,
        Sequence,
    )
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path

    from iris.client.build.options import Duration
    from iris.client.jobs.exec import ExecResult
    from iris.client.jobs.notifications import NotificationRow
    from iris.client.jobs.usage import InUse
    from iris.client.logs.entries import LogEntry
    from iris.client.views import Explanation
    from iris.model.job.spec import JobStatus, TaskStatus


class JobMethods(Blocking, Generic[T]):
    """Methods of `Job`, one for each method of `AsyncJob`."""

    def status(self) -> JobStatus:
        """Returns the job's state, and that of each of its tasks.

        Raises:
            NotFound: there is no such job.
            Unreachable: no control plane answers.
        """
        return self._loop.run(self._asynchronous.status())

    def tasks(self) -> tuple[TaskStatus, ...]:
        """Returns the tasks, each with its state, its host and its exit code.

        Raises:
            NotFound: there is no such job.
            Unreachable: no control plane answers.
        """
        return self._loop.run(self._asynchronous.tasks())

    def explain(self, task: int | None = None) -> Explanation:
        """Explains the state of the job, or of one task, and lists the outcome of each attempt.

        Args:
            task: only this one; None: the job as a whole.

        Raises:
            NotFound: there is no such job, or it has no such task.
            Unreachable: no control plane answers, and the job has not ended.
        """
        return self._loop.run(self._asynchronous.explain(task))

    def cancel(self, reason: str = "", *, task: int | None = None) -> None:
        """Requests the job's cancellation. Does nothing if the job, or the task, has ended.

        Args:
            reason: for the people who look at the job.
            task: cancels only this one; the others continue. None: the whole job.

        Raises:
            NotFound: there is no such job, or it has no such task.
            Rejected: the tasks of the job are a gang, which ends as a whole.
            Unreachable: the service does not answer.
        """
        self._loop.run(self._asynchronous.cancel(reason, task=task))

    def hold(self, reason: str = "") -> None:
        """Holds the job: no task of it starts until it is released, and running tasks continue.

        Args:
            reason: for the people who look at the job.

        Raises:
            NotFound: there is no such job.
            Rejected: the job has ended.
            Unreachable: no control plane answers.
        """
        self._loop.run(self._asynchronous.hold(reason))

    def release(self) -> None:
        """Releases a job that is held.

        Raises:
            NotFound: there is no such job.
            Rejected: the job has ended, or is not held.
            Unreachable: no control plane answers.
        """
        self._loop.run(self._asynchronous.release())

    def set_priority(self, priority: str) -> None:
        """Moves the job to another priority band. Running tasks continue in that band.

        Args:
            priority: `production`, `interactive` or `batch`.

        Raises:
            InvalidValue: there is no such band.
            NotFound: there is no such job.
            Rejected: the job has ended.
            Unreachable: no control plane answers.
        """
        self._loop.run(self._asynchronous.set_priority(priority))

    def usage(self) -> Sequence[InUse]:
        """Returns the resource use of each task on a host now, as the host last reported it.

        Raises:
            NotFound: there is no such job.
            Unreachable: no control plane answers.
        """
        return self._loop.run(self._asynchronous.usage())

    def notifications(self) -> Sequence[NotificationRow]:
        """Returns what has become of the calls of the job's webhooks. Asks only the service.

        Raises:
            NotFound: there is no such job.
            Unreachable: the service does not answer.
        """
        return self._loop.run(self._asynchronous.notifications())

    def result(self, timeout: Duration | None = None, *, trusted: bool = False) -> T:
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
        return self._loop.run(self._asynchronous.result(timeout, trusted=trusted))

    @overload
    def results(
        self,
        timeout: Duration | None = None,
        *,
        trusted: bool = False,
        return_exceptions: Literal[False] = False,
    ) -> list[T]: ...

    @overload
    def results(
        self, timeout: Duration | None = None, *, trusted: bool = False, return_exceptions: bool
    ) -> list[T | Exception]: ...

    def results(
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
        return self._loop.run(
            self._asynchronous.results(
                timeout, trusted=trusted, return_exceptions=return_exceptions
            )
        )

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
        return self._loop.iterate(
            self._asynchronous.logs(
                task, attempt, follow=follow, tail=tail, since=since, stream=stream
            )
        )

    def fetch(
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
        return self._loop.run(
            self._asynchronous.fetch(
                directory, task=task, attempt=attempt, checkpoint=checkpoint, force=force
            )
        )

    def exec(
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
        return self._loop.run(
            self._asynchronous.exec(*command, task=task, timeout=timeout, input=input)
        )

    def port_forward(
        self, *ports: int | str, task: int | None = None
    ) -> AbstractContextManager[tuple[int, ...]]:
        """Forwards ports of this machine to a running task during a block, and yields the numbers.

        with job.port_forward(8888) as (port,):
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
        return self._loop.entered(self._asynchronous.port_forward(*ports, task=task))

    def profile(
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
        return self._loop.run(self._asynchronous.profile(task, format=format, duration=duration))

    @overload
    def rerun(
        self,
        *,
        failed: Literal[False] = False,
        name: str | None = None,
        secret: Mapping[str, str] | Sequence[str] = (),
    ) -> Self: ...

    @overload
    def rerun(
        self,
        *,
        failed: bool,
        name: str | None = None,
        secret: Mapping[str, str] | Sequence[str] = (),
    ) -> Self | None: ...

    def rerun(
        self,
        *,
        failed: bool = False,
        name: str | None = None,
        secret: Mapping[str, str] | Sequence[str] = (),
    ) -> Self | None:
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
        other = self._loop.run(self._asynchronous.rerun(failed=failed, name=name, secret=secret))
        return None if other is None else type(self)(other, self._loop)
