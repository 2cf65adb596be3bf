"""Connects to a cluster elsewhere that was started from here. Opens its tunnel if none is open."""

import asyncio
import time
from datetime import timedelta

from temporalio.client import Client

from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.connection import connect
from iris.client.connect.tunnel import last_words, open_tunnel
from iris.model.errors import Unreachable

#: A connection takes seconds, and the tunnel soon replaces a broken one.
TUNNEL_TIMEOUT = timedelta(seconds=30)
#: The timeout of one attempt.
TRY = timedelta(seconds=5)
POLL_INTERVAL = timedelta(seconds=0.2)


async def reached(name: str, patience: timedelta = TUNNEL_TIMEOUT) -> tuple[Client, ClusterRecord]:
    """Returns a connected client, and the cluster's record with its current address.

    Raises:
        Unreachable: the cluster is not known here, no tunnel can be opened, or no service answers through it in time.
    """
    give_up = time.monotonic() + patience.total_seconds()
    while True:
        record = await asyncio.to_thread(open_tunnel, name)
        try:
            return await connect(record.address, record.namespace, timeout=TRY, quiet=True), record
        except Unreachable as error:
            if time.monotonic() > give_up:
                words = last_words(name) if record.gate is not None else ""
                raise Unreachable(f"cluster {name} does not answer: {error}{words}") from None
        await asyncio.sleep(POLL_INTERVAL.total_seconds())
