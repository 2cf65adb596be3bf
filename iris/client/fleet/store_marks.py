"""Marks a store as the store of one cluster, so that unused files are deleted only where no other
cluster has files.
"""

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client

from iris.client.connect.connection import RPC_TIMEOUT
from iris.client.connect.rpc import Connection
from iris.model import store_paths
from iris.model.errors import Rejected, Unreachable, first_line
from iris.storage.object_store import STORE_ERRORS, Store

_REMEDY = (
    "give each cluster a store of its own, or let a lifecycle rule of the bucket delete old files"
)


async def mark_store(client: Client, cluster: str, url: str) -> None:
    """Marks the store as the store of the cluster in this client's namespace. Every control plane
    does this.

    Raises:
        RPCError: the service does not answer.
        Unreachable: the store does not answer.
    """
    mark = store_paths.cluster_namespace(cluster, await _namespace_id(client))
    try:
        await Store(url).put_new(mark, f"namespace {client.namespace}\n".encode())
    except STORE_ERRORS as error:
        raise Unreachable(f"the store {url} cannot be used: {first_line(error)}") from None


async def check_alone(connection: Connection, store: Store) -> None:
    """Checks that only this cluster uses the store.

    Raises:
        Rejected: the store has marks of other clusters, or no mark of this cluster.
        Unreachable: the service does not answer.
        OSError, BaseError: the store does not answer.
    """
    cluster = connection.record.name
    if others := [name for name in await store.folders("clusters") if name != cluster]:
        text = (
            f"the store {store.url} also has files of {', '.join(others)}, whose jobs this cluster"
            " does not know"
        )
        raise Rejected(f"{text}; {_REMEDY}")
    with connection.rpc_errors():
        own = store_paths.cluster_namespace(cluster, await _namespace_id(connection.client))
    marks = await store.objects(own.rpartition("/")[0])
    if foreign := [mark for mark in marks if mark != own]:
        text = (
            f"the store {store.url} also has files of a cluster {cluster} in another Temporal"
            " namespace"
        )
        raise Rejected(
            f"{text}, as its mark shows: {', '.join(foreign)}; {_REMEDY}, or delete the mark from"
            " the store if that cluster no longer exists"
        )
    if own not in marks:
        text = (
            f"the store {store.url} has no file that marks it as the store of cluster {cluster},"
            " so it may belong to another cluster"
        )
        raise Rejected(
            f"{text}; check the store's address, or start the cluster's control plane with this"
            " version of Iris, which writes that file"
        )


async def _namespace_id(client: Client) -> str:
    """Returns the id of the client's namespace. It differs from the ids on all other services."""
    request = DescribeNamespaceRequest(namespace=client.namespace)
    described = await client.workflow_service.describe_namespace(request, timeout=RPC_TIMEOUT)
    return described.namespace_info.id
