"""Measures how long the scheduler is away when its control plane is killed, by the cluster's size
and the exchanges before.

Hosts and jobs exist on paper only. The Temporal service, the scheduler's workflow and the process
that serves it are real: it has the control plane's worker for planners, and is started again as
soon as it was killed. The supervisor of a real control plane starts it after another second. Kills
hit a scheduler at rest, and one that is in the middle of a workflow task, which the next process has
to end.

    python -m benchmarks.recovery ADDRESS CLUSTER
        serves the scheduler of a cluster until standard input ends
"""

import asyncio
import contextlib
import subprocess
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from temporalio import activity
from temporalio.api.enums.v1 import PendingWorkflowTaskState
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.client import (
    Client,
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.service import RPCError
from temporalio.worker import Worker

from benchmarks import paper
from benchmarks.ground import cluster, cpu_seconds
from benchmarks.passes import asked
from benchmarks.table import Row
from iris.activities.control.notifier import Notifier
from iris.client.connect.connection import connect
from iris.client.connect.plugin import IrisPlugin
from iris.messages.scheduler import Answers, Ask, Batch, Release, SchedulerStart, Signalled
from iris.messages.wire import Keys, RepeatedCheck
from iris.model import names
from iris.model.job.requests import Request
from iris.planners.ledger_messages import MAX_PLACEMENTS
from iris.processes.process import rest_memory
from iris.worker_agents.control_plane import serve as control_plane
from iris.workflows import policies
from iris.workflows.scheduler.scheduler import SchedulerWorkflow
from tests.temporal_cluster import a_temporal_cluster

CLUSTER = "paper"
SERVES = b"serves\n"
#: The exchanges between two kills after many: so the kills hit a run of the scheduler at different
#: lengths.
STRIDE = 7
#: The age of the oldest request.
QUEUE = timedelta(hours=5)
RETRY_EVERY = 0.2
LOOK_EVERY = 0.1
TARGET = 10.0


@dataclass(frozen=True)
class Case:
    """One cluster size, and how often its control plane is killed after how many exchanges.

    Args:
        kills: the number of kills, by the number of exchanges since the scheduler's start, in
            ascending order.
        busy: the number of kills in the middle of a workflow task.
        busy_target: the seconds to an answer after such a kill.
    """

    hosts: int
    waiting: int
    kills: dict[int, int]
    busy: int
    busy_target: float = 12.0


QUICK = Case(600, 5_000, {0: 3, 100: 3}, busy=3)
FEW = Case(600, 5_000, {0: 10, 500: 10, 5_000: 10}, busy=5)
MANY = Case(10_000, 100_000, {0: 3, 50: 3}, busy=3, busy_target=20.0)


def measure_few(*, quick: bool) -> list[Row]:
    return _on_dev_server(QUICK if quick else FEW)


def measure_many(*, quick: bool) -> list[Row]:
    return _on_dev_server(QUICK if quick else MANY)


def measure_few_official(*, quick: bool) -> list[Row]:
    return _on_official_server(QUICK if quick else FEW)


def measure_many_official(*, quick: bool) -> list[Row]:
    return _on_official_server(QUICK if quick else MANY)


def _on_dev_server(case: Case) -> list[Row]:
    with cluster(0) as ground:
        return asyncio.run(_measure(ground.record.address, case))


def _on_official_server(case: Case) -> list[Row]:
    with a_temporal_cluster() as temporal:
        return asyncio.run(_measure(temporal.service.addresses[0], case))


class Absent(Notifier):
    """Signals no owner and finds none gone, because the jobs exist on paper only.

    Args:
        live: receives the keys of placements.
    """

    def __init__(self, client: Client, live: deque[str]) -> None:
        super().__init__(client)
        self._live = live

    async def _signal_owners(self, signal: str, items: Sequence[tuple[str, str, Any]]) -> Signalled:
        if signal == "placed":
            self._live.extend(key for _, key, _ in items)
        return Signalled()

    @activity.defn
    async def check_jobs(self, check: RepeatedCheck) -> Keys:
        return Keys()


@dataclass(frozen=True)
class Recovery:
    """The effect of one kill.

    Args:
        events: the length of the history that was replayed.
        serves: the seconds until the next process serves.
        answers: the seconds until the scheduler answers.
        cpu: the CPU seconds of the next process until then.
    """

    events: int
    serves: float
    answers: float
    cpu: float


class Scheduler:
    """A running scheduler, and the process that serves it.

    Args:
        requests: those that exchanges send.
        live: the keys that hold hosts, the oldest first.
    """

    def __init__(
        self, address: str, client: Client, requests: Iterator[Request], live: deque[str]
    ) -> None:
        self._address = address
        self._workflow: WorkflowHandle[Any, Any] = client.get_workflow_handle(
            names.scheduler_workflow(CLUSTER)
        )
        self._requests = requests
        self._live = live
        self._process: subprocess.Popen[bytes] | None = None
        self.exchanges = 0

    def serve(self) -> None:
        """Starts a process that serves the scheduler, and waits until it does."""
        command = [sys.executable, "-m", "benchmarks.recovery", self._address, CLUSTER]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1]
        )
        assert self._process.stdout is not None
        while (line := self._process.stdout.readline()) != SERVES:
            assert line, "the process that serves the scheduler has ended"

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    async def exchange(self) -> None:
        """One gang leaves and another one asks. Sent again until the scheduler answers, as an
        outbox does.
        """
        self.exchanges += 1
        batch = Batch(
            messages=(
                Release(key=self._live.popleft(), ran=True),
                Ask(request=next(self._requests)),
            )
        )
        while True:
            with contextlib.suppress(
                RPCError, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
            ):
                reply = await self._workflow.execute_update("exchange", batch, result_type=Answers)
                self._live.extend(
                    answer.placement.key for answer in reply.answers if answer.placement is not None
                )
                return
            await asyncio.sleep(RETRY_EVERY)

    async def killed_at_rest(self) -> Recovery:
        description = await self._describe()
        while description.pending_activities or description.HasField("pending_workflow_task"):
            await asyncio.sleep(LOOK_EVERY)
            description = await self._describe()
        return await self._killed(
            description.workflow_execution_info.history_length, self.exchange()
        )

    async def killed_in_a_task(self) -> Recovery:
        """Kills the process while it handles an exchange, whose answer counts."""
        while True:
            waiting = asyncio.create_task(self.exchange())
            while not waiting.done():
                description = await self._describe()
                if (
                    description.pending_workflow_task.state
                    == PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_STARTED
                ):
                    length = description.workflow_execution_info.history_length
                    return await self._killed(length, waiting)

    async def _killed(self, events: int, answer: Awaitable[None]) -> Recovery:
        """Kills the process, starts the next one, and waits for an answer."""
        began = time.monotonic()
        self.kill()
        await asyncio.to_thread(self.serve)
        serves = time.monotonic() - began
        await answer
        assert self._process is not None
        recovery = Recovery(
            events,
            serves,
            time.monotonic() - began,
            cpu_seconds([psutil.Process(self._process.pid)]),
        )
        print(self.exchanges, recovery, file=sys.stderr, flush=True)
        return recovery

    async def _describe(self) -> DescribeWorkflowExecutionResponse:
        return (await self._workflow.describe()).raw_description


async def _measure(address: str, case: Case) -> list[Row]:
    client, now = await connect(address), datetime.now(UTC)
    with paper.as_in_control_plane():
        requests = paper.requests(case.waiting + max(case.kills) + 1_000, began=now - QUEUE)
        ledger = asked(case.hosts, requests[: case.waiting])
        while ledger.settle(now, MAX_PLACEMENTS).stopped:
            pass
    live = deque(ledger.live)
    scheduler = Scheduler(address, client, iter(requests[case.waiting :]), live)
    await client.start_workflow(
        SchedulerWorkflow.run,
        SchedulerStart(cluster=CLUSTER, ledger=ledger.state()),
        id=names.scheduler_workflow(CLUSTER),
        task_queue=names.planner_queue(CLUSTER),
        task_timeout=policies.PLANNER_TASK,
    )
    absent = Absent(client, live)
    activities: list[Callable[..., Any]] = [
        absent.signal_placed,
        absent.signal_evicted,
        absent.signal_reasons,
        absent.check_jobs,
    ]
    rows: list[Row] = []
    async with Worker(client, task_queue=names.control_queue(CLUSTER), activities=activities):
        try:
            scheduler.serve()
            for exchanges, kills in case.kills.items():
                recoveries = []
                for _ in range(kills):
                    until = max(exchanges, scheduler.exchanges + STRIDE) if exchanges else 0
                    while scheduler.exchanges < until:
                        await scheduler.exchange()
                    recoveries.append(await scheduler.killed_at_rest())
                rows += _rows(case, f"at rest after {exchanges:,} exchanges", recoveries)
            rows += _rows(
                case,
                "in the middle of a task",
                [await scheduler.killed_in_a_task() for _ in range(case.busy)],
                case.busy_target,
            )
        finally:
            scheduler.kill()
    return rows


def _rows(case: Case, when: str, recoveries: list[Recovery], target: float = TARGET) -> list[Row]:
    size = f"{case.hosts:,} hosts × {case.waiting:,} waiting, killed {when}"
    answers = [each.answers for each in recoveries]
    cpu, events = [each.cpu for each in recoveries], [each.events for each in recoveries]
    note = (
        f"of {len(recoveries)}; serves after {median(each.serves for each in recoveries):.1f} s;"
        f" CPU {median(cpu):.1f}, worst {max(cpu):.1f} s; replays {min(events)} to {max(events)}"
        " events"
    )
    return [
        Row(f"{size}: s to an answer, median", median(answers), target=target, note=note),
        Row(f"{size}: worst", max(answers), target=target),
    ]


async def serve(address: str, cluster: str) -> None:
    """Serves the scheduler as a control plane does, until standard input ends."""
    rest_memory()
    client = await connect(address, plugins=[IrisPlugin()])
    _, _, planner = control_plane.make_workers(client, cluster)
    await control_plane._take_over(client, cluster)
    async with planner:
        sys.stdout.buffer.write(SERVES)
        sys.stdout.buffer.flush()
        await asyncio.to_thread(sys.stdin.buffer.read)


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
