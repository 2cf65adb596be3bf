"""The logins of one process to machines, each with its own task: a login goes on when its caller
stops waiting for it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

import asyncssh

from iris.platforms.base import Unavailable
from iris.platforms.manual.settings import HostAccess

#: The most logins at once, of machines that let Iris in last time, and again of those that did not.
MAX_AT_ONCE = 32
#: A machine that did not let Iris in is not tried again for this time by calls that concern many
#: machines.
COOL_DOWN = timedelta(seconds=20)


class Logins:
    """The logins that go on, and the failures of those that have ended.

    Args:
        connect: logs in to a machine within a limit of its own, or raises `Unavailable`.
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
        """Returns a connection to the machine, which belongs to the caller. A caller that is
        cancelled leaves it to the next one.

        Raises:
            Unavailable: the machine does not let Iris in.
        """
        while True:
            task = self._tasks.get(host)
            if task is None:
                task = self._tasks[host] = asyncio.create_task(self._log_in(host))
                task.add_done_callback(
                    lambda done: done.cancelled() or done.exception()
                )  # also if no caller asks any more
            connection = await asyncio.shield(task)
            if self._tasks.get(host) is task:
                del self._tasks[host]
                if not connection.is_closed():
                    return connection

    def is_pending(self, host: HostAccess) -> bool:
        """Returns whether a login to the machine goes on."""
        return host in self._tasks and not self._tasks[host].done()

    def recent_failure(self, host: HostAccess) -> Unavailable | None:
        """Returns why the machine did not let Iris in a moment ago; None: it did, or it was not
        tried.
        """
        since, failure = self._failures.get(host, (0.0, None))
        return failure if time.monotonic() - since < COOL_DOWN.total_seconds() else None

    def forget(self, host: HostAccess) -> None:
        """Ends the login to the machine if one goes on, and closes its connection if no caller has
        fetched it.
        """
        self._failures.pop(host, None)
        if (task := self._tasks.pop(host, None)) is None:
            return
        if not task.cancel() and not task.cancelled() and task.exception() is None:
            task.result().abort()

    async def close(self) -> None:
        """Ends the logins that go on, and closes the connections that no caller has fetched."""
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
