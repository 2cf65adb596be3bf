"""Reaching a cluster elsewhere that was started from here: through its tunnel, which is opened when there is none."""

import asyncio
import time
from datetime import timedelta

from temporalio.client import Client

from iris.client.clusters import ClusterRecord
from iris.client.connection import connect
from iris.client.tunnel import last_words, open_tunnel
from iris.errors import Unreachable

#: A connection takes seconds, and one that broke is made again soon.
PATIENCE = timedelta(seconds=30)
#: With one attempt.
TRY = timedelta(seconds=5)
LOOK_EVERY = timedelta(seconds=0.2)


async def reached(name: str, patience: timedelta = PATIENCE) -> tuple[Client, ClusterRecord]:
    """A client of the cluster's service, which has answered, and the cluster as it is reached now.

    Raises:
        Unreachable: the cluster is not known here, no tunnel can be opened, or nobody answers at its end in time.
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
        await asyncio.sleep(LOOK_EVERY.total_seconds())
