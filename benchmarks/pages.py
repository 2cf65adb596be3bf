"""Measures what the dashboard costs: the time to the first content and the bytes of each page, with
few and with many jobs, and the CPU of ten open pages.

The jobs are workflows with what lists show of a job, which start in a month: nothing runs them, so
ten thousand of them exist within a minute. Half of them wait: the scheduler gets their requests,
for a host that is busy. The other half has ended.

A time is the least of several loads, because other load may share the machine's cores. The CPU time
beside it is the mean of all loads.
"""

import asyncio
import http.client
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from statistics import mean
from typing import NamedTuple
from urllib.parse import urlsplit

from benchmarks.behind import AT_ONCE, CORES, HOSTS, a_job
from benchmarks.ground import NAME, Ground, cluster, cpu_seconds
from benchmarks.simulation import simulated_week
from benchmarks.table import Row
from iris.client.client import AsyncIrisClient
from iris.config import load_config, make_local_config
from iris.dashboard.app import PAGES
from iris.dashboard.live import LONGEST
from iris.dashboard.reader import SHARED_FOR
from iris.messages.scheduler import Answers, Ask, Batch
from iris.messages.submission import JobSubmission
from iris.model import names
from iris.model.job.requests import Request
from iris.model.job.spec import JobSpec
from iris.model.states import JobState
from iris.workflows.search_attributes import job_facts, keywords

#: The number of open pages, each with an address of its own.
OPEN = 10
#: How often the CPU with open pages is measured. The least counts.
TIMES_OPEN = 2
#: The pause between two loads, in seconds: longer than the dashboard shares an answer. The next
#: load of the same page is later than it shares any, except for the records of use.
PAUSE = SHARED_FOR + 0.1
#: The targets: milliseconds to the first content, kilobytes as sent, and the percentage of a core.
SOON, SMALL, QUIET = 300.0, 150.0, 5.0
#: The jobs start so late that nothing runs them.
LATE = timedelta(days=30)
#: The filters of the list of jobs that are measured, too.
FILTERS = ("/jobs?state=live", "/jobs?state=FAILED", "/jobs?text=nobody-has-this")
#: The most messages in one batch for the scheduler.
TOGETHER = 250


def measure(*, quick: bool) -> list[Row]:
    if quick:
        return _measure(1_000, loads=3, seconds=20)
    return _measure(10_000, loads=4, seconds=60)


def _measure(many: int, loads: int, seconds: float) -> list[Row]:
    with cluster(make_local_config(load_config(HOSTS), NAME)) as ground:
        objects = asyncio.run(_block(ground))
        asyncio.run(_fill(ground, 10))
        few = list(_pages(ground, objects, "10", loads))
        began = time.monotonic()
        asyncio.run(_fill(ground, many - 10))
        filled = time.monotonic() - began
        lots = list(_pages(ground, objects, f"{many:,}", loads))
        return [*few, *lots, _open(ground, seconds, f"{many:,} jobs, made in {filled:.0f} s")]


async def _block(ground: Ground) -> dict[str, str]:
    """Occupies the only host that could run the jobs. Returns objects for the paths of pages."""
    iris = await ground.client()
    blocker = await iris.jobs.submit(a_job("blocker", cores=8, command=("sleep", "86400")))
    host = (await iris.hosts.list())[0].host
    await iris.simulations.publish("week", simulated_week())
    return {"job": blocker.id, "host": host.id, "slice": host.slice_id, "simulation": "week"}


async def _fill(ground: Ground, jobs: int) -> None:
    """Makes jobs, of which every second one waits and the others have ended."""
    iris = await ground.client()
    specs = [a_job("crowd", cores=CORES[number % len(CORES)]) for number in range(jobs)]
    rest = iter(enumerate(specs))
    requests: list[Request] = []

    async def work() -> None:
        for number, spec in rest:
            run_id = await _make(iris, spec, ends=number % 2 == 1)
            if number % 2 == 0:
                requests.append(_request(spec, run_id))

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    for first in range(0, len(requests), TOGETHER):
        await _ask(iris, requests[first : first + TOGETHER])


async def _make(iris: AsyncIrisClient, spec: JobSpec, *, ends: bool) -> str:
    """Starts the workflow of a job that never runs, and ends it if wanted. Returns its run id."""
    memo, attributes = job_facts(NAME, spec)
    reason = "needs more cores than are free; 1 host has enough and is in use"
    handle = await iris.connection.client.start_workflow(
        names.WORKFLOW_TYPES[names.KIND_JOB],
        JobSubmission(cluster=NAME, spec=spec),
        id=names.job_workflow(NAME, spec.id),
        task_queue=names.control_queue(NAME),
        start_delay=LATE,
        memo={**memo, names.MEMO_REASON: {"state": JobState.PENDING, "reason": reason}},
        search_attributes=keywords({**attributes, names.SA_STATE: JobState.PENDING}),
    )
    if ends:
        await handle.terminate()
    return handle.first_execution_run_id or ""


def _request(spec: JobSpec, run_id: str) -> Request:
    """Returns the request for hosts that the job would send."""
    return Request(
        key=names.attempt_key(f"{spec.id}@1", run_id),
        owner=names.job_workflow(NAME, spec.id),
        task=spec.id,
        user=spec.user,
        resources=spec.resources,
        submitted_at=datetime.now(UTC),
    )


async def _ask(iris: AsyncIrisClient, requests: Sequence[Request]) -> None:
    """Sends requests to the scheduler."""
    await iris.connection.workflow(iris.connection.scheduler).execute_update(
        "exchange",
        Batch(messages=tuple(Ask(request=request) for request in requests)),
        result_type=Answers,
    )


class Load(NamedTuple):
    """One load of a page."""

    #: The seconds until the first byte of the page is there. The whole page follows at once.
    taken: float
    size: int
    #: The bytes as they are sent to a browser.
    sent: int
    #: The CPU seconds of the control plane and of the Temporal service.
    control_plane: float
    service: float


def _pages(ground: Ground, objects: Mapping[str, str], jobs: str, loads: int) -> Iterator[Row]:
    paths = [
        re.sub(r"{(\w+)(?::\w+)?}", lambda found: objects.get(found[1], ""), page.path)
        for page in PAGES
    ]
    shown = dict(zip(paths, (page.path for page in PAGES), strict=True))
    found: dict[str, list[Load]] = {path: [] for path in (*paths, *FILTERS)}
    for _ in range(loads):
        for path, before in found.items():
            time.sleep(PAUSE)
            before.append(_load(ground, path))
    for path, each in found.items():
        last = each[-1]
        yield Row(
            f"page {shown.get(path, path)}, {jobs} jobs, ms to its content",
            1000 * min(load.taken for load in each),
            target=SOON,
            format="{:.0f}",
            note=(
                f"the first time {1000 * each[0].taken:.0f}; CPU"
                f" {1000 * mean(load.control_plane for load in each):.0f} ms of the control plane,"
                f" {1000 * mean(load.service for load in each):.0f} ms of the service"
            ),
        )
        note = f"{last.size / 1000:.1f} kB before compression"
        yield Row("the same, kB as sent", last.sent / 1000, target=SMALL, note=note)


def _load(ground: Ground, path: str) -> Load:
    controller, service = cpu_seconds([ground.controller]), ground.server_seconds()
    connection = _connection(ground)
    began = time.monotonic()
    connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
    answer = connection.getresponse()
    taken = time.monotonic() - began
    sent = len(answer.read())
    assert answer.status == 200, (path, answer.status)
    connection.close()
    controller = cpu_seconds([ground.controller]) - controller
    service = ground.server_seconds() - service
    # The answers are shared for a moment, so this costs little.
    connection = _connection(ground)
    connection.request("GET", path)
    size = len(connection.getresponse().read())
    connection.close()
    return Load(taken, size, sent, controller, service)


def _connection(ground: Ground) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(ground.record.dashboard).netloc, timeout=60)


def _open(ground: Ground, seconds: float, note: str) -> Row:
    """Returns the CPU of the control plane and of the Temporal service for open pages: the least of
    several times with and without them, because the service also does other work now and then.
    """

    def percent() -> float:
        before = ground.server_seconds() + cpu_seconds([ground.controller])
        time.sleep(seconds)
        return 100 * (ground.server_seconds() + cpu_seconds([ground.controller]) - before) / seconds

    time.sleep(5)
    alone, opened = percent(), 100.0
    for _ in range(TIMES_OPEN):
        with _opened(ground):
            time.sleep(2 * LONGEST)  # until the pauses between two updates have their length
            opened = min(opened, percent())
        alone = min(alone, percent())
    return Row(
        f"{OPEN} open pages, % of a core",
        opened - alone,
        target=QUIET,
        note=(
            f"control plane and Temporal service: {opened:.1f} %, without pages {alone:.1f} %;"
            f" {note}"
        ),
    )


@contextmanager
def _opened(ground: Ground) -> Iterator[None]:
    """Keeps pages open, each with an address of its own."""
    with ExitStack() as stack:
        for number in range(OPEN):
            connection = _connection(ground)
            path = f"{('/', '/jobs')[number % 2]}?page={number // 2 + 1}"
            connection.request("GET", path, headers={"Accept": "text/event-stream"})
            # A close would wait for the thread that reads.
            stack.callback(connection.sock.shutdown, socket.SHUT_RDWR)
            reader = threading.Thread(target=_read, args=(connection,), daemon=True)
            reader.start()
            time.sleep(LONGEST / OPEN)  # people do not open pages at the same moment
        yield


def _read(connection: http.client.HTTPConnection) -> None:
    """Reads a stream to its end, which is that of the measurement."""
    try:
        answer = connection.getresponse()
        while answer.read1(65536):
            pass
    except (OSError, http.client.HTTPException, ValueError, AttributeError):
        return
