"""Logins of one process to machines. Each login is a task of its own, which continues when its
caller is cancelled.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

import asyncssh

from iris.platforms.base import Unavailable
from iris.platforms.manual.settings import HostAccess

#: The maximum number of logins at the same time to machines whose last login did not fail. In
#: addition, as many logins may run at the same time to machines whose last login failed.
MAX_AT_ONCE = 32
#: The time for which a call on many machines skips a machine whose login has failed.
COOL_DOWN = timedelta(seconds=20)


class Logins:
    """The logins that are in progress, and the recent failures to log in.

    Args:
        connect: logs in to a machine, or raises `Unavailable`. It must have a time limit itself,
            because `Logins` sets none.
    """

    def __init__(
        self, connect: Callable[[HostAccess], Awaitable[asyncssh.SSHClientConnection]]
    ) -> None:
        self._connect = connect
        # Machines that never answer must not delay the others for longer than their first login.
        self._first, self._again = asyncio.Semaphore(MAX_AT_ONCE), asyncio.Semaphore(MAX_AT_ONCE)
        self._tasks: dict[HostAccess, asyncio.Task[asyncssh.SSHClientConnection]] = {}
        self._failures: dict[HostAccess, tuple[float, Unavailable]] = {}

    async def connection(self, host: HostAccess) -> asyncssh.SSHClientConnection:
        """Returns a connection to the machine, which then belongs to the caller. If the caller is
        cancelled, the next caller gets the connection.

        Raises:
            Unavailable: the machine does not let Iris in.
        """
        while True:
            task = self._tasks.get(host)
            if task is None:
                task = self._tasks[host] = asyncio.create_task(self._log_in(host))
                # Reads the failure, so that asyncio logs none if no caller waits any more.
                task.add_done_callback(lambda done: done.cancelled() or done.exception())
            connection = await asyncio.shield(task)
            if self._tasks.get(host) is task:
                del self._tasks[host]
                if not connection.is_closed():
                    return connection

    def is_pending(self, host: HostAccess) -> bool:
        """Returns True while a login to the machine is in progress."""
        return host in self._tasks and not self._tasks[host].done()

    def recent_failure(self, host: HostAccess) -> Unavailable | None:
        """Returns the failure of a login during the last `COOL_DOWN`; None if there was none."""
        since, failure = self._failures.get(host, (0.0, None))
        return failure if time.monotonic() - since < COOL_DOWN.total_seconds() else None

    def forget(self, host: HostAccess) -> None:
        """Ends a login in progress to the machine, and closes its connection if no caller has
        fetched it.
        """
        self._failures.pop(host, None)
        if (task := self._tasks.pop(host, None)) is None:
            return
        if not task.cancel() and not task.cancelled() and task.exception() is None:
            task.result().abort()

    async def close(self) -> None:
        """Ends the logins in progress, and closes the connections that no caller has fetched."""
        tasks, self._tasks = list(self._tasks.values()), {}
        for each in tasks:
            each.cancel()
        for found in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(found, asyncssh.SSHClientConnection):
                found.abort()

    # -- private
    # ----------------------------------------------------------------------------------------------

    async def _log_in(self, host: HostAccess) -> asyncssh.SSHClientConnection:
        try:
            async with self._again if host in self._failures else self._first:
                connection = await self._connect(host)
        except BaseException as error:
            self._tasks.pop(host, None)  # the next caller tries again
            if isinstance(error, Unavailable):
                self._failures[host] = (time.monotonic(), error)
            raise
        self._failures.pop(host, None)
        return connection
