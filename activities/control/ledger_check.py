"""Finds the hosts of READY slices that the scheduler's ledger does not have."""

import asyncio
from collections.abc import Collection

from temporalio.client import Client, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.service import RPCError, RPCStatusCode

from iris.autoscaling.missing_hosts import MissingHost
from iris.model import names
from iris.model.slice.status import SliceState, SliceStatus

#: The maximum number of slices that one check queries. If the scheduler's ledger seems to lack
#: hosts of more slices, later checks query the others, after the hosts of the first ones have been
#: added to the ledger.
SLICES = 32
#: The maximum number of hosts that one check returns. They are hosts of READY slices that the
#: scheduler's ledger does not contain.
HOSTS = 64
PAGE = 1_000


async def missing_hosts(
    client: Client,
    cluster: str,
    ledger: Collection[tuple[str, str]],
    slices: Collection[str],
    reporting: Collection[tuple[str, str]],
) -> tuple[MissingHost, ...]:
    """Returns hosts of READY slices that are not in the ledger.

    Queries the slices without any host in the ledger, and the slices of agents that report and
    whose host is not in the ledger.

    Args:
        ledger: the (host, incarnation) of each host in the ledger.
        slices: the ids of the slices of these hosts.
        reporting: the (host, incarnation) of the agents that report.

    Raises:
        RPCError: the service does not list the slices.
    """
    ready = await _ready_slices(client, cluster)
    unknown = {names.slice_of_host(host_id) for host_id, _ in set(reporting) - set(ledger)}
    suspects = sorted(each for each in ready if each not in slices or each in unknown)[:SLICES]
    statuses = await asyncio.gather(*(_status(client, cluster, each) for each in suspects))
    found = [
        MissingHost(host_id=host.id, incarnation=host.incarnation, slice_id=status.id)
        for status in statuses
        if status is not None and status.state is SliceState.READY
        for host in status.hosts
        if (host.id, host.incarnation) not in ledger
    ]
    return tuple(found[:HOSTS])


async def _ready_slices(client: Client, cluster: str) -> set[str]:
    prefix = names.slice_workflow(cluster, "")
    query = (
        f"{names.own_workflows(cluster, names.KIND_SLICE)}"
        f" AND {names.SA_STATE} = '{SliceState.READY}' AND ExecutionStatus = 'Running'"
    )
    return {
        execution.id.removeprefix(prefix)
        async for execution in client.list_workflows(query, page_size=PAGE)
    }


async def _status(client: Client, cluster: str, slice_id: str) -> SliceStatus | None:
    """Returns the slice's status; None if it has just ended or cannot answer."""
    try:
        handle = client.get_workflow_handle(names.slice_workflow(cluster, slice_id))
        status: SliceStatus = await handle.query("status", result_type=SliceStatus)
        return status
    except (WorkflowQueryFailedError, WorkflowQueryRejectedError):
        return None
    except RPCError as error:
        if error.status in (
            RPCStatusCode.NOT_FOUND,
            RPCStatusCode.FAILED_PRECONDITION,
            RPCStatusCode.DEADLINE_EXCEEDED,
        ):
            return None
        raise
