"""Measures the time from submission to the program's start on an idle cluster, by the wall clock
that all processes here share.

The program is `date`, which only prints the time (GNU `date`: in nanoseconds). Its output is read
from the last lines in the attempt's outcome. The outcome also has `started_at`, the time at which
the agent took the attempt and began to start the program. On the floor the start is the first line
of the activity. Jobs and floor workflows take turns, one at a time.
"""

import asyncio
import secrets
import time
from dataclasses import dataclass
from statistics import median

from benchmarks import floor
from benchmarks.ground import Ground, beside_floor, official_beside_floor
from benchmarks.table import Row
from iris.client.client import AsyncIrisClient
from iris.client.connect.connection import connect
from iris.model.job.attempts import TaskOutcome
from iris.model.job.spec import JobSpec

#: The seconds between two starts, so that each finds the cluster idle.
PAUSE = 0.1
WARM_UP = 5
STAMP = ("date", "+%s%N")


@dataclass(frozen=True)
class Start:
    """The milliseconds from submission until the agent took the job, and until its program ran."""

    taken: float
    running: float


def measure(*, quick: bool) -> list[Row]:
    with beside_floor() as ground:
        return asyncio.run(_measure(ground, 20 if quick else 100))


def measure_official(*, quick: bool) -> list[Row]:
    with official_beside_floor() as ground:
        return asyncio.run(_measure(ground, 20 if quick else 100))


async def _measure(ground: Ground, count: int) -> list[Row]:
    iris, temporal = await ground.client(), await connect(ground.record.address)
    bare: list[float] = []
    jobs: list[Start] = []
    for _ in range(WARM_UP + count):
        begun = time.time_ns()
        handle = await floor.start(temporal, f"latency-{secrets.token_hex(4)}")
        bare.append((await handle.result() - begun) / 1e6)
        await asyncio.sleep(PAUSE)
        jobs.append(await start_of(iris))
        await asyncio.sleep(PAUSE)
    bare, jobs = bare[WARM_UP:], jobs[WARM_UP:]
    running = sorted(job.running for job in jobs)
    return [
        Row(
            "p50 submit → program starts, ms",
            median(running),
            median(bare),
            3.0,
            note=(
                f"p95 {running[len(running) * 95 // 100]:.0f}, floor's"
                f" {sorted(bare)[len(bare) * 95 // 100]:.0f}; the program's own timestamp"
            ),
        ),
        Row(
            "p50 submit → agent takes the attempt, ms",
            median(job.taken for job in jobs),
            median(bare),
            note="the agent's started_at",
        ),
    ]


async def start_of(client: AsyncIrisClient) -> Start:
    """Submits a job, waits for its end, and returns when it started."""
    spec = JobSpec(user="bench", name=f"latency-{secrets.token_hex(4)}", command=STAMP)
    begun = time.time_ns()
    submitted = await client.jobs.submit(spec)
    await client.jobs.wait_until_ended(submitted.id, submitted.run_id)
    outcome = await _outcome(client, submitted.workflow_id)
    assert outcome.started_at is not None
    taken = outcome.started_at.timestamp() * 1e3 - begun / 1e6
    return Start(taken, (int(outcome.last_lines) - begun) / 1e6)


async def _outcome(client: AsyncIrisClient, workflow_id: str) -> TaskOutcome:
    temporal = await connect(client.record.address)
    attempt = 0
    async for event in temporal.get_workflow_handle(workflow_id).fetch_history_events():
        if event.activity_task_scheduled_event_attributes.activity_type.name == "run_task":
            attempt = event.event_id
        ended = event.activity_task_completed_event_attributes
        if attempt and ended.scheduled_event_id == attempt:
            payloads = ended.result.payloads
            (outcome,) = await temporal.data_converter.decode(payloads, [TaskOutcome])
            assert isinstance(outcome, TaskOutcome)
            return outcome
    raise LookupError(f"{workflow_id} has no outcome")
