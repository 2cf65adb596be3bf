"""The outbox: how jobs and slices talk to the scheduler without drowning it.

One workflow can take a few messages a second, or one message of any size. So every process keeps *one* Update of the scheduler
under way and puts whatever comes up meanwhile into the next: at once when idle, one batch per round trip under load, by itself.
The answers come back with the Update, so a task that fits has its host in the return value of its ask.

Messages are delivered at least once. An activity that times out here and is tried again says the same thing twice; the ledger
does not mind.
"""

import asyncio
import logging
import time

from temporalio import activity
from temporalio.client import Client, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError

from iris import names
from iris.workflows.messages import Answer, Answers, Batch, Envelope, Message

logger = logging.getLogger(__name__)

#: Bounds a batch to some hundred kilobytes, below the 2 MiB that one payload may have.
MAX_BATCH = 500
#: The longest pause between two batches, in seconds.
MAX_PAUSE = 0.1
#: Between two tries while the scheduler or the server is away.
RETRY_EVERY = 0.5


class Outbox:
    """Activities that speak to the scheduler of one cluster; one per process."""

    def __init__(self, client: Client, cluster: str) -> None:
        self._scheduler = client.get_workflow_handle(names.scheduler_workflow(cluster))
        self._waiting: list[tuple[Message, asyncio.Future[Answer]]] = []
        self._sender: asyncio.Task[None] | None = None

    @activity.defn
    async def exchange(self, envelope: Envelope) -> Answer:
        """Say one thing to the scheduler and hear its answer."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((envelope.message, answer))
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send())
        return await answer

    async def _send(self) -> None:
        while self._waiting:
            # Who gave up waiting has asked again or does not want it any more; either way this copy is stale.
            live = [entry for entry in self._waiting if not entry[1].done()]
            batch, self._waiting = live[:MAX_BATCH], live[MAX_BATCH:]
            if not batch:
                continue
            began = time.monotonic()
            try:
                reply = await self._scheduler.execute_update(
                    "exchange", Batch(messages=tuple(message for message, _ in batch)), result_type=Answers
                )
            except (RPCError, WorkflowUpdateRPCTimeoutOrCancelledError, WorkflowUpdateFailedError) as error:
                # Away, restarting, or just continuing as new: the batch goes to the front and is tried again.
                logger.warning("the scheduler does not answer, trying again: %s", error)
                self._waiting = batch + self._waiting
                await asyncio.sleep(RETRY_EVERY)
                continue
            for (_, waiter), answer in zip(batch, reply.answers, strict=True):
                if not waiter.done():
                    waiter.set_result(answer)
            if len(batch) > 1:
                # A crowd: let the next batch grow for another round trip, so that the scheduler has fewer and larger ones.
                await asyncio.sleep(min(MAX_PAUSE, time.monotonic() - began))
