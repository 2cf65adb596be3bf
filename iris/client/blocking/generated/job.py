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
    from iris.client.jobs.exec.commands import ExecResult
    from iris.client.jobs.explanation import Explanation
    from iris.client.jobs.notifications import NotificationRow
    from iris.client.jobs.usage import InUse
    from iris.client.logs.entries import LogEntry
    from iris.model.job.status import JobStatus, TaskStatus
    from iris.usage.summary import JobUse


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
            task: explains only this task. None explains the job as a whole.

        Raises:
            NotFound: there is no such job, or it has no such task.
            Unreachable: no control plane answers, and the job has not ended.
        """
        return self._loop.run(self._asynchronous.explain(task))

    def cancel(self, reason: str = "", *, task: int | None = None) -> None:
        """Requests the job's cancellation. Does nothing if the job, or the task, has ended.

        Args:
            reason: a text for the people who look at the job.
            task: cancels only this task; the others continue. None cancels the whole job.

        Raises:
            NotFound: there is no such job, or it has no such task.
            Rejected: the tasks of the job are a gang, which ends as a whole.
            Unreachable: the service does not answer.
        """
        self._loop.run(self._asynchronous.cancel(reason, task=task))

    def hold(self, reason: str = "") -> None:
        """Holds the job: no task of it starts until it is released, and running tasks continue.

        Args:
            reason: a text for the people who look at the job.

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

    def usage_over_time(self, task: int | None = None) -> JobUse:
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
        return self._loop.run(self._asynchronous.usage_over_time(task))

    def notifications(self) -> Sequence[NotificationRow]:
        """Returns whether the job's webhooks were called. Asks only the service.

        Raises:
            NotFound: there is no such job.
            Unreachable: the service does not answer.
        """
        return self._loop.run(self._asynchronous.notifications())

    def result(self, timeout: Duration | None = None, *, trusted: bool = False) -> T:
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
            timeout: as for `wait`.
            trusted: as for `result`.
            return_exceptions: puts the exceptions of failed tasks into the list instead of raising
                one. This is for jobs that succeed although tasks failed (`max_task_failures`).

        Raises:
            Exception, JobFailed, JobCancelled, NoResult, Rejected: as for `result`.
            WaitTimeout, NotFound, Unreachable: as for `wait`.
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
        return self._loop.entered(self._asynchronous.port_forward(*ports, task=task))

    def profile(
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
        other = self._loop.run(self._asynchronous.rerun(failed=failed, name=name, secret=secret))
        return None if other is None else type(self)(other, self._loop)
