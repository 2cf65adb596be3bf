"""Decides when a session beside a task ends, and keeps its activity alive. A session is a command
or a forwarding of ports.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Protocol

from temporalio import activity
from temporalio.exceptions import ApplicationError

from iris.activities.host.runtimes.base import Launch
from iris.activities.host.sessions.store_stream import StoreStream
from iris.messages.exec import NOT_RUNNING
from iris.model import names

#: A client that has sent nothing for this long counts as gone. A client sends something at least
#: every ten seconds.
SILENCE = timedelta(seconds=60)
#: The delay between two checks whether the attempt still runs and the client still sends. It is
#: also the interval of the activity's heartbeats.
CANCEL_CHECK_INTERVAL = timedelta(milliseconds=500)
#: The reason for the end of a session (a command or a port forwarding beside a task) if the client
#: became silent.
CLIENT_GONE = "the client sent nothing for too long"
#: The reason for the end of a session (a command or a port forwarding beside a task) if the client
#: disconnected.
HUNG_UP = "the client disconnected"


class RunningAttempt(Protocol):
    """An attempt whose program runs on this host."""

    @property
    def key(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def directory(self) -> Path: ...
    @property
    def launch(self) -> Launch: ...
    @property
    def pid(self) -> int | None:
        """The program's pid on this host; None if the container engine does not report it."""


class AttemptSource(Protocol):
    """Finds the attempts that run on this host."""

    def running(self, job: str, index: int) -> RunningAttempt | None: ...


def find(tasks: AttemptSource, job: str, index: int) -> RunningAttempt:
    """Returns the running attempt of the task.

    Raises:
        ApplicationError: the task does not run on this host.
    """
    running = tasks.running(job, index)
    if running is None:
        what = f"task {names.task_id(job, index)} does not run on this host"
        raise ApplicationError(
            f"{what}: it is still being set up, or has just ended",
            type=NOT_RUNNING,
            non_retryable=True,
        )
    return running


def runs_still(tasks: AttemptSource, job: str, index: int, key: str) -> Callable[[], bool]:
    """Returns a function that returns True while this attempt of the task has not ended."""

    def runs() -> bool:
        now = tasks.running(job, index)
        return now is not None and now.key == key

    return runs


async def needed_no_more(
    is_running: Callable[[], bool], stream: StoreStream, silence: timedelta
) -> str:
    """Waits until the attempt has ended, or the client has sent nothing for too long. Returns the
    reason.
    """
    while is_running():
        if monotonic() - stream.received_at > silence.total_seconds():
            return CLIENT_GONE
        await asyncio.sleep(CANCEL_CHECK_INTERVAL.total_seconds())
    return "the task's attempt has ended"


def is_abandoned() -> bool:
    """Returns True if the client has cancelled the session's activity: it waits for the end no
    more, and will not remove the session's chunks.
    """
    details = activity.cancellation_details()
    return details is not None and details.cancel_requested


async def beat() -> None:
    """Sends the activity's heartbeats to the server, whose answers bring cancellations."""
    while True:
        activity.heartbeat()
        await asyncio.sleep(CANCEL_CHECK_INTERVAL.total_seconds())


async def store_fails(writing: "asyncio.Task[None]") -> str:
    """Waits until the data for the client cannot be stored. Returns the reason."""
    await asyncio.wait([writing])
    return f"its output could not be stored: {writing.exception()}"
