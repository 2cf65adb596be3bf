"""Serves pages to a browser from a thread of the test."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import uvicorn

from iris.dashboard.app import Dashboard
from iris.dashboard.reader import Reader
from iris.processes.process import free_ports


@contextmanager
def a_site(make_reader: Callable[[], Awaitable[Reader]]) -> Iterator[str]:
    """Yields the address of the pages.

    Args:
        make_reader: returns what the pages read with. It is called in the thread's event loop.
    """
    port, _ = free_ports()
    servers: list[uvicorn.Server] = []
    ready = threading.Event()

    async def serve() -> None:
        dashboard = Dashboard(await make_reader())
        config = uvicorn.Config(
            dashboard.app, port=port, log_level="error", lifespan="off", ws="none"
        )
        servers.append(uvicorn.Server(config))
        ready.set()
        await servers[0].serve()

    serving = threading.Thread(target=asyncio.run, args=(serve(),))
    serving.start()
    try:
        assert ready.wait(60)
        yield f"http://127.0.0.1:{port}"
    finally:
        for server in servers:
            server.should_exit = server.force_exit = True
        serving.join()
