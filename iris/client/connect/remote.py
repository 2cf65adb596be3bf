"""Connects to the Temporal service of a cluster. Finds the cluster in the service at an
address, and opens the tunnel to a cluster on another machine if the tunnel is not open.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from iris.client.access.message_key import check_mark, message_key
from iris.client.access.proofs import key_of
from iris.client.connect.cluster_ref import ClusterRef
from iris.client.connect.clusters import ClusterRecord, known_clusters, not_running
from iris.client.connect.connection import connect
from iris.client.connect.refusals import refused
from iris.model import names
from iris.model.errors import NotFound, Rejected, Unreachable
from iris.model.ip_address import is_loopback
from iris.retrying import retry

logger = logging.getLogger(__name__)

#: How long to wait for an answer through a tunnel. A tunnel takes seconds to connect, and connects
#: again soon after a break.
TUNNEL_TIMEOUT = timedelta(seconds=30)
#: How long one attempt to connect through a tunnel may take.
ATTEMPT_TIMEOUT = timedelta(seconds=5)
POLL_INTERVAL = timedelta(seconds=0.2)


class _NoAnswer(Unreachable):
    """The service does not answer through the tunnel, which may not be connected yet."""


async def open_connection(cluster: ClusterRef) -> tuple[Client, ClusterRecord]:
    """Returns a connected client, and the cluster's record with its current address.

    Raises:
        Unreachable: the cluster does not run or does not answer.
        NotFound: the service at the address has no such cluster; or it has several clusters, and
            the address names none.
    """
    if cluster.is_address:
        address, _, name = cluster.name.partition("/")
        namespace = (
            os.environ.get("TEMPORAL_NAMESPACE") or os.environ.get(names.ENV_NAMESPACE) or "default"
        )
        client = await connect(address, namespace, quiet=True)
        found, mark = await discover(client, address, name or None)
        if mark and key_of(client) is None:
            # A cluster of this machine may have other addresses than that of its record here, such
            # as that of a tunnel.
            own = message_key(found.name)
            if own is not None and own.mark(found.name, found.store) == mark:
                client = await connect(address, namespace, quiet=True, cluster=found.name)
        check_mark(key_of(client), found.name, found.store, mark)
        return client, found
    known = {record.name: record for record in known_clusters()}
    record = known.get(cluster.name)
    if record is None:
        raise not_running(
            cluster.name, f"running: {', '.join(known)}" if known else "no local cluster runs"
        )
    if record.remote:
        return await connect_remote(record.name)
    return await connect(record.address, record.namespace, quiet=True, cluster=record.name), record


async def connect_remote(
    name: str, timeout: timedelta = TUNNEL_TIMEOUT
) -> tuple[Client, ClusterRecord]:
    """Connects to a cluster on another machine that was started from here.

    Raises:
        Unreachable: the cluster is not known here, no tunnel can be opened, or no service answers
            through it in time.
    """
    # Imported here, because it imports the supervision of processes.
    from iris.client.connect.tunnel import last_output, open_tunnel

    @retry(_NoAnswer, every=POLL_INTERVAL, timeout=timeout)
    async def attempt() -> tuple[Client, ClusterRecord]:
        record = await asyncio.to_thread(open_tunnel, name)
        try:
            return await connect(
                record.address, record.namespace, timeout=ATTEMPT_TIMEOUT, quiet=True, cluster=name
            ), record
        except Unreachable as error:
            output = last_output(name) if record.end is not None else ""
            raise _NoAnswer(f"cluster {name} does not answer: {error}{output}") from None

    return await attempt()


def _from_here(dashboard: str, address: str) -> str:
    """Returns the address of the dashboard if this machine reaches it, else an empty text.

    Args:
        dashboard: the address that the control plane knows. A loopback address is one of its own
            machine.
        address: the address at which this machine reaches the Temporal service.
    """
    return dashboard if is_loopback(address) or not is_loopback(urlsplit(dashboard).netloc) else ""


async def discover(client: Client, address: str, name: str | None) -> tuple[ClusterRecord, str]:
    """Finds the cluster at this address, and the mark of its message key. The memo of the cluster's
    scheduler has both.

    Raises:
        NotFound: the service has no such cluster; or it has several clusters, and `name` is None.
        Unreachable: the service does not answer.
        Rejected: the service refuses this client, or the cluster's payloads are encrypted with a
            key that is not known here.
    """
    found: dict[str, ClusterRecord] = {}
    marks: dict[str, str] = {}
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
                marks[cluster] = str(memo.get(names.MEMO_MARK, ""))
                found[cluster] = ClusterRecord(
                    name=cluster,
                    address=address,
                    namespace=client.namespace,
                    store=str(memo[names.MEMO_STORE]),
                    ui=str(memo.get(names.MEMO_UI, "")),
                    dashboard=_from_here(str(memo.get(names.MEMO_DASHBOARD, "")), address),
                )
    except RPCError as error:
        if (refusal := refused(error, address)) is not None:
            raise refusal from None
        # INVALID_ARGUMENT: the search attributes are not registered, so no cluster of Iris is here.
        if error.status is not RPCStatusCode.INVALID_ARGUMENT:
            raise Unreachable(f"the service at {address} does not answer: {error}") from None
    chosen = next(iter(found)) if name is None and len(found) == 1 else name
    if chosen in found:
        return found[chosen], marks[chosen]
    raise _not_there(address, name, found, unreadable)


def _not_there(
    address: str,
    name: str | None,
    found: Mapping[str, ClusterRecord],
    unreadable: Mapping[str, Rejected],
) -> Rejected | NotFound:
    """Returns the error if the service has no such cluster, or several.

    Args:
        unreadable: the errors of the clusters whose memos cannot be read.
    """
    if (name is None and not found and unreadable) or name in unreadable:
        return unreadable[name] if name is not None else next(iter(unreadable.values()))
    there_are = ", ".join(sorted(found)) or "none"
    problem = (
        f"no cluster {name!r}" if name else ("several clusters" if found else "no Iris cluster")
    )
    return NotFound(f"{problem} at {address} (there are: {there_are}); name one as {address}/NAME")
