"""The client for programs that are not asynchronous: scripts, threads and notebooks. Each call
waits for its result.
"""

import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVarTuple, Unpack, cast, overload

from typing_extensions import TypeVar

from iris.client.blocking.event_loop import BackgroundLoop
from iris.client.blocking.job import Job
from iris.client.build.entrypoint import Entrypoint
from iris.client.build.job import Work
from iris.client.build.options import CallOptions, JobOptions
from iris.client.client import AsyncIrisClient
from iris.client.jobs.lists import JobFilter
from iris.client.jobs.rows import JobRow
from iris.model.errors import InvalidValue
from iris.model.job.endpoints import Endpoint

if (
    TYPE_CHECKING
):  # a script that submits jobs needs none of these, and they cost a quarter of its imports
    from iris.client.blocking.operations import (
        Autoscaler,
        Cluster,
        Hosts,
        Schedules,
        Secrets,
        Slices,
    )
    from iris.client.schedules.client import ScheduleRow
    from iris.client.schedules.when import Overlap, When
    from iris.config import ClusterConfig
    from iris.scheduling.reasons.forecast import Forecast

#: What the job's function returns; None for a program.
T = TypeVar("T", default=Any)
#: The arguments of a function.
Ts = TypeVarTuple("Ts")
#: How long a notebook waits for the state of a job that it shows.
SHOW_TIMEOUT = 5.0


class IrisClient:
    """A connection to one cluster, which any thread may use.

    with IrisClient.local() as client:
        job = client.submit(train, 0.1, resources=Resources(cpu=2))
        print(job.result())
    """

    def __init__(
        self, cluster: str | None = None, *, workspace: Path | str | bool | None = None
    ) -> None:
        """Connects to a cluster.

        Args:
            cluster: its name or its address: `HOST:PORT`, or `HOST:PORT/NAME` where several
                clusters share a service. None: the cluster that the environment names, else the
                only one that is known here.
            workspace: the default of `submit`.

        Raises:
            Unreachable: the cluster does not run or does not answer.
            NotFound: there are several clusters and none was named, or the service has no such
                cluster.
        """
        self._start(AsyncIrisClient.connect(cluster, workspace=workspace))

    def _start(self, connecting: Coroutine[Any, Any, AsyncIrisClient]) -> None:
        self._undo = ExitStack()
        self._loop = BackgroundLoop()
        self._undo.callback(self._loop.close)
        try:
            self._client = self._loop.run(connecting)
        except BaseException:
            self.close()
            raise

    @classmethod
    def remote(cls, cluster: str, *, workspace: Path | str | bool | None = None) -> Self:
        """Connects to a cluster by its name or its address.

        Args:
            cluster: its name or its address: `HOST:PORT`, or `HOST:PORT/NAME` where several
                clusters share a service.
            workspace: the default of `submit`.

        Raises:
            Unreachable: the cluster does not run or does not answer.
            NotFound: the service has no such cluster.
        """
        return cls(cluster, workspace=workspace)

    @classmethod
    def from_env(cls) -> Self:
        """Connects to the cluster of the job that this program runs in.

        Raises:
            Unreachable: the program does not run in a job, or the cluster does not answer.
        """
        client = cls.__new__(cls)
        client._start(AsyncIrisClient.from_env())
        return client

    @classmethod
    def local(
        cls,
        config: "ClusterConfig | None" = None,
        *,
        tpu: str | None = None,
        workspace: Path | str | bool | None = None,
    ) -> Self:
        """Starts a cluster on this machine. It ends with the client, and at last with the program.

        Args:
            config: the shapes of its groups; None: one host.
            tpu: instead of `config`: the cluster also has one simulated slice of this type, such as
                `"v5litepod-16"`.
            workspace: the default of `submit`.

        Raises:
            InvalidValue: there is no such type, or `config` and `tpu` are both given.
            IrisError: the cluster did not start.
        """
        from iris.client.operate.cluster_manager import ClusterManager
        from iris.config import local_config, make_local_config
        from iris.model.host.accelerators import tpu as parse_tpu_kind

        name = f"python-{secrets.token_hex(4)}"
        if config is not None and tpu is not None:
            raise InvalidValue(
                "tpu",
                tpu,
                "does not go with a configuration",
                "add a scale group to the configuration",
            )
        kind = parse_tpu_kind(tpu) if tpu is not None else None
        own = (
            make_local_config(config, name) if config is not None else local_config(name, tpu=kind)
        )
        manager = ClusterManager(own, ephemeral=True, owned=True)
        manager.start()
        try:
            client = cls(name, workspace=workspace)
        except BaseException:
            manager.stop()
            raise
        client._undo.callback(manager.stop)
        return client

    @cached_property
    def hosts(self) -> "Hosts":
        """The operations on hosts, as `iris host` has them."""
        from iris.client.blocking.operations import Hosts

        return Hosts(self._client, self._loop)

    @cached_property
    def slices(self) -> "Slices":
        """The operations on slices, as `iris slice` has them."""
        from iris.client.blocking.operations import Slices

        return Slices(self._client, self._loop)

    @cached_property
    def autoscaler(self) -> "Autoscaler":
        """The operations on the autoscaler, as `iris autoscaler` has them."""
        from iris.client.blocking.operations import Autoscaler

        return Autoscaler(self._client, self._loop)

    @cached_property
    def secrets(self) -> "Secrets":
        """The named secrets of the current user, as `iris secret` has them."""
        from iris.client.blocking.operations import Secrets

        return Secrets(self._client, self._loop)

    @cached_property
    def schedules(self) -> "Schedules":
        """The operations on schedules, as `iris schedule` has them."""
        from iris.client.blocking.operations import Schedules

        return Schedules(self._client, self._loop)

    @cached_property
    def cluster(self) -> "Cluster":
        """The cluster's name and address, and the operations on it as a whole, as `iris cluster`
        has them.
        """
        from iris.client.blocking.operations import Cluster

        return Cluster(self._client, self._loop)

    @property
    def parts(self) -> tuple[AsyncIrisClient, BackgroundLoop]:
        """The asynchronous client, and the loop on which it runs: for what is built on both, such
        as pools.
        """
        return self._client, self._loop

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

        A function is passed by cloudpickle, with the same version of Python on both sides. One of
        an installed module, or of a module in the workspace, is imported there; any other is passed
        as a whole. Its result comes back by `Job.result`. One of `async def` runs on an event loop
        of its own.

        Args:
            work: a function, or a program: `submit("python", "train.py")`; or an `Entrypoint`,
                which has its arguments.
            args: of the function, compared with its parameters by type checkers; or further words
                of the program.
            kwargs: the function's keyword arguments, which type checkers do not compare;
                `Entrypoint.from_callable` has them compared.
            workspace: the directory whose files the job gets; True: the current one; False: none;
                None: as the client was made, else the current one if it is a project's.
            require_feasible: refuses a job that no host can ever run. By default it waits, because
                hosts may be added.
            options: of the job: `name`, `resources`, `env` and so on; `JobOptions` describes each.

        Raises:
            InvalidValue, InvalidJob: an option is wrong, or the function cannot be pickled.
            NameTaken: a live job has this name.
            Rejected: the workspace cannot be sent, or no host can ever run the job.
            IrisError: the store does not accept the job's files.
            Unreachable: the service does not answer.
        """
        one_of_both = cast("Callable[..., Any]", work)  # the type checker wants to know which
        made = self._client.submit(
            one_of_both,
            *args,
            kwargs=kwargs,
            workspace=workspace,
            require_feasible=require_feasible,
            **options,
        )
        return Job(self._loop.run(made), self._loop)

    @overload
    def schedule(
        self,
        work: Callable[[*Ts], Any],
        *args: *Ts,
        when: "When",
        overlap: "Overlap | str" = "skip",
        paused: bool = False,
        workspace: Path | str | bool | None = None,
        **options: Unpack[CallOptions],
    ) -> "ScheduleRow": ...

    @overload
    def schedule(
        self,
        work: Callable[..., Any],
        *args: Any,
        when: "When",
        overlap: "Overlap | str" = "skip",
        paused: bool = False,
        kwargs: Mapping[str, Any],
        workspace: Path | str | bool | None = None,
        **options: Unpack[JobOptions],
    ) -> "ScheduleRow": ...

    @overload
    def schedule(
        self,
        work: Callable[..., Any],
        *args: Any,
        when: "When",
        overlap: "Overlap | str" = "skip",
        paused: bool = False,
        kwargs: Mapping[str, Any] = {},
        params: Sequence[Mapping[str, Any]],
        workspace: Path | str | bool | None = None,
        **options: Unpack[CallOptions],
    ) -> "ScheduleRow": ...

    @overload
    def schedule(
        self,
        work: Entrypoint[Any],
        *,
        when: "When",
        overlap: "Overlap | str" = "skip",
        paused: bool = False,
        workspace: Path | str | bool | None = None,
        **options: Unpack[JobOptions],
    ) -> "ScheduleRow": ...

    @overload
    def schedule(
        self,
        work: str | Sequence[str],
        *args: str,
        when: "When",
        overlap: "Overlap | str" = "skip",
        paused: bool = False,
        workspace: Path | str | bool | None = None,
        **options: Unpack[JobOptions],
    ) -> "ScheduleRow": ...

    def schedule(  # type: ignore[misc]  # as above
        self,
        work: Work,
        *args: Any,
        when: "When",
        overlap: "Overlap | str" = "skip",
        paused: bool = False,
        kwargs: Mapping[str, Any] = {},
        workspace: Path | str | bool | None = None,
        **options: Unpack[JobOptions],
    ) -> "ScheduleRow":
        """Creates a schedule that starts a job again and again, and returns the schedule.

        The function and the files are sent once, now. `client.job(name).result()` is the result of
        the last run. The attribute `schedules` has the further operations.

        Args:
            work: as for `submit`.
            args: as for `submit`.
            when: `iris.When(cron="0 2 * * *")` or `iris.When(every="6h")`.
            overlap: what happens at a time at which the job of the time before has not ended:
                `skip`, `queue` or `cancel`.
            paused: starts no runs until `schedules.resume`.
            kwargs: as for `submit`.
            workspace: as for `submit`.
            options: as for `submit`; `name` is also the schedule's, and is required.

        Raises:
            InvalidValue, InvalidJob: an option is wrong, or the function cannot be pickled.
            Rejected: there is a schedule of this name, or the workspace cannot be sent.
            IrisError: the store does not accept the job's files.
            Unreachable: the service does not answer.
        """
        one_of_both = cast("Callable[..., Any]", work)  # as above
        made = self._client.schedule(
            one_of_both,
            *args,
            when=when,
            overlap=overlap,
            paused=paused,
            kwargs=kwargs,
            workspace=workspace,
            **options,
        )
        return self._loop.run(made)

    def forecast(self, **options: Unpack[JobOptions]) -> "Forecast":
        """Returns what the scheduler would do with a job if it were submitted now. Changes nothing.

        Args:
            options: of the job, as for `submit`.

        Raises:
            InvalidValue, InvalidJob: an option is wrong.
            Unreachable: no control plane answers.
        """
        return self._loop.run(self._client.forecast(**options))

    def job(self, job: str) -> Job[Any]:
        """Returns the handle of a job. Asks nothing: the first question shows whether it exists.

        In a program that runs in a job, a bare name means that job's own child first, then the
        user's job; the first question finds out which.

        Args:
            job: its name or `USER/NAME`, or an earlier run of it: `NAME#2`.

        Raises:
            InvalidValue: the text has another form.
        """
        return Job(self._client.job(job), self._loop)

    def jobs(self, wanted: JobFilter | None = None, *, limit: int = 50) -> Sequence[JobRow]:
        """Lists jobs, the newest first, also while no control plane answers.

        Args:
            wanted: which ones; None: all, ended ones too.
            limit: at most so many.

        Raises:
            InvalidValue: no user can have the name in `wanted`.
            Unreachable: the service does not answer.
        """
        return self._loop.run(self._client.jobs.list(wanted, limit=limit))

    def endpoints(self, prefix: str = "", job: str | None = None) -> Sequence[Endpoint]:
        """Lists the addresses that tasks have made known, by job, task and name.

        Args:
            prefix: only those whose names begin with it.
            job: a job of the family; None: that of this program.

        Raises:
            InvalidValue: the program does not run in a job, and `job` is None.
            NotFound: there is no such job.
            Unreachable: no control plane answers.
        """
        return self._loop.run(self._client.endpoints.list(prefix, job))

    def close(self) -> None:
        """Ends the connection, and the cluster if `local` has started it. Jobs elsewhere continue.

        Raises nothing. In a process that was forked, such as a worker of `multiprocessing`, it does
        nothing: the connection is its parent's.
        """
        if not self._loop.forked:
            self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<IrisClient of {self._client.record.name} at {self._client.record.address}>"
