"""Runs the floor: a workflow with one trivial activity and nothing else, on the same server, with
the same SDK and settings.

As with Iris, different processes serve workflows and activities, and they connect through the same
plugin. Everything else has the SDK's defaults.

    python -m benchmarks.floor ADDRESS workflows|activities [AT_ONCE]

With AT_ONCE, the worker runs at most so many activities at the same time.
"""

import asyncio
import sys
import time
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

from iris.client.connect.connection import connect
from iris.client.connect.plugin import IrisPlugin

WORKFLOW_QUEUE = "floor/workflows"
ACTIVITY_QUEUE = "floor/activities"


@activity.defn
async def started() -> int:
    """Returns the time at which it starts."""
    return time.time_ns()


@workflow.defn
class FloorWorkflow:
    @workflow.run
    async def run(self) -> int:
        return await workflow.execute_activity(
            started, task_queue=ACTIVITY_QUEUE, start_to_close_timeout=timedelta(minutes=1)
        )


async def start(client: Client, workflow_id: str) -> WorkflowHandle[FloorWorkflow, int]:
    return await client.start_workflow(FloorWorkflow.run, id=workflow_id, task_queue=WORKFLOW_QUEUE)


async def serve(address: str, role: str, at_once: str | None = None) -> None:
    """Runs a worker until standard input ends. That happens whenever the benchmark ends, even by a
    crash.
    """
    client = await connect(address, plugins=[IrisPlugin()])
    if role == "workflows":
        worker = Worker(
            client, task_queue=WORKFLOW_QUEUE, workflows=[FloorWorkflow], max_cached_workflows=5_000
        )
    else:
        limit = int(at_once) if at_once is not None else None
        worker = Worker(
            client,
            task_queue=ACTIVITY_QUEUE,
            activities=[started],
            max_concurrent_activities=limit,
        )
    async with worker:
        await asyncio.to_thread(sys.stdin.buffer.read)


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
