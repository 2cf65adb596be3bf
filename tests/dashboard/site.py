"""Serves the pages of a made cluster to a browser."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from iris.dashboard.app import Dashboard
from iris.dashboard.reader import Reader
from iris.processes.process import free_ports


@contextmanager
def a_site(reader: Reader) -> Iterator[str]:
    """Serves the pages from a thread. Yields the address."""
    port, _ = free_ports()
    dashboard = Dashboard(reader)
    server = uvicorn.Server(
        uvicorn.Config(dashboard.app, port=port, log_level="error", lifespan="off", ws="none")
    )
    serving = threading.Thread(target=server.run)
    serving.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = server.force_exit = True
        serving.join()
