"""The client for programs that are not asynchronous: scripts, threads and notebooks. Each call
waits for its result.

This module has the parts that are written by hand: the connection, and lists of jobs and endpoints.
"""

import secrets
from collections.abc import Coroutine, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from iris.client.blocking.event_loop import BackgroundLoop
from iris.client.blocking.generated.client import IrisClientMethods
from iris.client.client import AsyncIrisClient
from iris.client.jobs.lists import JobFilter
from iris.client.views import JobRow
from iris.model.errors import InvalidValue
from iris.model.job.endpoints import Endpoint

if TYPE_CHECKING:
    from iris.config import ClusterConfig


class IrisClient(IrisClientMethods):
    """A connection to one cluster, which any thread may use.

    with IrisClient.local() as client:
        job = client.submit(train, 0.1, resources=Resources(cpu=2))
        print(job.result())
    """

    _asynchronous: AsyncIrisClient

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
            self._asynchronous = self._loop.run(connecting)
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

    @property
    def parts(self) -> tuple[AsyncIrisClient, BackgroundLoop]:
        """The asynchronous client, and the loop on which it runs: for what is built on both, such
        as pools.
        """
        return self._asynchronous, self._loop

    def jobs(self, wanted: JobFilter | None = None, *, limit: int = 50) -> Sequence[JobRow]:
        """Lists jobs, the newest first, also while no control plane answers.

        Args:
            wanted: which ones; None: all, ended ones too.
            limit: at most so many.

        Raises:
            InvalidValue: no user can have the name in `wanted`.
            Unreachable: the service does not answer.
        """
        return self._loop.run(self._asynchronous.jobs.list(wanted, limit=limit))

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
        return self._loop.run(self._asynchronous.endpoints.list(prefix, job))

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
        record = self._asynchronous.record
        return f"<IrisClient of {record.name} at {record.address}>"
