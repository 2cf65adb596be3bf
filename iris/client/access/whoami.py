"""Asks a cluster's Temporal service who it takes this process for."""

from typing import NamedTuple

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.service import RPCError

from iris.client.access.proofs import key_of
from iris.client.access.selection import token_source
from iris.client.connect.connection import RPC_TIMEOUT
from iris.client.connect.refusals import is_refusal
from iris.client.connect.rpc import Connection

#: The keys of the caller's name and role in the namespace's description. Only a server with an
#: access policy adds them.
NAME, ROLE = "iris_name", "iris_role"


class Caller(NamedTuple):
    """The name and the role that the Temporal service has found for this process."""

    #: The name and the role of the caller. Both are empty if the service does not check identities.
    #: If the service refuses this process, `name` is the name in the process's own identity, or
    #: empty if that is not known, and `role` is empty.
    name: str
    role: str
    #: Whether the service checks identities. Otherwise everyone who reaches it may act as any user.
    identities: bool
    #: Why the service refuses this process; empty if it accepts it.
    refusal: str = ""
    #: Whether this process authenticates its messages with a key: the cluster's message key, or the
    #: narrower key of the job in which the process runs.
    has_key: bool = False


async def ask_who(connection: Connection) -> Caller:
    """Asks the service.

    Raises:
        Unreachable: the service does not answer.
    """
    client, has_key = connection.client, key_of(connection.client) is not None
    request = DescribeNamespaceRequest(namespace=client.namespace)
    with connection.rpc_errors():
        try:
            answer = await client.workflow_service.describe_namespace(request, timeout=RPC_TIMEOUT)
        except RPCError as error:
            if not is_refusal(error):
                raise
            source = token_source(connection.record.address)
            name = source.name if source is not None else ""
            return Caller(name, "", True, error.message, has_key)
    about = answer.namespace_info.data
    return Caller(about.get(NAME, ""), about.get(ROLE, ""), ROLE in about, has_key=has_key)
