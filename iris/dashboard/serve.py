"""Serves the dashboard of one cluster from this process."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn

from iris.client.client import AsyncIrisClient
from iris.config import DashboardAddress
from iris.dashboard.app import Dashboard
from iris.dashboard.connections import MOST_HEAD, LimitedConnection
from iris.dashboard.reader import Reader

logger = logging.getLogger(__name__)

#: When the process ends, running requests get this time to finish, in seconds.
LAST_REQUESTS = 2


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
