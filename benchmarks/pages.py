"""Measures what the dashboard costs: the time to the first content and the bytes of each page, with
few and with many jobs, and the CPU of ten open pages.

Most of the jobs wait for a host that is busy, as in `behind`.
"""

import asyncio
import http.client
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median
from urllib.parse import urlsplit

from benchmarks.behind import HOSTS, a_job, all_wait, submit_crowd
from benchmarks.ground import NAME, Ground, cluster, cpu_seconds
from benchmarks.table import Row
from iris.config import load_config, make_local_config
from iris.dashboard.app import PAGES
from iris.dashboard.reader import SHARED_FOR

#: The number of open pages, each with an address of its own.
OPEN = 10
#: The pause between two loads of a page, in seconds: longer than the dashboard shares an answer.
PAUSE = SHARED_FOR + 0.5
#: The targets: milliseconds to the first content, kilobytes, and the percentage of a core.
SOON, SMALL, QUIET = 300.0, 150.0, 5.0


def measure(*, quick: bool) -> list[Row]:
    if quick:
        return _measure(1_000, loads=3, seconds=20)
    return _measure(10_000, loads=7, seconds=60)


def _measure(many: int, loads: int, seconds: float) -> list[Row]:
    with cluster(make_local_config(load_config(HOSTS), NAME)) as ground:
        asyncio.run(_block(ground))
        objects = asyncio.run(_fill(ground, 10))
        few = list(_pages(ground, objects, "10", loads=loads))
        asyncio.run(_fill(ground, many - 10))
        lots = list(_pages(ground, objects, f"{many:,}", loads=loads))
        return [*few, *lots, _open(ground, seconds=seconds)]


async def _block(ground: Ground) -> None:
    """Occupies the only host that could run the jobs."""
    iris = await ground.client()
    await iris.jobs.submit(a_job("blocker", cores=8, command=("sleep", "86400")))


async def _fill(ground: Ground, jobs: int) -> dict[str, str]:
    """Submits jobs that wait. Returns objects for the paths of pages."""
    iris = await ground.client()
    before = (await iris.cluster.status()).waiting
    await submit_crowd(iris, jobs)
    await all_wait(iris, before + jobs)
    hosts = await iris.hosts.list()
    (job,) = await iris.jobs.list(limit=1)
    return {"job": job.id, "host": hosts[0].host.id, "slice": hosts[0].host.slice_id}


def _pages(ground: Ground, objects: dict[str, str], jobs: str, loads: int) -> Iterator[Row]:
    for page in PAGES:
        path = re.sub(r"{(\w+)(?::\w+)?}", lambda found: objects.get(found[1], ""), page.path)
        times, size, sent = [], 0, 0
        for _ in range(loads):
            time.sleep(PAUSE)
            taken, size, sent = _load(ground, path)
            times.append(1000 * taken)
        yield Row(
            f"page {page.path}, {jobs} jobs, ms to its content",
            median(times),
            target=SOON,
            format="{:.0f}",
            note=f"{size / 1000:.1f} kB, {sent / 1000:.1f} kB compressed",
        )
        yield Row("the same, kB", size / 1000, target=SMALL)


def _load(ground: Ground, path: str) -> tuple[float, int, int]:
    """Returns the seconds until the page is there, its bytes, and its bytes when compressed."""
    sizes = []
    began = time.monotonic()
    taken = 0.0
    for headers in ({}, {"Accept-Encoding": "gzip"}):
        connection = _connection(ground)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        sizes.append(len(answer.read()))
        assert answer.status == 200, (path, answer.status)
        connection.close()
        taken = taken or time.monotonic() - began
    return taken, sizes[0], sizes[1]


def _connection(ground: Ground) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(ground.record.dashboard).netloc, timeout=60)


def _open(ground: Ground, seconds: float) -> Row:
    """Returns the CPU of the control plane and of the Temporal service for open pages."""

    def percent() -> float:
        before = ground.server_seconds() + cpu_seconds([ground.controller])
        time.sleep(seconds)
        return 100 * (ground.server_seconds() + cpu_seconds([ground.controller]) - before) / seconds

    time.sleep(5)
    alone = percent()
    with ExitStack() as stack:
        for number in range(OPEN):
            connection = _connection(ground)
            path = f"{('/', '/jobs')[number % 2]}?page={number // 2 + 1}"
            connection.request("GET", path, headers={"Accept": "text/event-stream"})
            # A close would wait for the thread that reads.
            stack.callback(connection.sock.shutdown, socket.SHUT_RDWR)
            reader = threading.Thread(target=_read, args=(connection,), daemon=True)
            reader.start()
        time.sleep(5)
        opened = percent()
    return Row(
        f"{OPEN} open pages, % of a core",
        opened - alone,
        target=QUIET,
        note=f"control plane and Temporal service: {opened:.1f} %, without pages {alone:.1f} %",
    )


def _read(connection: http.client.HTTPConnection) -> None:
    """Reads a stream to its end, which is that of the measurement."""
    try:
        answer = connection.getresponse()
        while answer.read1(65536):
            pass
    except (OSError, http.client.HTTPException, ValueError, AttributeError):
        return
