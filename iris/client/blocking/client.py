"""The client for programs that are not asynchronous: scripts, threads and notebooks. Each call waits for its result."""

import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack, cast, overload

from typing_extensions import TypeVar

from iris.client.blocking.event_loop import BackgroundLoop
from iris.client.blocking.job import Job
from iris.client.client import AsyncIrisClient
from iris.client.entrypoint import Entrypoint
from iris.client.job_filter import JobFilter
from iris.client.job_options import JobOptions
from iris.client.views import JobRow
from iris.client.work import Work
from iris.model.endpoints import Endpoint
from iris.model.errors import InvalidValue

if TYPE_CHECKING:  # a script that submits jobs needs none of these, and they cost a quarter of its imports
    from iris.client.blocking.operations import Autoscaler, Cluster, Hosts, Schedules, Secrets, Slices
    from iris.client.schedules import Overlap, ScheduleRow, When
    from iris.config import ClusterConfig
    from iris.scheduling.forecast import Forecast

#: What the job's function returns; None for a program.
T = TypeVar("T", default=Any)
#: How long a notebook waits for the state of a job that it shows.
SHOW_TIMEOUT = 5.0


class IrisClient:
    """A connection to one cluster, which any thread may use.

    with IrisClient.local() as client:
        job = client.submit(train, 0.1, resources=Resources(cpu=2))
        print(job.result())
    """

    def __init__(self, cluster: str | None = None, *, workspace: Path | str | bool | None = None) -> None:
        """Connects to a cluster: as `AsyncIrisClient.connect`."""
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
            cluster: as in `AsyncIrisClient.connect`.
            workspace: the default of `submit`.

        Raises:
            Unreachable: the cluster does not run or does not answer.
            NotFound: the service has no such cluster.
        """
        return cls(cluster, workspace=workspace)

    @classmethod
    def from_env(cls) -> Self:
        """As `AsyncIrisClient.from_env`."""
        client = cls.__new__(cls)
        client._start(AsyncIrisClient.from_env())
        return client

    @classmethod
    def local(
        cls, config: "ClusterConfig | None" = None, *, tpu: str | None = None, workspace: Path | str | bool | None = None
    ) -> Self:
        """Starts a cluster on this machine, which ends with the client and at the latest with this program.

        Args:
            config: its groups' shapes; None: one host.
            tpu: instead of `config`: the cluster also has one simulated slice of this type, such as `"v5litepod-16"`.
            workspace: the default of `submit`.

        Raises:
            InvalidValue: there is no such type, or `config` and `tpu` are both given.
            IrisError: it did not start.
        """
        from iris.client.operate.cluster_manager import ClusterManager
        from iris.config import local_config, make_local_config
        from iris.model.accelerators import tpu as parse_tpu_kind

        name = f"python-{secrets.token_hex(4)}"
        if config is not None and tpu is not None:
            raise InvalidValue("tpu", tpu, "does not go with a configuration", "add a scale group to the configuration")
        kind = parse_tpu_kind(tpu) if tpu is not None else None
        own = make_local_config(config, name) if config is not None else local_config(name, tpu=kind)
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
        """The cluster's name and address, and the operations on it as a whole, as `iris cluster` has them."""
        from iris.client.blocking.operations import Cluster

        return Cluster(self._client, self._loop)

    @property
    def parts(self) -> tuple[AsyncIrisClient, BackgroundLoop]:
        """The asynchronous client, and the loop on which it runs: for what is built on both, such as pools."""
        return self._client, self._loop

    @overload
    def submit(
        self,
        work: Callable[..., Coroutine[Any, Any, T]],
        *args: Any,
        kwargs: Mapping[str, Any] = {},
        workspace: Path | str | bool | None = None,
        require_feasible: bool = False,
        **options: Unpack[JobOptions],
    ) -> Job[T]: ...

    @overload
    def submit(
        self,
        work: Callable[..., T] | Entrypoint[T],
        *args: Any,
        kwargs: Mapping[str, Any] = {},
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

    def submit(
        self,
        work: Work,
        *args: Any,
        kwargs: Mapping[str, Any] = {},
        workspace: Path | str | bool | None = None,
        require_feasible: bool = False,
        **options: Unpack[JobOptions],
    ) -> Job[Any]:
        """As `AsyncIrisClient.submit`."""
        one_of_both = cast("Callable[..., Any]", work)  # the type checker wants to know which
        made = self._client.submit(
            one_of_both, *args, kwargs=kwargs, workspace=workspace, require_feasible=require_feasible, **options
        )
        return Job(self._loop.run(made), self._loop)

    def schedule(
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
        """As `AsyncIrisClient.schedule`."""
        made = self._client.schedule(
            work, *args, when=when, overlap=overlap, paused=paused, kwargs=kwargs, workspace=workspace, **options
        )
        return self._loop.run(made)

    def forecast(self, **options: Unpack[JobOptions]) -> "Forecast":
        """As `AsyncIrisClient.forecast`."""
        return self._loop.run(self._client.forecast(**options))

    def job(self, job: str) -> Job[Any]:
        """As `AsyncIrisClient.job`."""
        return Job(self._client.job(job), self._loop)

    def jobs(self, wanted: JobFilter | None = None, *, limit: int = 50) -> Sequence[JobRow]:
        """As `JobsClient.list`."""
        return self._loop.run(self._client.jobs.list(wanted, limit=limit))

    def endpoints(self, prefix: str = "", job: str | None = None) -> Sequence[Endpoint]:
        """As `EndpointsClient.list`."""
        return self._loop.run(self._client.endpoints.list(prefix, job))

    def close(self) -> None:
        """Ends the connection, and the cluster if `local` has started it. Jobs elsewhere continue.

        In a process that was forked, such as a worker of `multiprocessing`, it does nothing: the connection is its parent's.
        """
        if not self._loop.forked:
            self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<IrisClient of {self._client.record.name} at {self._client.record.address}>"
