"""Asks a Temporal service for its Iris clusters."""

import logging
from collections.abc import Mapping
from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.rpc import refused
from iris.model import names
from iris.model.errors import NotFound, Rejected, Unreachable

logger = logging.getLogger(__name__)


async def discover(client: Client, address: str, name: str | None) -> ClusterRecord:
    """Finds the cluster at this address. The memo of the cluster's scheduler has the store and the
    Web UI.

    Raises:
        NotFound: the service has no such cluster; or it has several clusters, and `name` is None.
        Unreachable: the service does not answer.
        Rejected: the service refuses this client, or the cluster's payloads are encrypted with a
            key that is not known here.
    """
    found: dict[str, ClusterRecord] = {}
    unreadable: dict[str, Rejected] = {}
    try:
        schedulers = (
            f"{names.SA_KIND} = '{names.KIND_SCHEDULER}' AND WorkflowType ="
            f" '{names.SCHEDULER_TYPE}'"
        )
        async for execution in client.list_workflows(
            f"{schedulers} AND ExecutionStatus = 'Running'"
        ):
            cluster = execution.id.partition("/")[0]
            own = (names.scheduler_workflow(cluster), names.planner_queue(cluster))
            # Other workflows in the namespace may have the attributes of a scheduler.
            if (execution.id, execution.task_queue) != own or not names.is_name(cluster):
                continue
            try:
                memo: Mapping[str, Any] = await execution.memo()
            except Rejected as error:  # the memo is encrypted with an unknown key
                unreadable[cluster] = error
                continue
            except Exception as error:  # another program wrote it: a codec may raise anything
                logger.debug("the memo of workflow %s cannot be read: %s", execution.id, error)
                continue
            if names.MEMO_STORE in memo:
                found[cluster] = ClusterRecord(
                    name=cluster,
                    address=address,
                    namespace=client.namespace,
                    store=str(memo[names.MEMO_STORE]),
                    ui=str(memo.get(names.MEMO_UI, "")),
                )
    except RPCError as error:
        if (refusal := refused(error, address)) is not None:
            raise refusal from None
        # INVALID_ARGUMENT: the search attributes are not registered, so no cluster of Iris is here.
        if error.status is not RPCStatusCode.INVALID_ARGUMENT:
            raise Unreachable(f"the service at {address} does not answer: {error}") from None
    if name is not None and name in found:
        return found[name]
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if (name is None and not found and unreadable) or name in unreadable:
        raise unreadable[name] if name is not None else next(iter(unreadable.values()))
    there_are = ", ".join(sorted(found)) or "none"
    problem = (
        f"no cluster {name!r}" if name else ("several clusters" if found else "no Iris cluster")
    )
    raise NotFound(f"{problem} at {address} (there are: {there_are}); name one as {address}/NAME")
