"""Sends the messages about an attempt to the server: heartbeats every two seconds or more, the
outcome, and the end of its placement.

An agent that gets no answer for too long must assume that the server has given the attempt up and
may soon start it on another host. So the lease of a program is renewed only by contact with the
server.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio.client import AsyncActivityCancelledError, AsyncActivityHandle, Client
from temporalio.service import RPCError, RPCStatusCode

from iris.activities.host.attempt.host_context import HostContext
from iris.activities.host.attempt.lifecycle import Event
from iris.activities.host.files.upload import FIRST_RETRY_DELAY, HURRIED_TIMEOUT
from iris.activities.host.runtimes.shim import shim
from iris.messages.task import RunTask, TaskProgress
from iris.metrics.declared import ATTEMPTS_DROPPED, ATTEMPTS_ENDED
from iris.model import names
from iris.model.host.idle_gpus import IdleReport
from iris.model.job.attempts import TaskOutcome
from iris.model.states import TaskState
from iris.model.units import format_duration
from iris.retrying import retry

#: A job gets no messages about an attempt until the attempt has run for this long, because each
#: message adds events to the job's history.
ANNOUNCE_AFTER = timedelta(seconds=1)
#: The shortest time between two messages to a job about the steps of a preparation.
ANNOUNCE_EVERY = timedelta(seconds=3)
#: The maximum number of heartbeats that all attempts on one host send together in a second.
HEARTBEATS_PER_SECOND = 25
RPC_TIMEOUT = timedelta(seconds=10)


class Heartbeat:
    """The heartbeats of one attempt.

    Args:
        log: the attempt's log.
        details: returns the details that each heartbeat carries.
        running: returns the number of attempts on this host.
        renew_lease: called with the new end of the lease, on the clock of `shim.now`.
        on_event: called with CANCEL, GIVEN_UP or CONTACT_LOST, and the reason.
        last_contact: the time at which the server handed out the attempt or answered an earlier
            agent, on the clock of `shim.now`.
    """

    def __init__(
        self,
        client: Client,
        handle: AsyncActivityHandle,
        task: RunTask,
        task_token: bytes,
        log: "logging.LoggerAdapter[logging.Logger]",
        *,
        details: Callable[[], Mapping[str, Any]],
        running: Callable[[], int],
        renew_lease: Callable[[float], None],
        on_event: Callable[[Event, str], object],
        last_contact: float,
    ) -> None:
        self._client = client
        self._handle = handle
        self._task = task
        self._task_token = task_token
        self._log = log
        self._details = details
        self._running = running
        self._renew_lease = renew_lease
        self._on_event = on_event
        self._given_up = False
        #: The attempt's state, and the time at which the state began.
        self._state: tuple[TaskState, datetime] = (TaskState.BUILDING, datetime.now(UTC))
        #: The task's state, the step of its preparation and the report about idle GPUs in the last
        #: message to the job; None before the first message.
        self._announced: tuple[TaskState, str, IdleReport | None] | None = None
        #: The present step of the preparation, or the reason why the attempt waits after the
        #: program's end. The task's status shows it. Empty during steps that do not take long.
        self._doing = ""
        #: The report that the task's GPUs are idle; None while they are not.
        self._idle: IdleReport | None = None
        self._changed = asyncio.Event()
        self._moved = asyncio.Event()
        #: The time at which the last successful heartbeat was sent; before the first heartbeat, the
        #: time at which the server gave the attempt to this host. The server may start the attempt
        #: elsewhere only after the heartbeat timeout, which is longer than the lease
        #: (`Contact.heartbeat_timeout`).
        self._last_contact = last_contact

    @property
    def lease(self) -> float:
        """The end of the lease, on the clock of `shim.now`. Until then, the server regards the
        attempt as alive.
        """
        return self._last_contact + self._task.contact.lease

    @property
    def state(self) -> TaskState:
        return self._state[0]

    def moved_to(self, state: TaskState, since: datetime) -> None:
        """Records that the attempt has reached a new state."""
        self._state, self._doing = (state, since), ""
        self._moved.set()
        self._changed.set()

    def prepares(self, doing: str) -> None:
        """Records the present step of the preparation, or the reason why the attempt waits after
        the program's end.

        Args:
            doing: empty if the step does not take long.
        """
        self._doing = doing
        self._changed.set()

    def is_idle(self, report: IdleReport | None, doing: str) -> None:
        """Records that the task's GPUs have been idle for long enough, or (None) are used again.

        Args:
            doing: as for `prepares`.
        """
        self._idle = report
        self.prepares(doing)

    async def beat_on(self) -> None:
        """Sends heartbeats until the server gives the attempt up, or there was no contact for too
        long.
        """
        await asyncio.sleep(ANNOUNCE_AFTER.total_seconds())
        announcing = asyncio.create_task(self._announce_changes())
        try:
            while (left := self.lease - shim.now()) > 0:
                await self.beat(min(RPC_TIMEOUT, timedelta(seconds=left)))
                if self._given_up:
                    return
                await asyncio.sleep(
                    self._task.contact.slowed(self._running() / HEARTBEATS_PER_SECOND).interval
                )
            lease = format_duration(timedelta(seconds=self._task.contact.lease))
            ATTEMPTS_DROPPED.add("no_contact")
            self._on_event(Event.CONTACT_LOST, f"no contact with the server for {lease}")
        finally:
            announcing.cancel()

    async def beat(self, timeout: timedelta = RPC_TIMEOUT) -> None:
        """Sends one heartbeat and acts on the answer."""
        sent = shim.now()
        try:
            await self._handle.heartbeat(dict(self._details()), rpc_timeout=timeout)
            self._contact(sent)
        except AsyncActivityCancelledError as error:
            self._contact(sent)
            # Other details say that the activity was paused or reset, which a program cannot be.
            if error.details is None or error.details.cancel_requested:
                self._on_event(Event.CANCEL, "cancelled")
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                self._given_up = True
                ATTEMPTS_DROPPED.add("given_up")
                self._on_event(Event.GIVEN_UP, "the server does not wait for the attempt any more")
        except Exception:
            # After any other error there was no contact, so the lease is not renewed.
            self._log.exception("a heartbeat of the attempt failed")

    def _contact(self, sent: float) -> None:
        self._last_contact = sent
        self._renew_lease(self.lease)

    async def _announce_changes(self) -> None:
        while True:
            self._changed.clear()
            self._moved.clear()
            (state, since), doing, idle = self._state, self._doing, self._idle
            if (state, doing, idle) != self._announced:
                progress = TaskProgress(
                    key=self._task.key, state=state, at=since, reason=doing, idle=idle
                )
                try:
                    owner = self._client.get_workflow_handle(self._task.owner)
                    await owner.signal(
                        "task_progress",
                        progress,
                        rpc_metadata={names.TASK_TOKEN_METADATA: self._task_token},
                        rpc_timeout=RPC_TIMEOUT,
                    )
                except RPCError:
                    # The others are for display only: the attempt continues without them.
                    if idle is not None or (self._announced and self._announced[2] is not None):
                        await asyncio.sleep(ANNOUNCE_EVERY.total_seconds())
                        self._changed.set()
                        continue
                self._announced = (state, doing, idle)
                # Each announcement adds some events to the job's history.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._moved.wait(), ANNOUNCE_EVERY.total_seconds())
            await self._changed.wait()


def handed_out(waited: timedelta, lease: float) -> float:
    """Returns the time at which the server handed out an attempt, on the clock of `shim.now`. The
    server's timeout and the lease start then.

    The clocks of server and host may differ, so `waited` may be wrong. The rest of the lease is
    always enough for one heartbeat, and the answer to that decides.

    Args:
        waited: the time since the server handed out the attempt, by the clocks of server and host.
        lease: the length of the lease, in seconds.
    """
    return shim.now() - max(0.0, min(waited.total_seconds(), lease - RPC_TIMEOUT.total_seconds()))


@retry(RPCError, every=FIRST_RETRY_DELAY)
async def report(
    handle: AsyncActivityHandle,
    outcome: TaskOutcome,
    log: "logging.LoggerAdapter[logging.Logger]",
    *,
    hurried: Callable[[], bool] = lambda: False,
) -> Event:
    """Reports the outcome to the server, and tries again until the server answers.

    Args:
        hurried: returns True if one short try must be enough.

    Returns:
        ACCEPTED, REFUSED (the server does not wait for the outcome any more), or UNREPORTED (the
        short try failed).
    """
    try:
        await handle.complete(outcome, rpc_timeout=HURRIED_TIMEOUT if hurried() else RPC_TIMEOUT)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            log.info("the server does not wait for the outcome of the attempt any more")
            return Event.REFUSED
        if hurried():
            log.warning("the outcome of the attempt could not be reported: %s", error)
            return Event.UNREPORTED
        log.warning("the outcome of the attempt could not be reported, trying again: %s", error)
        raise
    ATTEMPTS_ENDED.add(outcome.state, outcome.fault)
    return Event.ACCEPTED


async def free_placement(context: HostContext, task: RunTask) -> None:
    """Sends the scheduler a message that the placement is free. If the message is lost, the
    scheduler finds out later that the job has ended.
    """
    # Imported when an attempt is given up: an agent starts a fifteenth quicker without the
    # messages of the scheduler and what they hold.
    from iris.messages.scheduler import Vacate

    scheduler = context.client.get_workflow_handle(names.scheduler_workflow(context.cluster))
    vacated = Vacate(
        key=task.placement_key,
        host_id=context.host.id,
        incarnation=task.incarnation,
        at=datetime.now(UTC),
    )
    with contextlib.suppress(RPCError):
        signal = names.vacate_signal(context.host.id)
        await scheduler.signal(signal, vacated, rpc_timeout=RPC_TIMEOUT)
