"""Sends the messages of jobs and slices to the scheduler in batches, so that they do not overload
it.

One workflow can handle a few updates a second, of nearly any size. So each process has *one* update
of the scheduler under way, and puts the messages that arrive meanwhile into the next one. An idle
outbox sends at once. While messages arrive faster than the scheduler answers, it waits some tens of
milliseconds for more of them before it sends the next batch. The answers come back with the update,
so a task that fits gets its host in the answer to its request.

Under load, the answer also has the placements of gangs that waited, and the outbox signals them.
The next batch confirms that to the scheduler, which signals what is not confirmed itself. If a gang
will probably get hosts within seconds, the outbox keeps the answer to its request until then. The
gang's workflow does not notice that it had to wait, which saves a signal and a workflow task.

Messages are delivered at least once. An activity that times out here and is retried sends the same
message twice, and the ledger ignores the second one.

A batch has a limit of bytes and one of messages. A message that is too large for any batch fails
its sender: retries would delay all other messages. A rejected batch is split until the message that
causes the rejection is found, and only that message fails.
"""

import asyncio
import contextlib
import logging
import math
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from temporalio import activity
from temporalio.client import (
    Client,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError, RPCStatusCode

from iris.activities.control.notifier import Notifier
from iris.messages.scheduler import Amend, Answer, Answers, Ask, Batch, Envelope, Message, Release
from iris.metrics.declared import (
    EXCHANGE_DURATION,
    EXCHANGE_FAILURES,
    EXCHANGE_MESSAGES,
    PLACEMENTS,
)
from iris.model import names
from iris.model.job.demand_limits import MESSAGE_BYTES, fitting, size_of
from iris.model.job.requests import Placement, Request
from iris.model.job.spec import Hold
from iris.scheduling.placement.refusals import IN_QUEUE

logger = logging.getLogger(__name__)

#: The maximum number of messages in one batch. `BATCH_BYTES` may allow fewer.
MAX_BATCH = 500
#: How long the outbox counts as busy after a message has arrived while a batch was on its way to
#: the scheduler, in seconds.
BUSY = 0.5
#: The longest pause between two batches of a busy outbox, in seconds.
MAX_PAUSE = 0.1
#: The longest time that a busy outbox keeps messages that cannot give hosts to a waiting gang, in
#: seconds: requests while no host is free, and releases while no gang waits.
UNHURRIED = 0.2
#: The longest time from a request to its answer, in seconds, if the outbox delays the answer
#: because hosts are likely to become free. While it waits for the answer, the gang's workflow
#: answers no queries.
KEEP = 2.5
#: The maximum number of answers that the outbox delays at the same time. Each delayed answer
#: occupies a slot for workflow tasks, and a worker has a hundred slots.
MOST_KEPT = 32
#: The period over which placements are counted to estimate how long a gang will wait, in seconds.
RATE_OVER = 2.0
#: The least number of placements within `RATE_OVER` for which the wait of a gang is estimated. With
#: fewer, the wait counts as unknown.
LEAST_PLACED = 4
#: How long the outbox waits for a batch of messages that can also tell the scheduler which
#: placements were signalled to their owners, in seconds. After this time, a batch without messages
#: tells this.
CONFIRM_AFTER = 2.0
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
    #: When the message arrived, by the event loop's clock.
    arrived: float
    #: True if the outbox may delay the answer to this message (`Envelope.patient`).
    patient: bool


class _Kept(NamedTuple):
    """A request that got no hosts, and whose answer is delayed."""

    entry: _Entry
    #: The scheduler's answer that the request has no hosts yet. The request gets it if the delay
    #: ends without a placement.
    answer: Answer
    timer: asyncio.TimerHandle


class Outbox:
    """Activities that send messages to the scheduler of one cluster; one instance per process.

    Args:
        notifier: signals placements to their owners.
        hold_of: returns the hold for the request of a new job that must not get hosts yet, for
            instance because of a budget; None if the job may get hosts.
    """

    def __init__(
        self,
        client: Client,
        cluster: str,
        notifier: Notifier,
        hold_of: Callable[[Request], Hold | None] = lambda _: None,
    ) -> None:
        self._notifier = notifier
        self._cluster = cluster
        self._hold_of = hold_of
        self._scheduler = client.get_workflow_handle(names.scheduler_workflow(cluster))
        self._waiting: list[_Entry] = []
        self._sender: asyncio.Task[None] | None = None
        self._id = uuid.uuid4().hex
        self._pace = _Pace()
        #: The keys of placements that were signalled to their owners. The next batch confirms them
        #: to the scheduler.
        self._signalled: list[str] = []
        #: Whether the answer to the last batch may have been lost. The next batch says so, and the
        #: scheduler itself then signals the placements that no control plane has confirmed.
        self._again = False
        #: Whether to send a batch even if no message waits, to confirm signals to the scheduler.
        self._must_confirm = False
        self._signals: set[asyncio.Task[None]] = set()
        #: The requests that got no hosts, and whose answers are delayed, by key.
        self._kept: dict[str, _Kept] = {}

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
                f"the message `{envelope.message.kind}` has {size:,} bytes; the scheduler takes at"
                f" most {MESSAGE_BYTES:,}"
            )
            raise ApplicationError(problem, type="TooLarge", non_retryable=True)
        held = await self._hold_if_new(envelope.message)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Entry(envelope.message, size, answer, _now(), envelope.patient))
        self._waiting += held
        self._pace.message_arrived()
        self._start()
        try:
            return await answer
        except asyncio.CancelledError:
            details = activity.cancellation_details() if activity.in_activity() else None
            if details is None or not details.timed_out:
                raise
            late = (
                f"the scheduler has not answered the message `{envelope.message.kind}` in time; the"
                " message is sent again"
            )
            raise ApplicationError(
                late, type="Late", category=ApplicationErrorCategory.BENIGN
            ) from None

    async def _hold_if_new(self, message: Message) -> list[_Entry]:
        """Holds the job of a request that must not have hosts yet. Returns the message that holds
        the request itself, if it is such a request. In the same batch as the request, it leaves the
        scheduler no time to place it. The job's own messages about the request are later.

        Raises:
            RPCError: the service does not answer.
        """
        if not isinstance(message, Ask) or names.attempt_of_key(message.request.key) > 1:
            return []
        request = message.request
        if (hold := self._hold_of(request)) is None:
            return []
        await self._notifier.hold(self._cluster, request.task, hold)
        amend = Amend(
            key=request.key, band=request.band, held=True, changed_at=request.submitted_at
        )
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        return [_Entry(amend, size_of(amend), answer, _now(), patient=False)]

    def _start(self) -> None:
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send())

    async def _send(self) -> None:
        while self._waiting or self._must_confirm:
            await self._pace.gather(self._waiting)
            # A sender that no longer waits has sent the message again, or does not need the answer.
            live = [entry for entry in self._waiting if not entry.answer.done()]
            batch = fitting(((entry, entry.size) for entry in live), MAX_BATCH)
            self._waiting = live[len(batch) :]
            signalled, self._signalled = self._signalled[:MAX_BATCH], self._signalled[MAX_BATCH:]
            self._must_confirm = bool(self._signalled)
            if not batch and not signalled:
                continue
            with self._pace.exchange():
                await self._deliver(batch, tuple(signalled))

    async def _deliver(self, batch: list[_Entry], signalled: tuple[str, ...]) -> None:
        """Sends a batch and passes the answers on. If the scheduler does not answer, the batch goes
        back to the front of the queue.
        """
        began = time.monotonic()
        try:
            reply = await self._scheduler.execute_update(
                "exchange",
                Batch(
                    messages=tuple(entry.message for entry in batch),
                    sender=self._id,
                    signals=self._pace.is_busy() or bool(self._kept),
                    signalled=signalled,
                    again=self._again,
                ),
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
                self._signalled = [*signalled, *self._signalled]
                self._again = True
                await asyncio.sleep(RETRY_EVERY)
                return
            EXCHANGE_FAILURES.add("rejected")
            if len(batch) > 1:
                logger.warning("the scheduler rejects a batch, sending its halves: %s", error)
                await self._deliver(batch[: len(batch) // 2], signalled)
                await self._deliver(batch[len(batch) // 2 :], ())
            elif batch:
                _fail(batch[0], error)
            return
        self._again = False
        EXCHANGE_DURATION.add(time.monotonic() - began)
        EXCHANGE_MESSAGES.add(len(batch))
        self._pace.answered(batch, reply)
        if not reply.alone:
            for key in tuple(self._kept):
                self._answer_kept(key)
        for entry, answer in answers:
            if isinstance(entry.message, Ask):
                # The gang's workflow no longer waits for the answer to an earlier request.
                self._answer_kept(entry.message.request.key)
            if reply.alone and self._is_kept_back(entry, answer, reply.waiting):
                self._keep(entry, answer)
            elif not entry.answer.done():
                entry.answer.set_result(answer)
                if answer.placement is not None and entry.message.kind == "ask":
                    PLACEMENTS.add("answer")
        self._pass_on(reply.placed)

    def _is_kept_back(self, entry: _Entry, answer: Answer, waiting: int) -> bool:
        """Returns whether to keep the answer, because the gang will probably get hosts in time. If
        there were other control planes, one of them might get its placement.
        """
        return (
            entry.patient
            and isinstance(entry.message, Ask)
            and answer.refusal is not None
            and answer.refusal.code in IN_QUEUE
            and len(self._kept) < MOST_KEPT
            and self._pace.is_busy()
            and _now() + self._pace.wait_of(waiting) < entry.arrived + KEEP
        )

    def _keep(self, entry: _Entry, answer: Answer) -> None:
        assert isinstance(entry.message, Ask)
        key, loop = entry.message.request.key, asyncio.get_running_loop()
        timer = loop.call_at(entry.arrived + KEEP, self._answer_kept, key)
        self._kept[key] = _Kept(entry, answer, timer)

    def _answer_kept(self, key: str, placement: Placement | None = None) -> bool:
        """Ends the keeping of an answer: gives the placement to the request, or else the answer
        that is kept. Returns whether the request has got it.
        """
        kept = self._kept.pop(key, None)
        if kept is None:
            return False
        kept.timer.cancel()
        if kept.entry.answer.done():
            return False
        answer = kept.answer if placement is None else Answer(placement=placement)
        kept.entry.answer.set_result(answer)
        return True

    def _pass_on(self, placed: Sequence[Placement]) -> None:
        """Gives the placements to the gangs whose answers are kept, and signals the others."""
        others = []
        for placement in placed:
            if self._answer_kept(placement.key, placement):
                # If this answer is lost, the gang's workflow sends its request again.
                self._signalled.append(placement.key)
                PLACEMENTS.add("answer")
            else:
                others.append(placement)
        if placed:
            task = asyncio.create_task(self._signal(placed, others))
            self._signals.add(task)
            task.add_done_callback(self._signals.discard)

    async def _signal(self, passed_on: Sequence[Placement], placed: Sequence[Placement]) -> None:
        """Signals placements to their owners, and confirms all that were passed on."""
        unsent = await self._notifier.pass_on(placed)
        self._signalled += [each.key for each in placed if each.key not in unsent]
        await asyncio.sleep(CONFIRM_AFTER)
        if any(each.key in self._signalled for each in passed_on):
            # There was no other batch meanwhile.
            self._must_confirm = True
            self._start()


class _Pace:
    """Decides how long the outbox gathers messages for its next batch.

    The outbox is busy if messages have lately arrived during an exchange. An outbox whose messages
    come one after the other is not busy, and sends each at once.
    """

    def __init__(self) -> None:
        self._under_way = False
        self._busy_until = 0.0
        #: The end of the last exchange with the scheduler, by the event loop's clock, and the
        #: duration of that exchange, both in seconds.
        self._ended, self._took = 0.0, 0.0
        #: False if the last request got no hosts. Further requests then wait for others to share
        #: a batch. Releases are sent at once, because a gang may wait for the released hosts.
        self._has_room = True
        #: False in a full cluster in which hosts become free one by one: a pause before the next
        #: batch would leave these hosts idle.
        self._may_pause = True
        #: The times of the placements within the last `RATE_OVER` seconds, by the event loop's
        #: clock.
        self._placed: deque[float] = deque()
        self._arrival = asyncio.Event()

    def message_arrived(self) -> None:
        self._arrival.set()
        if self._under_way:
            self._busy_until = _now() + BUSY

    def is_busy(self) -> bool:
        return _now() < self._busy_until

    @contextlib.contextmanager
    def exchange(self) -> Iterator[None]:
        """Measures one exchange."""
        began, self._under_way = _now(), True
        try:
            yield
        finally:
            self._ended, self._under_way = _now(), False
            self._took = self._ended - began

    def answered(self, batch: Sequence[_Entry], reply: Answers) -> None:
        """Records the answers to a batch."""
        asks = [
            answer.placement is not None
            for entry, answer in zip(batch, reply.answers, strict=True)
            if isinstance(entry.message, Ask)
        ]
        if asks:
            self._has_room = asks[-1]
        released = sum(isinstance(entry.message, Release) for entry in batch)
        self._may_pause = self._has_room or released > 1
        self._placed.extend([_now()] * (sum(asks) + len(reply.placed)))
        while self._placed and self._placed[0] < _now() - RATE_OVER:
            self._placed.popleft()

    def wait_of(self, waiting: int) -> float:
        """Returns how long the last of so many waiting gangs will probably wait, in seconds;
        infinity if that is not known.
        """
        lately = len(self._placed)
        return waiting * RATE_OVER / lately if lately >= LEAST_PLACED else math.inf

    async def gather(self, waiting: Sequence[_Entry]) -> None:
        """Waits until the next batch is due.

        Args:
            waiting: the messages, to which others are added meanwhile.
        """
        while self.is_busy() and len(waiting) < MAX_BATCH:
            left = self._due(waiting) - _now()
            if left <= 0:
                return
            self._arrival.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._arrival.wait(), left)

    def _due(self, waiting: Sequence[_Entry]) -> float:
        """Returns when the next batch is due: when there is an urgent message, and after a pause as
        long as the last exchange. There is no pause in a full cluster in which hosts become free
        one by one: they would be idle for nothing.
        """
        due = self._ended + (min(MAX_PAUSE, self._took) if self._may_pause else 0.0)
        if not waiting or any(self._is_urgent(entry.message) for entry in waiting):
            return due
        return max(due, waiting[0].arrived + UNHURRIED)

    def _is_urgent(self, message: Message) -> bool:
        match message:
            case Ask():
                return self._has_room
            case Release():
                return not self._has_room
        return True


def _now() -> float:
    return asyncio.get_running_loop().time()


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
