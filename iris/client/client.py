"""The client of one cluster. It needs only the Temporal service. Statuses and explanations of jobs
need a control plane, too.
"""

import os
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVarTuple, Unpack, overload

from temporalio.client import Client
from typing_extensions import TypeVar

from iris.client import build, fleet, schedules, secrets
from iris.client.build.inheritance import inherit
from iris.client.build.warnings import infeasible, job_warnings
from iris.client.connect.cluster_ref import ClusterRef, resolve_cluster
from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.identity import current_user, full_job_id, in_a_job, job_and_run
from iris.client.connect.remote import open_connection
from iris.client.connect.rpc import Connection
from iris.client.jobs.client import JobsClient
from iris.model import names
from iris.model.errors import InvalidValue, Rejected, Unreachable

# Most commands need only jobs. The other modules are a tenth of a command's imports.
if TYPE_CHECKING:
    from iris.client.build.entrypoint import Entrypoint
    from iris.client.build.job import Work
    from iris.client.build.options import CallOptions, JobOptions
    from iris.client.build.parent import EnclosingJob, ParentLookup
    from iris.client.cluster import ClusterClient
    from iris.client.fleet.autoscaler import AutoscalerClient
    from iris.client.fleet.hosts import HostsClient
    from iris.client.fleet.simulations import SimulationsClient
    from iris.client.fleet.slices import SlicesClient
    from iris.client.jobs.endpoints import EndpointsClient
    from iris.client.jobs.exec.session import ExecClient
    from iris.client.jobs.handle import AsyncJob
    from iris.client.schedules.client import ScheduleRow, SchedulesClient
    from iris.client.schedules.when import Overlap, When
    from iris.client.secrets.named import SecretsClient
    from iris.model.job.spec import JobSpec
    from iris.scheduling.reasons.forecast import Forecast
    from iris.usage.estimate import Estimate

T = TypeVar("T", default=Any)
#: The types of a function's arguments.
Ts = TypeVarTuple("Ts")


class AsyncIrisClient:
    """A connection to one cluster. Each attribute has the operations on one kind of object.

    client = await AsyncIrisClient.connect("my-cluster")
    job = await client.submit(train, 0.1, resources=Resources(gpu="H100x8"))
    loss = await job
    """

    def __init__(
        self, client: Client, record: ClusterRecord, workspace: Path | str | bool | None = None
    ) -> None:
        """Creates a client. Programs use `connect`, `remote` or `from_env`.

        Args:
            client: a connected client of Temporal.
            record: the address of the cluster.
            workspace: the default of `submit`.
        """
        self._workspace = workspace
        self.record = record
        self.connection = Connection(client, record)
        self.jobs = JobsClient(self.connection)
        self._parents: ParentLookup | None = None

    @cached_property
    def autoscaler(self) -> "AutoscalerClient":
        """The operations on the autoscaler, as `iris autoscaler` has them."""
        return fleet.autoscaler.AutoscalerClient(self.connection)

    @cached_property
    def slices(self) -> "SlicesClient":
        """The operations on slices, as `iris slice` has them."""
        return fleet.slices.SlicesClient(self.connection, self.autoscaler)

    @cached_property
    def hosts(self) -> "HostsClient":
        """The operations on hosts, as `iris host` has them."""
        return fleet.hosts.HostsClient(self.connection, self.slices)

    @cached_property
    def exec(self) -> "ExecClient":
        """The commands that run next to tasks. `AsyncJob.exec` is easier to use."""
        from iris.client.jobs.exec.session import ExecClient

        return ExecClient(self.connection, self.jobs)

    @cached_property
    def schedules(self) -> "SchedulesClient":
        """The operations on schedules, as `iris schedule` has them."""
        return schedules.client.SchedulesClient(self.connection)

    @cached_property
    def secrets(self) -> "SecretsClient":
        """The named secrets of the current user, as `iris secret` has them."""
        return secrets.named.SecretsClient(self.connection)

    @cached_property
    def endpoints(self) -> "EndpointsClient":
        """The addresses that tasks registered, as `iris endpoints` shows them."""
        from iris.client.jobs.endpoints import EndpointsClient

        return EndpointsClient(self.connection)

    @cached_property
    def simulations(self) -> "SimulationsClient":
        """The reports of simulations that were published for all users of the cluster."""
        return fleet.simulations.SimulationsClient(self.connection)

    @cached_property
    def cluster(self) -> "ClusterClient":
        """The cluster's name and address, and the operations on it as a whole, as `iris cluster`
        has them.
        """
        from iris.client.cluster import ClusterClient

        return ClusterClient(self.connection)

    @classmethod
    async def from_env(cls) -> Self:
        """Connects to the cluster of the job that this program runs in.

        Raises:
            Unreachable: the program does not run in a job, or the cluster does not answer.
        """
        if names.ENV_JOB_ID not in os.environ:
            raise Unreachable(f"this program does not run in a job: {names.ENV_JOB_ID} is not set")
        return await cls.connect()

    @classmethod
    async def connect(
        cls, cluster: str | ClusterRef | None = None, *, workspace: Path | str | bool | None = None
    ) -> Self:
        """Connects to a cluster.

        Args:
            cluster: its name or its address: `HOST:PORT`, or `HOST:PORT/NAME` if several clusters
                share a service. None is the cluster that the environment names, or the only cluster
                that is known here.
            workspace: the default of `submit`.

        Raises:
            Unreachable: the cluster does not run or does not answer.
            NotFound: several clusters are known and none is named, or the service has no such
                cluster.
        """
        ref = cluster if isinstance(cluster, ClusterRef) else resolve_cluster(cluster)
        return cls(*await open_connection(ref), workspace)

    @classmethod
    @asynccontextmanager
    async def remote(
        cls, cluster: str, *, workspace: Path | str | bool | None = None
    ) -> AsyncIterator[Self]:
        """Connects to a cluster for a block: `async with AsyncIrisClient.remote("lab") as client`.

        For a cluster on this machine that ends with the program, connect to
        `IrisClient.local().cluster.name`.

        Args:
            cluster: its name or its address: `HOST:PORT`, or `HOST:PORT/NAME` if several clusters
                share a service.
            workspace: the default of `submit`.

        Raises:
            Unreachable: the cluster does not run or does not answer.
            NotFound: the service has no such cluster.
        """
        yield await cls.connect(cluster, workspace=workspace)

    @overload
    async def submit(
        self,
        work: "Callable[[*Ts], Coroutine[Any, Any, T]]",
        *args: *Ts,
        workspace: Path | str | bool | None = None,
        require_feasible: bool = False,
        **options: Unpack["CallOptions"],
    ) -> "AsyncJob[T]": ...

    @overload
    async def submit(
        self,
        work: "Callable[[*Ts], T]",
        *args: *Ts,
        workspace: Path | str | bool | None = None,
        require_feasible: bool = False,
        **options: Unpack["CallOptions"],
    ) -> "AsyncJob[T]": ...

    @overload
    async def submit(
        self,
        work: "Callable[..., Coroutine[Any, Any, T]]",
        *args: Any,
        kwargs: Mapping[str, Any],
        workspace: Path | str | bool | None = None,
        require_feasible: bool = False,
        **options: Unpack["JobOptions"],
    ) -> "AsyncJob[T]": ...

    @overload
    async def submit(
        self,
        work: "Callable[..., T]",
        *args: Any,
        kwargs: Mapping[str, Any],
        workspace: Path | str | bool | None = None,
        require_feasible: bool = False,
        **options: Unpack["JobOptions"],
    ) -> "AsyncJob[T]": ...

    @overload
    async def submit(
        self,
        work: "Callable[..., Coroutine[Any, Any, T]]",
        *args: Any,
        kwargs: Mapping[str, Any] = {},
        params: Sequence[Mapping[str, Any]],
        workspace: Path | str | bool | None = None,
        require_feasible: bool = False,
        **options: Unpack["CallOptions"],
    ) -> "AsyncJob[T]": ...

    @overload
    async def submit(
        self,
        work: "Callable[..., T]",
        *args: Any,
        kwargs: Mapping[str, Any] = {},
        params: Sequence[Mapping[str, Any]],
        workspace: Path | str | bool | None = None,
        require_feasible: bool = False,
        **options: Unpack["CallOptions"],
    ) -> "AsyncJob[T]": ...

    @overload
    async def submit(
        self,
        work: "Entrypoint[T]",
        *,
        workspace: Path | str | bool | None = None,
        require_feasible: bool = False,
        **options: Unpack["JobOptions"],
    ) -> "AsyncJob[T]": ...

    @overload
    async def submit(
        self,
        work: str | Sequence[str],
        *args: str,
        workspace: Path | str | bool | None = None,
        require_feasible: bool = False,
        **options: Unpack["JobOptions"],
    ) -> "AsyncJob[None]": ...

    async def submit(  # type: ignore[misc]  # mypy cannot tell *Ts beside **options
        self,
        work: "Work",
        *args: Any,
        kwargs: Mapping[str, Any] = {},
        workspace: Path | str | bool | None = None,
        require_feasible: bool = False,
        **options: Unpack["JobOptions"],
    ) -> "AsyncJob[Any]":
        """Starts a job that calls a function or runs a program, and returns its handle.

        A function is passed by cloudpickle, so both sides need the same version of Python. The job
        imports a function of an installed module or of a module in the workspace. Any other
        function is passed as a whole. `AsyncJob.result` returns its result. An `async def` function
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
        if (
            require_feasible
            and (never := await self.jobs.why_infeasible(await self._trial(**options))) is not None
        ):
            raise Rejected(infeasible(never))
        spec = await self._make(
            work, args, kwargs, workspace, await self.enclosing_job(), **options
        )
        submitted = await self.jobs.submit(spec)
        return self._job(submitted.id, submitted.run_id, submitted.ui)

    @overload
    async def schedule(
        self,
        work: "Callable[[*Ts], Any]",
        *args: *Ts,
        when: "When",
        overlap: "Overlap | str" = "skip",
        paused: bool = False,
        workspace: Path | str | bool | None = None,
        **options: Unpack["CallOptions"],
    ) -> "ScheduleRow": ...

    @overload
    async def schedule(
        self,
        work: "Callable[..., Any]",
        *args: Any,
        when: "When",
        overlap: "Overlap | str" = "skip",
        paused: bool = False,
        kwargs: Mapping[str, Any],
        workspace: Path | str | bool | None = None,
        **options: Unpack["JobOptions"],
    ) -> "ScheduleRow": ...

    @overload
    async def schedule(
        self,
        work: "Callable[..., Any]",
        *args: Any,
        when: "When",
        overlap: "Overlap | str" = "skip",
        paused: bool = False,
        kwargs: Mapping[str, Any] = {},
        params: Sequence[Mapping[str, Any]],
        workspace: Path | str | bool | None = None,
        **options: Unpack["CallOptions"],
    ) -> "ScheduleRow": ...

    @overload
    async def schedule(
        self,
        work: "Entrypoint[Any]",
        *,
        when: "When",
        overlap: "Overlap | str" = "skip",
        paused: bool = False,
        workspace: Path | str | bool | None = None,
        **options: Unpack["JobOptions"],
    ) -> "ScheduleRow": ...

    @overload
    async def schedule(
        self,
        work: str | Sequence[str],
        *args: str,
        when: "When",
        overlap: "Overlap | str" = "skip",
        paused: bool = False,
        workspace: Path | str | bool | None = None,
        **options: Unpack["JobOptions"],
    ) -> "ScheduleRow": ...

    async def schedule(  # type: ignore[misc]  # as above
        self,
        work: "Work",
        *args: Any,
        when: "When",
        overlap: "Overlap | str" = "skip",
        paused: bool = False,
        kwargs: Mapping[str, Any] = {},
        workspace: Path | str | bool | None = None,
        **options: Unpack["JobOptions"],
    ) -> "ScheduleRow":
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
        policy = schedules.when.parse_overlap(overlap)
        if "name" not in options:
            raise InvalidValue(
                "name", "", "is missing: a schedule needs a name", "write name='nightly'"
            )
        spec = await self._make(work, args, kwargs, workspace, None, **options)
        return await self.schedules.create(spec, when, overlap=policy, paused=paused)

    async def forecast(self, **options: Unpack["JobOptions"]) -> "Forecast":
        """Returns what the scheduler would do with a job if it were submitted now. Changes nothing.

        Args:
            options: the options of the job, as for `submit`.

        Raises:
            InvalidValue, InvalidJob: an option is wrong.
            Unreachable: no control plane answers.
        """
        return await self.jobs.forecast(await self._trial(**options))

    async def estimate(self, **options: Unpack["JobOptions"]) -> "Estimate | None":
        """Returns what a job costs at most if each of its tasks runs once until its `timeout`.
        Returns None if the job has no timeout, or if no scale group that could run it has a price.

        Args:
            options: the options of the job, as for `submit`.

        Raises:
            InvalidValue, InvalidJob: an option is wrong.
            Unreachable: no control plane or no store answers.
            IrisError: the store cannot be read.
        """
        return await self.jobs.estimate(await self._trial(**options))

    async def enclosing_job(self) -> "EnclosingJob | None":
        """Returns the job of this cluster in which the program runs. It is the parent of the jobs
        that the program submits.

        Raises:
            Rejected: that job has ended.
            Unreachable: the service does not answer.
        """
        if names.ENV_JOB_ID not in os.environ:
            return None
        if self._parents is None:
            self._parents = build.parent.ParentLookup(self.connection)
        return await self._parents.find()

    def job(self, job: str) -> "AsyncJob[Any]":
        """Returns the handle of a job. Sends no request: the first request shows whether the job
        exists.

        In a program that runs in a job, a bare name means that job's own child first, then the
        user's job. The first request finds out which.

        Args:
            job: the name of the job or `USER/NAME`, or an earlier run of it: `NAME#2`.

        Raises:
            InvalidValue: the text has another form.
        """
        named, number = job_and_run(job)
        if ":" in named:
            name, _, task = named.partition(":")
            raise InvalidValue(
                "job",
                job,
                "is a task",
                f"write job({name!r}), and task={task} in the calls of its methods",
            )
        full = full_job_id(named)
        page = self.jobs.page(full) if number is None else ""
        is_bare = in_a_job() and "/" not in named
        return self._job(full, None, page, run_number=number, is_bare=is_bare)

    def _job(self, job: str, run_id: str | None, page: str, **which: Any) -> "AsyncJob[Any]":
        from iris.client.jobs.handle import AsyncJob  # most commands need no handle

        return AsyncJob(self.connection, job, run_id, page, **which)

    async def _make(
        self,
        work: "Work",
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        workspace: Path | str | bool | None,
        within: "EnclosingJob | None",
        **options: Unpack["JobOptions"],
    ) -> "JobSpec":
        """Returns the job with its files in the store, and prints warnings about it."""
        files = self._workspace if workspace is None else workspace
        spec = await build.job.make_job(self.record, work, args, kwargs, files, within, **options)
        for warning in job_warnings(spec, option="env", remedy="secret={{{0!r}: 'env:{0}'}}"):
            warnings.warn(warning, stacklevel=3)
        return spec

    async def _trial(self, **options: Unpack["JobOptions"]) -> "JobSpec":
        """Returns a job of these options for questions to the scheduler."""
        spec = build.options.job_spec(current_user(), ("forecast",), **options)
        if (within := await self.enclosing_job()) is not None:
            spec = inherit(spec, within.spec, given=[*options])
        return spec
