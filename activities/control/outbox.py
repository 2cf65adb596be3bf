"""Sends the messages of jobs and slices to the scheduler in batches, so that they do not overload
it.

One workflow can handle a few updates a second, of nearly any size. So each process has *one* update
of the scheduler under way, and puts the messages that arrive meanwhile into the next one. An idle
outbox sends at once. Under load it sends one batch per round trip. The answers come back with the
update, so a task that fits gets its host in the answer to its request.

Messages are delivered at least once. An activity that times out here and is retried sends the same
message twice, and the ledger ignores the second one.

A batch has a limit of bytes and one of messages. A message that is too large for any batch fails
its sender: retries would delay all other messages. A rejected batch is split until the message that
causes the rejection is found, and only that message fails.
"""

import asyncio
import logging
import time
from typing import NamedTuple

from temporalio import activity
from temporalio.client import (
    Client,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError, RPCStatusCode

from iris.messages.scheduler import Answer, Answers, Batch, Envelope, Message
from iris.metrics.declared import (
    EXCHANGE_DURATION,
    EXCHANGE_FAILURES,
    EXCHANGE_MESSAGES,
    PLACEMENTS,
)
from iris.model import names
from iris.model.job.demand_limits import MESSAGE_BYTES, fitting, size_of

logger = logging.getLogger(__name__)

#: The most messages in one batch. `BATCH_BYTES` may allow fewer.
MAX_BATCH = 500
#: The longest pause between two batches, in seconds.
MAX_PAUSE = 0.1
#: The pause between two tries while the scheduler or the server is away, in seconds.
RETRY_EVERY = 0.5
#: The server's status codes for a request with wrong content. FAILED_PRECONDITION is not one of
#: them: it means that the scheduler's workflow task failed, so the same request may succeed later.
REJECTIONS = (RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.OUT_OF_RANGE)


class _Entry(NamedTuple):
    """A message that waits to be sent, and the future that receives its answer."""

    message: Message
    #: The size of the message in bytes.
    size: int
    answer: asyncio.Future[Answer]


class Outbox:
    """Activities that send messages to the scheduler of one cluster; one instance per process."""

    def __init__(self, client: Client, cluster: str) -> None:
        self._scheduler = client.get_workflow_handle(names.scheduler_workflow(cluster))
        self._waiting: list[_Entry] = []
        self._sender: asyncio.Task[None] | None = None

    @activity.defn
    async def exchange(self, envelope: Envelope) -> Answer:
        """Sends one message to the scheduler and returns its answer.

        Raises:
            ApplicationError: the message is too large, the scheduler rejects it, or the scheduler
            has
                not answered in time. In the last case the error is benign: the workflow tries
                again.
        """
        if (size := size_of(envelope)) > MESSAGE_BYTES:
            problem = (
                f"{envelope.message.kind}: {size:,} bytes are too many for the scheduler, which"
                f" takes {MESSAGE_BYTES:,}"
            )
            raise ApplicationError(problem, type="TooLarge", non_retryable=True)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Entry(envelope.message, size, answer))
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send())
        try:
            return await answer
        except asyncio.CancelledError:
            details = activity.cancellation_details() if activity.in_activity() else None
            if details is None or not details.timed_out:
                raise
            late = f"{envelope.message.kind}: the scheduler has not answered in time"
            raise ApplicationError(
                late, type="Late", category=ApplicationErrorCategory.BENIGN
            ) from None

    async def _send(self) -> None:
        while self._waiting:
            # A sender that no longer waits has sent the message again, or does not need the answer.
            live = [entry for entry in self._waiting if not entry.answer.done()]
            batch = fitting(((entry, entry.size) for entry in live), MAX_BATCH)
            self._waiting = live[len(batch) :]
            if not batch:
                continue
            began = time.monotonic()
            await self._deliver(batch)
            if len(batch) > 1:
                # Under load, wait for the time of another round trip, so that the scheduler gets
                # fewer and larger batches.
                await asyncio.sleep(min(MAX_PAUSE, time.monotonic() - began))

    async def _deliver(self, batch: list[_Entry]) -> None:
        """Sends a batch and passes the answers on. If the scheduler does not answer, the batch goes
        back to the front of the queue.
        """
        began = time.monotonic()
        try:
            reply = await self._scheduler.execute_update(
                "exchange",
                Batch(messages=tuple(entry.message for entry in batch)),
                result_type=Answers,
            )
            answers = list(zip(batch, reply.answers, strict=True))
        except Exception as error:
            if (sender := asyncio.current_task()) is not None and sender.cancelling():
                # The process ends, and the client hides that in an error of its own.
                raise asyncio.CancelledError from None
            if not _is_rejection(error):
                # The scheduler is away, restarts, or continues as new: the batch is sent again.
                logger.warning("the scheduler does not answer, trying again: %s", error)
                EXCHANGE_FAILURES.add("unanswered")
                self._waiting = batch + self._waiting
                await asyncio.sleep(RETRY_EVERY)
                return
            EXCHANGE_FAILURES.add("rejected")
            if len(batch) > 1:
                logger.warning("the scheduler rejects a batch, sending its halves: %s", error)
                await self._deliver(batch[: len(batch) // 2])
                await self._deliver(batch[len(batch) // 2 :])
            else:
                _fail(batch[0], error)
            return
        EXCHANGE_DURATION.add(time.monotonic() - began)
        EXCHANGE_MESSAGES.add(len(batch))
        for entry, answer in answers:
            if not entry.answer.done():
                entry.answer.set_result(answer)
                if answer.placement is not None and entry.message.kind == "ask":
                    PLACEMENTS.add("answer")


def _is_rejection(error: Exception) -> bool:
    """Returns whether an error is about the content of a batch; otherwise the same batch may
    succeed later.
    """
    if isinstance(error, RPCError):
        return error.status in REJECTIONS
    if isinstance(error, WorkflowUpdateFailedError):
        # The scheduler continued as new between its acceptance and its answer.
        return not (
            isinstance(error.cause, ApplicationError)
            and error.cause.type == "AcceptedUpdateCompletedWorkflow"
        )
    return not isinstance(error, WorkflowUpdateRPCTimeoutOrCancelledError)


def _fail(entry: _Entry, error: Exception) -> None:
    """Fails the sender of a message that the scheduler rejects. The sender may send it again,
    because a later version of the scheduler may accept it.
    """
    cause = error.cause if isinstance(error, WorkflowUpdateFailedError) else error
    logger.error("the scheduler rejects the message %s: %s", entry.message.kind, cause)
    if not entry.answer.done():
        entry.answer.set_exception(
            ApplicationError(f"the scheduler rejects the message {entry.message.kind}: {cause}")
        )
