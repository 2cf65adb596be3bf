"""Sends batches to a pool's workers through Temporal, and sets the futures of the calls to the
answers.
"""

import asyncio
import contextlib
import io
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, ParamSpec, TypeVar

from temporalio.client import ActivityFailureError, ActivityHandle
from temporalio.common import ActivityIDReusePolicy, Priority, RetryPolicy
from temporalio.exceptions import ActivityAlreadyStartedError, ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from iris.client.connect.rpc import Connection
from iris.client.functions.result import NoResult, Raised, restore
from iris.client.pool.batches import Call
from iris.client.pool.errors import CallLost
from iris.client.pool.messages import (
    RETIRE,
    RUN_CALLS,
    Address,
    Mail,
    MessageLost,
    Summary,
    plain,
)
from iris.model.errors import IrisError, Unreachable, first_line
from iris.retrying import retry
from iris.storage.object_store import STORE_ERRORS
from iris.storage.refusals import is_transient, remedy

logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
#: The longest time without a heartbeat from a batch's worker. After this time, Temporal gives the
#: batch to another worker.
HEARTBEAT_TIMEOUT = timedelta(seconds=30)
#: How long a batch may take, including the time that the batch waits for a worker.
TIMEOUT = timedelta(days=30)
#: The retries of a batch whose worker was lost. The maximum number of attempts is the default
#: number of preemptions that a job may have.
RETRIES = RetryPolicy(
    initial_interval=timedelta(seconds=0.2),
    maximum_interval=timedelta(seconds=10),
    maximum_attempts=100,
)
#: A call counts as lost after its process has ended this many times during the call.
MAX_CRASHES = 3
#: The shortest and the longest delay between two attempts while the service or the store does not
#: answer.
RETRY_INTERVAL, LONGEST_RETRY_INTERVAL = timedelta(seconds=0.2), timedelta(seconds=5)
#: The shortest time between two warnings that the service does not answer, in seconds.
WARNING_INTERVAL = 60.0
#: How long a pool tries to write or read the messages of a batch while the object store does not
#: answer; then the calls are lost (`CallLost`). Requests to the Temporal service have no such
#: limit: the service stores the batch, so the calls are not lost while it does not answer.
STORE_TIMEOUT = timedelta(minutes=15)
#: How long the shutdown of a pool waits for the deletion of the pool's files in the object store,
#: in seconds. After this time, the shutdown ends, and some files may remain.
CLEAN_TIMEOUT = 5.0
#: The status codes of the service for a batch that has already ended. After a lost connection, the
#: sender may not know that the batch has ended.
_ENDED = (RPCStatusCode.NOT_FOUND, RPCStatusCode.FAILED_PRECONDITION)
#: The highest priority. With it, requests to retire a worker overtake waiting batches.
_FIRST = Priority(priority_key=1)


class Answered(NamedTuple):
    """The outcome of a batch that was sent to a worker."""

    #: The number of calls that have an answer.
    calls: int
    #: How long the worker ran calls of the batch, in seconds.
    seconds: float
    #: The calls that must be sent again.
    again: Sequence[Call]


class Exchange:
    """Sends batches on a pool's task queue."""

    def __init__(self, connection: Connection, queue: str, mail: Mail) -> None:
        self._connection = connection
        self._client = plain(connection.client)
        self._queue = queue
        self._mail = mail
        self._sent = 0
        self._under_way: dict[str, ActivityHandle[Any]] = {}
        self._next_warning = 0.0

    async def run(self, batch: Sequence[Call]) -> Answered:
        """Runs the calls of one function, and sets the futures of the calls that have an answer.
        Waits while the service does not answer.

        Raises:
            IrisError: the batch is lost.
        """
        try:
            return await self._run(batch)
        except IrisError:
            raise
        except Exception as error:  # a program waits for the calls
            problem = f"{type(error).__name__}: {first_line(error)}"
            raise CallLost(
                f"the pool could not send {batch[0].name} or read its result: {problem}"
            ) from error

    async def _run(self, batch: Sequence[Call]) -> Answered:
        number = self._next_number()
        call, answer = Address(self._queue, number, "call"), Address(self._queue, number, "answer")
        with self._store_errors(f"the arguments of {batch[0].name} are not sent"):
            message = await _trying(self._mail.send)(
                call, [batch[0].function, *(each.arguments for each in batch)]
            )
        reply = await self._execute(f"{self._queue}/{number}", message)
        try:
            with self._store_errors(f"{batch[0].name} was run, but its result cannot be read"):
                head, *answers = await _trying(self._mail.read)(answer, reply)
        except MessageLost as error:
            raise CallLost(f"{batch[0].name} was run, but its result is lost: {error}") from None
        summary = Summary.model_validate_json(head)
        for each, result in zip(batch, answers, strict=False):
            settle(each, result)
        rest = list(batch[len(answers) :])
        if rest and summary.crash:
            rest[0].crashes += 1
            if rest[0].crashes >= MAX_CRASHES:
                lost = rest.pop(0)
                lost.future.set_exception(
                    CallLost(
                        f"{lost.name} was run {MAX_CRASHES} times; the last time, {summary.crash}"
                    )
                )
        with contextlib.suppress(*STORE_ERRORS):  # `clean` removes the messages later
            await self._mail.remove(call, message)
            await self._mail.remove(answer, reply)
        return Answered(len(answers), summary.seconds, rest)

    async def retire(self, workers: int) -> None:
        """Ends this number of workers, each when it has no call."""
        for _ in range(workers):
            await self._start(RETIRE, f"{self._queue}/{self._next_number()}", [])

    async def drop(self) -> None:
        """Ends the batches that have no answer yet. No worker gets them any more."""

        @self._while_unreachable
        async def drop(handle: ActivityHandle[Any]) -> None:
            with self._connection.rpc_errors():
                try:
                    await handle.terminate(reason="the pool was shut down")
                except RPCError as error:
                    if error.status not in _ENDED:
                        raise

        for handle in list(self._under_way.values()):
            await drop(handle)

    async def clean(self) -> None:
        """Removes the pool's messages from the store, if the store answers."""
        with contextlib.suppress(TimeoutError, *STORE_ERRORS):
            async with asyncio.timeout(CLEAN_TIMEOUT):
                await self._mail.remove_all(self._queue)

    @contextlib.contextmanager
    def _store_errors(self, problem: str) -> Iterator[None]:
        """Converts errors of the store to `CallLost`."""
        try:
            yield
        except STORE_ERRORS as error:
            why, url = first_line(error), self._mail.url
            if todo := remedy(error):
                text = f"{problem}: the store {url} refuses the request: {why}; {todo}"
                raise CallLost(text) from error
            minutes = STORE_TIMEOUT // timedelta(minutes=1)
            raise CallLost(
                f"{problem}: the store {url} has failed for {minutes} min: {why}; submit the call"
                " again"
            ) from error

    def _next_number(self) -> int:
        self._sent += 1
        return self._sent

    async def _execute(self, id_: str, message: bytes) -> bytes:
        handle = await self._start(RUN_CALLS, id_, [message])
        self._under_way[id_] = handle

        @self._while_unreachable
        async def result() -> bytes:
            with self._connection.rpc_errors():
                reply: bytes = await handle.result()
                return reply

        try:
            return await result()
        except ActivityFailureError as error:
            cause = error.cause
            why = (
                cause.message if isinstance(cause, ApplicationError) else first_line(cause or error)
            )
            raise CallLost(f"the workers of the pool did not run the call: {why}") from None
        finally:
            del self._under_way[id_]

    async def _start(
        self, activity: str, id_: str, arguments: Sequence[bytes]
    ) -> ActivityHandle[Any]:
        """Starts an activity once, also if the service accepts it and then does not answer."""

        @self._while_unreachable
        async def start() -> ActivityHandle[Any]:
            with self._connection.activity_start():
                try:
                    return await self._client.start_activity(
                        activity,
                        args=arguments,
                        id=id_,
                        task_queue=self._queue,
                        result_type=bytes,
                        schedule_to_close_timeout=TIMEOUT,
                        heartbeat_timeout=HEARTBEAT_TIMEOUT,
                        retry_policy=RETRIES,
                        id_reuse_policy=ActivityIDReusePolicy.REJECT_DUPLICATE,
                        priority=Priority.default if arguments else _FIRST,
                    )
                except ActivityAlreadyStartedError:
                    return self._client.get_activity_handle(id_, result_type=bytes)

        return await start()

    def _while_unreachable(self, call: Callable[P, T]) -> Callable[P, T]:
        """Decorates a call that is repeated without a limit while the service does not answer. A
        warning has the reason, because the service may never accept the call.
        """

        def repeats(error: Exception) -> bool:
            if not isinstance(error, Unreachable):
                return False
            if (now := time.monotonic()) >= self._next_warning:
                self._next_warning = now + WARNING_INTERVAL
                logger.warning("the pool tries again: %s", error)
            return True

        return retry(repeats, every=RETRY_INTERVAL, up_to=LONGEST_RETRY_INTERVAL)(call)


def _may_reach_the_store(error: Exception) -> bool:
    return isinstance(error, STORE_ERRORS) and is_transient(error)


_trying = retry(
    _may_reach_the_store, every=RETRY_INTERVAL, up_to=LONGEST_RETRY_INTERVAL, timeout=STORE_TIMEOUT
)


def settle(call: Call, result: bytes) -> None:
    """Sets a call's future to the value or the error of the function."""
    try:
        value = restore(io.BytesIO(result), f"{call.name}")
    except NoResult as error:
        call.future.set_exception(error)
        return
    # The methods of the value's classes may raise anything, and the call has to end.
    except BaseException as error:
        problem = NoResult(
            f"the result of {call.name} cannot be restored here: {type(error).__name__}:"
            f" {first_line(error)}"
        )
        problem.__cause__ = error
        call.future.set_exception(problem)
        return
    if isinstance(value, Raised):
        call.future.set_exception(value.exception(call.name))
    else:
        call.future.set_result(value)
