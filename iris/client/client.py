"""The client of one cluster. It needs only the Temporal service; statuses and explanations also need a control plane."""

from functools import cached_property
from typing import TYPE_CHECKING, Self

from temporalio.client import Client

from iris.client.connect.cluster_ref import ClusterRef, resolve_cluster
from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.remote import open_connection
from iris.client.connect.rpc import Connection
from iris.client.jobs import JobsClient

if TYPE_CHECKING:  # most commands need jobs only, and the other messages cost a tenth of a command's imports
    from iris.client.autoscaler import AutoscalerClient
    from iris.client.cluster import ClusterClient
    from iris.client.exec import ExecClient
    from iris.client.hosts import HostsClient
    from iris.client.slices import SlicesClient


class IrisClient:
    """A connection to one cluster. Each attribute has the operations on one kind of object.

    client = await IrisClient.connect("my-cluster")
    submitted = await client.jobs.submit(spec)
    status = await client.jobs.wait(submitted.id)
    """

    def __init__(self, client: Client, record: ClusterRecord) -> None:
        """Creates a client from a connected Temporal client and the cluster's record."""
        self.record = record
        self.connection = Connection(client, record)
        self.jobs = JobsClient(self.connection)

    @cached_property
    def autoscaler(self) -> "AutoscalerClient":
        from iris.client.autoscaler import AutoscalerClient

        return AutoscalerClient(self.connection)

    @cached_property
    def slices(self) -> "SlicesClient":
        from iris.client.slices import SlicesClient

        return SlicesClient(self.connection, self.autoscaler)

    @cached_property
    def hosts(self) -> "HostsClient":
        from iris.client.hosts import HostsClient

        return HostsClient(self.connection, self.slices)

    @cached_property
    def exec(self) -> "ExecClient":
        from iris.client.exec import ExecClient

        return ExecClient(self.connection, self.jobs)

    @cached_property
    def cluster(self) -> "ClusterClient":
        from iris.client.cluster import ClusterClient

        return ClusterClient(self.connection)

    @classmethod
    async def connect(cls, cluster: str | ClusterRef | None = None) -> Self:
        """Connects to a cluster.

        Args:
            cluster: its name or its address: `HOST:PORT`, or `HOST:PORT/NAME` where several clusters share a service. None: the
                cluster that the environment names, else the only one that is known here.

        Raises:
            Unreachable: the cluster does not run or does not answer.
            NotFound: there are several clusters and none was named, or the service has no such cluster.
        """
        ref = cluster if isinstance(cluster, ClusterRef) else resolve_cluster(cluster)
        return cls(*await open_connection(ref))
