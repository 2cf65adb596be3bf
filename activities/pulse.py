"""The pulse of an attempt: that it lives is said to the server every two seconds, and what the server wants is heard there.

Whoever hears nothing for too long has to take it that the attempt was given up, and may be running elsewhere soon: contact is
what the lease of a program hangs on.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio.client import AsyncActivityCancelledError, AsyncActivityHandle, Client
from temporalio.service import RPCError, RPCStatusCode

from iris.activities.delivery import LAST_WORDS, RETRY_EVERY
from iris.activities.runtimes import shim
from iris.jobs import TaskOutcome
from iris.states import TaskState
from iris.units import format_duration
from iris.workflows.messages import RunTask, TaskProgress

logger = logging.getLogger(__name__)

#: Also how long a cancellation may go unseen.
HEARTBEAT_EVERY = timedelta(seconds=2)
#: An attempt that outlives this is announced; shorter ones cost nothing.
ANNOUNCE_AFTER = timedelta(seconds=1)
#: Without contact for this long the attempt is killed, before the server's minute (`policies.HEARTBEAT`) is over and it may be
#: started elsewhere.
FENCE = timedelta(seconds=50)
RPC_TIMEOUT = timedelta(seconds=10)


class Pulse:
    """The beats of one attempt.

    Args:
        details: what is told of the attempt at each beat.
        alive_until: called with the moment, on the clock of `shim.now`, until which the server counts the attempt in.
        cancelled: called when the server wants the attempt ended.
        given_up: called, with the reason, when the server wants nothing more of it.
        cut_off: called, with the reason, when there has been no contact for so long that the server may have.
        heard: when an earlier agent had contact last; None: the attempt has just been taken.
    """

    def __init__(
        self,
        client: Client,
        handle: AsyncActivityHandle,
        task: RunTask,
        *,
        details: Callable[[], Mapping[str, Any]],
        alive_until: Callable[[float], None],
        cancelled: Callable[[], None],
        given_up: Callable[[str], None],
        cut_off: Callable[[str], None],
        heard: float | None = None,
    ) -> None:
        self._client = client
        self._handle = handle
        self._task = task
        self._details = details
        self._alive_until = alive_until
        self._cancelled = cancelled
        self._given_up = given_up
        self._cut_off = cut_off
        self._over = False
        #: How far the attempt is, and since when; and what of that has been announced.
        self._state: tuple[TaskState, datetime] = (TaskState.BUILDING, datetime.now(UTC))
        self._announced: TaskState | None = None
        self._changed = asyncio.Event()
        #: When the last report that arrived was sent; at first, when the attempt was taken: the server's minute starts then.
        self._heard = shim.now() if heard is None else heard

    @property
    def lease(self) -> float:
        """Until when the server counts the attempt in, on the clock of `shim.now`."""
        return self._heard + FENCE.total_seconds()

    @property
    def state(self) -> TaskState:
        return self._state[0]

    def goes_on(self, state: TaskState, since: datetime) -> None:
        """The attempt has got further."""
        self._state = (state, since)
        self._changed.set()

    async def beat_on(self) -> None:
        """Beat until the attempt is given up or this is cancelled."""
        announcing = asyncio.create_task(self._announce_changes())
        try:
            await asyncio.sleep(ANNOUNCE_AFTER.total_seconds())
            while (left := self.lease - shim.now()) > 0:
                await self.beat(min(RPC_TIMEOUT, timedelta(seconds=left)))
                if self._over:
                    return
                await asyncio.sleep(HEARTBEAT_EVERY.total_seconds())
            self._cut_off(f"no contact with the server for {format_duration(FENCE)}")
        finally:
            announcing.cancel()

    async def beat(self, patience: timedelta = RPC_TIMEOUT) -> None:
        """Say once that the attempt lives."""
        sent = shim.now()
        try:
            await self._handle.heartbeat(dict(self._details()), rpc_timeout=patience)
            self._hear(sent)
        except AsyncActivityCancelledError as error:
            self._hear(sent)
            if error.details is None or error.details.cancel_requested:  # else it is paused or reset, which programs cannot be
                self._cancelled()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                self._over = True
                self._given_up("the server has given it up")
        except Exception:  # whatever it is, it was no contact: the fence must go on counting
            logger.exception("the report of attempt %s failed", self._task.key)

    def _hear(self, sent: float) -> None:
        self._heard = sent
        self._alive_until(self.lease)

    async def _announce_changes(self) -> None:
        await asyncio.sleep(ANNOUNCE_AFTER.total_seconds())
        while True:
            self._changed.clear()
            state, since = self._state
            if state is not self._announced:
                progress = TaskProgress(key=self._task.key, state=state, at=since)
                # Only for show: the attempt goes on whether its job hears of it or not.
                with contextlib.suppress(RPCError):
                    owner = self._client.get_workflow_handle(self._task.owner)
                    await owner.signal("task_progress", progress, rpc_timeout=RPC_TIMEOUT)
                self._announced = state
            await self._changed.wait()


async def report(
    handle: AsyncActivityHandle, outcome: TaskOutcome, key: str, *, hurried: Callable[[], bool] = lambda: False
) -> bool | None:
    """Give the server the outcome, however long that takes; False: it does not want it any more.

    Args:
        hurried: whether one short try is enough; None comes back when that failed.
    """
    while True:
        try:
            await handle.complete(outcome, rpc_timeout=LAST_WORDS if hurried() else RPC_TIMEOUT)
            return True
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                logger.info("nobody waits for the outcome of %s any more", key)
                return False
            if hurried():
                logger.warning("the outcome of %s could not be reported: %s", key, error)
                return None
            logger.warning("the outcome of %s could not be reported, trying again: %s", key, error)
        await asyncio.sleep(RETRY_EVERY.total_seconds())
