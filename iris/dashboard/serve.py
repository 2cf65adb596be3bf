"""Serves the dashboard of one cluster from this process, and limits what one connection, and all of
them together, may cost the process.

The control plane's own work needs its memory and its file descriptors. So there are at most so many
connections, each must send its request soon, and each must read what it asked for.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from iris.client.client import AsyncIrisClient
from iris.config import DashboardAddress
from iris.dashboard.app import Dashboard
from iris.dashboard.reader import Reader

logger = logging.getLogger(__name__)

#: When the process ends, running requests get this time to finish, in seconds.
LAST_REQUESTS = 2
#: The limit on simultaneous connections. A browser opens up to six connections, and keeps one for
#: each open page.
MOST_CONNECTIONS = 300
#: The time limit for a browser to send a request, in seconds.
REQUEST_TIMEOUT = 10.0
#: The time limit for a browser to read the data that was sent to it, in seconds. After this time
#: the connection is closed. Until then, at most one rendering of a page and the data in the buffers
#: of the socket wait for the browser.
READ_TIMEOUT = 30.0
#: The limit on the bytes of a request's headers. They can be large, because a browser sends to this
#: port also the cookies of the programs at the other ports of the same machine.
MOST_HEAD = 65_536


class LimitedConnection(H11Protocol):
    """A connection of a browser, with time limits for sending requests and for reading answers."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._unasked: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self._unasked = self.loop.call_later(REQUEST_TIMEOUT, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._unasked, self._unread):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # The request is complete, with its body.
        if self.conn.their_state in (h11.DONE, h11.MUST_CLOSE) and self._unasked is not None:
            self._unasked.cancel()
            self._unasked = None

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # The next request of this connection has the same time.
        if self._unasked is None and self.conn.their_state is not h11.DONE:
            self._unasked = self.loop.call_later(REQUEST_TIMEOUT, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(READ_TIMEOUT, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None


class _Server(uvicorn.Server):
    """A web server within another program. It leaves the handling of signals to that program."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serving_dashboard(
    client: AsyncIrisClient, listen: DashboardAddress
) -> AsyncIterator[None]:
    """Serves the dashboard for as long as the block lasts.

    A port that cannot be used is logged. It does not end the process, whose own work is more
    important.
    """
    if not listen.port:
        yield
        return
    try:
        bound = _bind(listen)
    except OSError as error:
        logger.warning(
            "no dashboard is served: port %d of %s cannot be used: %s",
            *(listen.port, listen.address, error.strerror or error),
        )
        yield
        return
    dashboard = Dashboard(Reader(client), listen.names, allow_actions=listen.allow_actions)
    server = _Server(
        uvicorn.Config(
            dashboard.app,
            lifespan="off",
            ws="none",
            http=LimitedConnection,
            h11_max_incomplete_event_size=MOST_HEAD,
            log_level=logging.ERROR,
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=LAST_REQUESTS,
        )
    )
    running = asyncio.create_task(server.serve(sockets=[bound]))
    logger.info("serves the dashboard at http://%s:%d", listen.address, listen.port)
    try:
        yield
    finally:
        dashboard.close()
        server.should_exit = True
        await running


def _bind(listen: DashboardAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in listen.address else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((listen.address, listen.port))
        bound.listen()  # who connects before the server is ready waits
    except OSError:
        bound.close()
        raise
    return bound
