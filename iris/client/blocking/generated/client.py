"""Methods of `IrisClient`, one for each method of `AsyncIrisClient`.

`scripts/make-blocking.py` writes this module. Change the asynchronous classes, and run it again.
"""

# mypy: disable-error-code=no-any-return
from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack, overload

from iris.client.blocking.event_loop import Blocking
from iris.client.blocking.generated.operations import (
    Autoscaler,
    Cluster,
    Hosts,
    Schedules,
    Secrets,
    Slices,
)
from iris.client.blocking.generated.simulations import Simulations
from iris.client.blocking.job import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from pathlib import Path

    from iris.client.build.entrypoint import Entrypoint
    from iris.client.build.job import Work
    from iris.client.build.options import CallOptions, JobOptions
    from iris.client.client import T, Ts
    from iris.client.schedules.client import ScheduleRow
    from iris.client.schedules.when import Overlap, When
    from iris.scheduling.reasons.forecast import Forecast
    from iris.usage.estimate import Estimate


class IrisClientMethods(Blocking):
    """Methods of `IrisClient`, one for each method of `AsyncIrisClient`."""

    @cached_property
    def autoscaler(self) -> Autoscaler:
        """The operations on the autoscaler, as `iris autoscaler` has them."""
        return Autoscaler(self._asynchronous.autoscaler, self._loop)

    @cached_property
    def slices(self) -> Slices:
        """The operations on slices, as `iris slice` has them."""
        return Slices(self._asynchronous.slices, self._loop)

    @cached_property
    def hosts(self) -> Hosts:
        """The operations on hosts, as `iris host` has them."""
        return Hosts(self._asynchronous.hosts, self._loop)

    @cached_property
    def schedules(self) -> Schedules:
        """The operations on schedules, as `iris schedule` has them."""
        return Schedules(self._asynchronous.schedules, self._loop)

    @cached_property
    def secrets(self) -> Secrets:
        """The named secrets of the current user, as `iris secret` has them."""
        return Secrets(self._asynchronous.secrets, self._loop)

    @cached_property
    def simulations(self) -> Simulations:
        """The reports of simulations that were published for all users of the cluster."""
        return Simulations(self._asynchronous.simulations, self._loop)

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster's name and address, and the operations on it as a whole, as `iris cluster`
        has them.
        """
        return Cluster(self._asynchronous.cluster, self._loop)

    @overload
    def submit(
        self,
        work: Callable[[*Ts], Coroutine[Any, Any, T]],
        *args: *Ts,
        workspace: Path | str | bool | None = None,
        require_feasible: bool = False,
        **options: Unpack[CallOptions],
    ) -> Job[T]: ...

    @overload
    def submit(
        self,
        work: Callable[[*Ts], T],
        *args: *Ts,
        workspace: Path | str | bool | None = None,
        require_feasible: bool = False,
        **options: Unpack[CallOptions],
    ) -> Job[T]: ...

    @overload
    def submit(
        self,
        work: Callable[..., Coroutine[Any, Any, T]],
        *args: Any,
        kwargs: Mapping[str, Any],
        workspace: Path | str | bool | None = None,
        require_feasible: bool = False,
        **options: Unpack[JobOptions],
    ) -> Job[T]: ...

    @overload
    def submit(
        self,
        work: Callable[..., T],
        *args: Any,
        kwargs: Mapping[str, Any],
        workspace: Path | str | bool | None = None,
        require_feasible: bool = False,
        **options: Unpack[JobOptions],
    ) -> Job[T]: ...

    @overload
    def submit(
        self,
        work: Callable[..., Coroutine[Any, Any, T]],
        *args: Any,
        kwargs: Mapping[str, Any] = {},
        params: Sequence[Mapping[str, Any]],
        workspace: Path | str | bool | None = None,
        require_feasible: bool = False,
        **options: Unpack[CallOptions],
    ) -> Job[T]: ...

    @overload
    def submit(
        self,
        work: Callable[..., T],
        *args: Any,
        kwargs: Mapping[str, Any] = {},
        params: Sequence[Mapping[str, Any]],
        workspace: Path | str | bool | None = None,
        require_feasible: bool = False,
        **options: Unpack[CallOptions],
    ) -> Job[T]: ...

    @overload
    def submit(
        self,
        work: Entrypoint[T],
        *,
        workspace: Path | str | bool | None = None,
        require_feasible: bool = False,
        **options: Unpack[JobOptions],
    ) -> Job[T]: ...

    @overload
    def submit(
        self,
        work: str | Sequence[str],
        *args: str,
        workspace: Path | str | bool | None = None,
        require_feasible: bool = False,
        **options: Unpack[JobOptions],
    ) -> Job[None]: ...

    def submit(  # type: ignore[misc]  # mypy cannot tell *Ts beside **options
        self,
        work: Work,
        *args: Any,
        kwargs: Mapping[str, Any] = {},
        workspace: Path | str | bool | None = None,
        require_feasible: bool = False,
        **options: Unpack[JobOptions],
    ) -> Job[Any]:
        """Starts a job that calls a function or runs a program, and returns its handle.

        A function is passed by cloudpickle, so both sides need the same version of Python. The job
        imports a function of an installed module or of a module in the workspace. Any other
        function is passed as a whole. `Job.result` returns its result. An `async def` function
        runs on an event loop of its own.

        Args:
            work: a function; a program: `submit("python", "train.py")`; or an `Entrypoint`, which
                has its own arguments.
            args: the arguments of the function, which type checkers compare with its parameters; or
                further words of the program.
            kwargs: the function's keyword arguments. Type checkers do not compare them, but they
                compare those of `Entrypoint.from_callable`.
            workspace: the directory whose files the job gets. True is the current directory. False
                sends no files. None is the client's workspace, or the current directory if it is a
                project.
            require_feasible: refuses a job that no host can ever run. By default such a job waits,
                because hosts may be added.
            options: the options of the job: `name`, `resources`, `env` and so on. `JobOptions`
                describes each.

        Raises:
            InvalidValue, InvalidJob: an option is wrong, or the function cannot be pickled.
            NameTaken: a job that has not ended has this name.
            Rejected: the workspace cannot be sent, or no host can ever run the job.
            IrisError: the store does not accept the job's files.
            Unreachable: the service does not answer.
        """
        return Job(
            self._loop.run(
                self._asynchronous.submit(
                    work,
                    *args,
                    kwargs=kwargs,
                    workspace=workspace,
                    require_feasible=require_feasible,
                    **options,
                )
            ),
            self._loop,
        )

    @overload
    def schedule(
        self,
        work: Callable[[*Ts], Any],
        *args: *Ts,
        when: When,
        overlap: Overlap | str = "skip",
        paused: bool = False,
        workspace: Path | str | bool | None = None,
        **options: Unpack[CallOptions],
    ) -> ScheduleRow: ...

    @overload
    def schedule(
        self,
        work: Callable[..., Any],
        *args: Any,
        when: When,
        overlap: Overlap | str = "skip",
        paused: bool = False,
        kwargs: Mapping[str, Any],
        workspace: Path | str | bool | None = None,
        **options: Unpack[JobOptions],
    ) -> ScheduleRow: ...

    @overload
    def schedule(
        self,
        work: Callable[..., Any],
        *args: Any,
        when: When,
        overlap: Overlap | str = "skip",
        paused: bool = False,
        kwargs: Mapping[str, Any] = {},
        params: Sequence[Mapping[str, Any]],
        workspace: Path | str | bool | None = None,
        **options: Unpack[CallOptions],
    ) -> ScheduleRow: ...

    @overload
    def schedule(
        self,
        work: Entrypoint[Any],
        *,
        when: When,
        overlap: Overlap | str = "skip",
        paused: bool = False,
        workspace: Path | str | bool | None = None,
        **options: Unpack[JobOptions],
    ) -> ScheduleRow: ...

    @overload
    def schedule(
        self,
        work: str | Sequence[str],
        *args: str,
        when: When,
        overlap: Overlap | str = "skip",
        paused: bool = False,
        workspace: Path | str | bool | None = None,
        **options: Unpack[JobOptions],
    ) -> ScheduleRow: ...

    def schedule(  # type: ignore[misc]  # as above
        self,
        work: Work,
        *args: Any,
        when: When,
        overlap: Overlap | str = "skip",
        paused: bool = False,
        kwargs: Mapping[str, Any] = {},
        workspace: Path | str | bool | None = None,
        **options: Unpack[JobOptions],
    ) -> ScheduleRow:
        """Creates a schedule that starts a job again and again, and returns the schedule.

        The function and the files are sent once, now. `client.job(name).result()` is the result of
        the last run. The attribute `schedules` has further operations.

        Args:
            work: as for `submit`.
            args: as for `submit`.
            when: `iris.When(cron="0 2 * * *")` or `iris.When(every="6h")`.
            overlap: what the schedule does at a time at which its earlier job has not ended:
                `skip`, `queue` or `cancel`.
            paused: whether the schedule starts no runs until `schedules.resume`.
            kwargs: as for `submit`.
            workspace: as for `submit`.
            options: as for `submit`. `name` is required, and is the name of the schedule, too.

        Raises:
            InvalidValue, InvalidJob: an option is wrong, or the function cannot be pickled.
            Rejected: there is a schedule of this name, or the workspace cannot be sent.
            IrisError: the store does not accept the job's files.
            Unreachable: the service does not answer.
        """
        return self._loop.run(
            self._asynchronous.schedule(
                work,
                *args,
                when=when,
                overlap=overlap,
                paused=paused,
                kwargs=kwargs,
                workspace=workspace,
                **options,
            )
        )

    def forecast(self, **options: Unpack[JobOptions]) -> Forecast:
        """Returns what the scheduler would do with a job if it were submitted now. Changes nothing.

        Args:
            options: the options of the job, as for `submit`.

        Raises:
            InvalidValue, InvalidJob: an option is wrong.
            Unreachable: no control plane answers.
        """
        return self._loop.run(self._asynchronous.forecast(**options))

    def estimate(self, **options: Unpack[JobOptions]) -> Estimate | None:
        """Returns what a job costs at most if each of its tasks runs once until its `timeout`.
        Returns None if the job has no timeout, or if no scale group that could run it has a price.

        Args:
            options: the options of the job, as for `submit`.

        Raises:
            InvalidValue, InvalidJob: an option is wrong.
            Unreachable: no control plane or no store answers.
            IrisError: the store cannot be read.
        """
        return self._loop.run(self._asynchronous.estimate(**options))

    def job(self, job: str) -> Job[Any]:
        """Returns the handle of a job. Sends no request: the first request shows whether the job
        exists.

        In a program that runs in a job, a bare name means that job's own child first, then the
        user's job. The first request finds out which.

        Args:
            job: the name of the job or `USER/NAME`, or an earlier run of it: `NAME#2`.

        Raises:
            InvalidValue: the text has another form.
        """
        return Job(self._asynchronous.job(job), self._loop)
