"""Which clusters a Temporal service has, asked of the service itself."""

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from iris import names
from iris.client.clusters import ClusterRecord
from iris.errors import NotFound, Unreachable


async def discover(client: Client, address: str, name: str | None) -> ClusterRecord:
    """The cluster at this address. Each has a scheduler, whose memo says where its logs and its Web UI are.

    Raises:
        NotFound: the service has no such cluster, or several and none was named.
        Unreachable: it does not answer.
    """
    found: dict[str, ClusterRecord] = {}
    try:
        async for execution in client.list_workflows(
            f"{names.SA_KIND} = '{names.KIND_SCHEDULER}' AND ExecutionStatus = 'Running'"
        ):
            memo = await execution.memo()
            cluster = execution.id.partition("/")[0]
            found[cluster] = ClusterRecord(
                name=cluster,
                address=address,
                namespace=client.namespace,
                store=str(memo[names.MEMO_STORE]),
                ui=str(memo[names.MEMO_UI]),
            )
    except RPCError as error:
        if error.status is not RPCStatusCode.INVALID_ARGUMENT:  # search attributes that nobody has registered: no Iris here
            raise Unreachable(f"the service at {address} does not answer: {error}") from None
    if name is not None and name in found:
        return found[name]
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    there_are = ", ".join(sorted(found)) or "none"
    problem = f"no cluster {name!r}" if name else ("several clusters" if found else "no Iris cluster")
    raise NotFound(f"{problem} at {address} (there are: {there_are}); name one as {address}/NAME")
