"""Connects to the Temporal service of a cluster. Opens the tunnel to a cluster on another machine
if the tunnel is not open.
"""

import asyncio
import os
from datetime import timedelta

from temporalio.client import Client

from iris.client.connect.cluster_ref import ClusterRef
from iris.client.connect.clusters import ClusterRecord, known_clusters, not_running
from iris.client.connect.connection import connect
from iris.client.connect.discovery import discover
from iris.model import names
from iris.model.errors import Unreachable
from iris.retrying import retry

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
        return client, await discover(client, address, name or None)
    known = {record.name: record for record in known_clusters()}
    record = known.get(cluster.name)
    if record is None:
        raise not_running(
            cluster.name, f"running: {', '.join(known)}" if known else "no local cluster runs"
        )
    if record.remote:
        return await connect_remote(record.name)
    return await connect(record.address, record.namespace, quiet=True), record


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
                record.address, record.namespace, timeout=ATTEMPT_TIMEOUT, quiet=True
            ), record
        except Unreachable as error:
            output = last_output(name) if record.end is not None else ""
            raise _NoAnswer(f"cluster {name} does not answer: {error}{output}") from None

    return await attempt()
