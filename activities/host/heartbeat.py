"""Sends the heartbeats of an attempt to the server every two seconds, and acts on the server's answers.

An agent that gets no answer for too long must assume that the server has given the attempt up and may soon start it on another
host. So the lease of a program is renewed only by contact with the server.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio.client import AsyncActivityCancelledError, AsyncActivityHandle, Client
from temporalio.service import RPCError, RPCStatusCode

from iris.activities.host.runtimes import shim
from iris.activities.host.upload import LAST_WORDS, RETRY_EVERY
from iris.messages.task import RunTask, TaskProgress
from iris.model.jobs import TaskOutcome
from iris.model.states import TaskState
from iris.model.units import format_duration

logger = logging.getLogger(__name__)

#: The interval of the heartbeats. Also the longest time until a cancellation is noticed.
HEARTBEAT_EVERY = timedelta(seconds=2)
#: An attempt that lives longer than this is announced to its job; shorter ones cost nothing.
ANNOUNCE_AFTER = timedelta(seconds=1)
#: An attempt without contact for this long is killed. The server's timeout (`policies.HEARTBEAT`, 60 s) ends later; only then can
#: the attempt be started elsewhere.
FENCE = timedelta(seconds=50)
RPC_TIMEOUT = timedelta(seconds=10)


class Heartbeat:
    """The heartbeats of one attempt.

    Args:
        details: returns the details that each heartbeat carries.
        alive_until: called with the end of the lease, on the clock of `shim.now`: until then, the server regards the attempt
            as alive.
        cancelled: called when the server requests a cancellation.
        given_up: called, with the reason, when the server has given the attempt up.
        cut_off: called, with the reason, when there was no contact for so long that the server may have given the attempt up.
        heard: when an earlier agent last had contact; None: the attempt has just been taken.
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
        #: The attempt's state and since when it has it; and the state that was announced last.
        self._state: tuple[TaskState, datetime] = (TaskState.BUILDING, datetime.now(UTC))
        self._announced: TaskState | None = None
        self._changed = asyncio.Event()
        #: When the last heartbeat that arrived was sent. At first: when the attempt was taken, as the server's 60 s start then.
        self._heard = shim.now() if heard is None else heard

    @property
    def lease(self) -> float:
        """The end of the lease, on the clock of `shim.now`: until then, the server regards the attempt as alive."""
        return self._heard + FENCE.total_seconds()

    @property
    def state(self) -> TaskState:
        return self._state[0]

    def goes_on(self, state: TaskState, since: datetime) -> None:
        """Records that the attempt has reached a new state."""
        self._state = (state, since)
        self._changed.set()

    async def beat_on(self) -> None:
        """Sends heartbeats until the attempt is given up, contact is lost for too long, or this is cancelled."""
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
        """Sends one heartbeat and acts on the answer."""
        sent = shim.now()
        try:
            await self._handle.heartbeat(dict(self._details()), rpc_timeout=patience)
            self._hear(sent)
        except AsyncActivityCancelledError as error:
            self._hear(sent)
            # Otherwise the activity was paused or reset, which is not possible for a program.
            if error.details is None or error.details.cancel_requested:
                self._cancelled()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                self._over = True
                self._given_up("the server has given it up")
        except Exception:  # any other error means that there was no contact: the fence must continue to count
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
                # For display only: the attempt continues even if its job does not receive this.
                with contextlib.suppress(RPCError):
                    owner = self._client.get_workflow_handle(self._task.owner)
                    await owner.signal("task_progress", progress, rpc_timeout=RPC_TIMEOUT)
                self._announced = state
            await self._changed.wait()


async def report(
    handle: AsyncActivityHandle, outcome: TaskOutcome, key: str, *, hurried: Callable[[], bool] = lambda: False
) -> bool | None:
    """Reports the outcome to the server, and tries again until the server answers.

    Args:
        hurried: returns True if only one short try is to be made.

    Returns:
        True if the server has the outcome, False if it does not want it any more, None if a hurried try failed.
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
