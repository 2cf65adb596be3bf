"""A pool's worker: it runs the calls of the pool in a task of the pool's job. The calls run in a
process of their own, with the job's interpreter.
"""

import asyncio
import os
import signal
import time
from datetime import timedelta
from pathlib import Path

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import PollerBehaviorSimpleMaximum, Worker

from iris.client.client import AsyncIrisClient
from iris.client.pool import frames
from iris.client.pool.child import Child, Crashed
from iris.client.pool.messages import (
    REFUSED,
    RETIRE,
    RUN_CALLS,
    Address,
    Mail,
    MessageLost,
    PoolFile,
    Summary,
    plain,
)
from iris.concurrency import beside
from iris.model import names
from iris.model.errors import IrisError, Rejected, Unreachable, first_line
from iris.retrying import retry
from iris.storage.object_store import STORE_ERRORS, Store
from iris.storage.refusals import remedy

#: The time between two heartbeats of a batch. After `exchange.HEARTBEAT_TIMEOUT` without a
#: heartbeat, Temporal gives the batch to another worker.
HEARTBEAT_INTERVAL = timedelta(seconds=5)
#: How long a new worker waits for the service and the store.
CONNECT_TIMEOUT = timedelta(minutes=5)
#: How long a worker that ends may take to send its last answer.
LAST_ANSWER = timedelta(seconds=5)
#: The exit code after SIGTERM. It is not 0, because the task has not finished.
STOPPED = 128 + signal.SIGTERM


class PoolWorker:
    """The activities of one worker. It runs one batch at a time."""

    def __init__(self, pool: PoolFile, mail: Mail, child: Child) -> None:
        self._pool = pool
        self._mail = mail
        self._child = child
        self._stopped = asyncio.Event()
        self._busy = False
        self._last_used = time.monotonic()
        #: The exit code of the worker, as a future. It is set when the worker must end.
        self.end: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @activity.defn(name=RUN_CALLS)
    async def run_calls(self, message: bytes) -> bytes:
        """Runs the calls of a batch until one of them crashes its process, the batch takes too
        long, or the task is stopped.
        """
        number = int(activity.info().activity_id.rpartition("/")[2])
        self._busy = True
        try:
            async with beside(_beat()):
                function_and_calls = await self._mail.read(
                    Address(self._pool.queue, number, "call"), message
                )
                started = time.monotonic()
                summary, answers = Summary(), list[bytes]()
                try:
                    async for answer in self._child.run(
                        frames.join(function_and_calls), len(function_and_calls) - 1, self._stopped
                    ):
                        answers.append(answer)
                except Crashed as crash:
                    summary.crash = str(crash)
                summary.seconds = time.monotonic() - started
                parts = [summary.model_dump_json().encode(), *answers]
                return await self._mail.send(Address(self._pool.queue, number, "answer"), parts)
        except (Rejected, MessageLost) as error:
            raise ApplicationError(str(error), type=REFUSED, non_retryable=True) from None
        except STORE_ERRORS as error:
            why = first_line(error)
            if todo := remedy(error):  # every worker has the same store
                problem = f"the store {self._mail.url} refuses a worker of the pool: {why}; {todo}"
                raise ApplicationError(problem, type=REFUSED, non_retryable=True) from None
            raise ApplicationError(
                f"the store does not answer a worker of the pool: {why}"
            ) from None
        finally:
            self._busy, self._last_used = False, time.monotonic()

    @activity.defn(name=RETIRE)
    async def retire(self) -> None:
        """Ends this worker, because the pool was resized to fewer workers."""
        self.finish(0)

    def stop(self) -> None:
        """Ends the worker now. Other workers get the calls that have not ended."""
        self._stopped.set()
        self.finish(STOPPED)

    def finish(self, code: int) -> None:
        if not self.end.done():
            self.end.set_result(code)

    async def end_when_idle(self) -> None:
        """Ends the worker after the pool's idle timeout without calls."""
        while True:
            left = (
                self._pool.idle_timeout
                if self._busy
                else self._last_used + self._pool.idle_timeout - time.monotonic()
            )
            if left <= 0:
                return self.finish(0)
            await asyncio.sleep(left)


async def _beat() -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(HEARTBEAT_INTERVAL.total_seconds())


async def work(python: str) -> int:
    """Runs calls until the worker ends, and returns the exit code of the task.

    Args:
        python: the path of the job's interpreter.

    Raises:
        IrisError: this is not a task of a pool, or its cluster does not answer.
    """
    if (directory := os.environ.get(names.ENV_CALL_DIR)) is None:
        raise IrisError(
            f"this is not a task of a pool: {names.ENV_CALL_DIR} is not set; to make a pool, use"
            " iris.WorkerPool"
        )
    pool = PoolFile.read(Path(directory))

    @retry(Unreachable, every=1, up_to=10, timeout=CONNECT_TIMEOUT)
    async def connect() -> AsyncIrisClient:
        return await AsyncIrisClient.connect()

    client = await connect()
    child = Child(python, Path(directory))
    worker = PoolWorker(pool, Mail(Store(client.record.store), pool.key), child)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop)
    idle = asyncio.create_task(worker.end_when_idle())
    try:
        async with Worker(
            plain(client.connection.client),
            task_queue=pool.queue,
            activities=[worker.run_calls, worker.retire],
            max_concurrent_activities=1,
            activity_task_poller_behavior=PollerBehaviorSimpleMaximum(1),
            max_heartbeat_throttle_interval=HEARTBEAT_INTERVAL,
            graceful_shutdown_timeout=LAST_ANSWER,
            identity=f"{os.environ[names.ENV_TASK_ID]}@{os.environ[names.ENV_ATTEMPT]}",
        ):
            return await worker.end
    finally:
        idle.cancel()
        await child.close()
