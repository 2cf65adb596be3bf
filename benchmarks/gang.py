"""Measures a large gang: all its tasks are placed at once on one slice, start together, and roll up
into one job state.

The server, the control plane and every message are real. The hosts are stand-ins in one process,
and their attempts end at once. So the result is the time that Iris itself takes to start and to end
that many tasks.
"""

import asyncio
import secrets
import time

from benchmarks.events import count_events
from benchmarks.ground import Ground, child, cluster
from benchmarks.idle import all_there
from benchmarks.standins import OFFERS
from benchmarks.table import Row
from iris.client.client import AsyncIrisClient
from iris.client.connect.connection import connect
from iris.model import names
from iris.model.host.constraints import TPU_NAME
from iris.model.job.spec import Coscheduling, JobSpec
from iris.model.states import JobState

TIMES = 5
SLICE = "bench-slice"


def measure(*, quick: bool) -> list[Row]:
    tasks = 64 if quick else 512
    with cluster(0) as ground:
        where = (ground.record.address, ground.record.name, SLICE, str(tasks))
        with child("benchmarks.standins", where):
            return asyncio.run(_measure(ground, tasks))


async def _measure(ground: Ground, tasks: int) -> list[Row]:
    iris, temporal = await ground.client(), await connect(ground.record.address)
    await all_there(iris, tasks)
    took = []
    for _ in range(TIMES):
        seconds, workflow_id = await _one(iris, tasks)
        took.append(seconds)
    events = sum((await count_events(temporal, f"WorkflowId = '{workflow_id}'")).values())
    took.sort()
    times = " ".join(f"{seconds:.2f}" for seconds in took)
    return [
        Row(
            f"gang of {tasks}, submit → SUCCEEDED, s",
            took[len(took) // 2],
            format="{:.2f}",
            note=f"of {TIMES}: {times}",
        ),
        Row(
            f"gang of {tasks}, events in the job's history",
            events,
            format="{:.0f}",
            note=f"{events / tasks:.2f} per task",
        ),
    ]


async def _one(iris: AsyncIrisClient, tasks: int) -> tuple[float, str]:
    """Returns the seconds until the gang has ended, and the id of its workflow."""
    spec = JobSpec(
        user="bench",
        name=f"gang-{secrets.token_hex(4)}",
        command=("true",),
        resources=OFFERS,
        replicas=tasks,
        coscheduling=Coscheduling(group_by=TPU_NAME),
    )
    began = time.perf_counter()
    submitted = await iris.jobs.submit(spec)
    await iris.jobs.wait_until_ended(submitted.id, submitted.run_id)
    seconds = time.perf_counter() - began
    status = await iris.jobs.final_status(submitted.id, submitted.run_id)
    assert status.state is JobState.SUCCEEDED, status.reason
    assert len(status.tasks) == tasks
    return seconds, names.job_workflow(iris.record.name, submitted.id)
