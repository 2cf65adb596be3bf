"""The client for programs that are not asynchronous: scripts, threads and notebooks. Each call
waits for its result.

This module has the parts that are written by hand: the connection, and lists of jobs and endpoints.
"""

import secrets
from collections.abc import Coroutine, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from iris.client import operate
from iris.client.blocking.event_loop import BackgroundLoop
from iris.client.blocking.generated.client import IrisClientMethods
from iris.client.client import AsyncIrisClient
from iris.client.jobs.lists import JobFilter
from iris.client.jobs.rows import JobRow
from iris.model.errors import InvalidValue
from iris.model.host.accelerators import tpu as parse_tpu_kind
from iris.model.job.endpoints import Endpoint

if TYPE_CHECKING:
    from iris.config import ClusterConfig


class IrisClient(IrisClientMethods):
    """A connection to one cluster. Any thread may use it.

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
                clusters share a service. None for the cluster that the environment names, or else
                the only cluster that is known here.
            workspace: the default of `submit`.

        Raises:
            Unreachable: the cluster does not run or does not answer.
            NotFound: there are several clusters and `cluster` is None, or the service has no such
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
        """Starts a cluster on this machine. It ends with the client, at the latest at the end of
        the program.

        Args:
            config: a configuration whose scale groups the cluster gets; None for one host.
            tpu: a TPU type, such as `"v5litepod-16"`, instead of `config`. The cluster gets one
                simulated slice of this type.
            workspace: the default of `submit`.

        Raises:
            InvalidValue: there is no such TPU type, or `config` and `tpu` are both given.
            IrisError: the cluster did not start.
        """
        name = f"python-{secrets.token_hex(4)}"
        if config is not None and tpu is not None:
            raise InvalidValue(
                "tpu",
                tpu,
                "cannot be combined with a configuration, which lists the scale groups itself",
                "add a scale group for it to the configuration",
            )
        kind = parse_tpu_kind(tpu) if tpu is not None else None
        manager = operate.cluster_manager.temporary_cluster(name, config, tpu=kind)
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
        """The asynchronous client and its event loop, for code on top of both, such as pools."""
        return self._asynchronous, self._loop

    def jobs(self, wanted: JobFilter | None = None, *, limit: int = 50) -> Sequence[JobRow]:
        """Lists jobs, the newest first. Works also while no control plane answers.

        Args:
            wanted: a filter for the jobs; None for all jobs, including jobs that have ended.
            limit: the most jobs of the list.

        Raises:
            InvalidValue: no user can have the name in `wanted`.
            Unreachable: the service does not answer.
        """
        return self._loop.run(self._asynchronous.jobs.list(wanted, limit=limit))

    def endpoints(self, prefix: str = "", job: str | None = None) -> Sequence[Endpoint]:
        """Lists the addresses that tasks have registered, by job, task and name.

        Args:
            prefix: the beginning of the names to list.
            job: a job. The list has the endpoints of this job's topmost parent, and of all jobs
                below that parent. None for this program's job.

        Raises:
            InvalidValue: the program does not run in a job, and `job` is None.
            NotFound: there is no such job.
            Unreachable: no control plane answers.
        """
        return self._loop.run(self._asynchronous.endpoints.list(prefix, job))

    def close(self) -> None:
        """Ends the connection. Also ends a cluster that `local` has started. Other jobs continue.

        Raises no error. In a forked process, such as a worker of `multiprocessing`, it does
        nothing, because the connection belongs to the parent process.
        """
        if not self._loop.forked:
            self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        record = self._asynchronous.record
        return f"<IrisClient of {record.name} at {record.address}>"
