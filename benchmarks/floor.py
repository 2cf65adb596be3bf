"""The floor: what the same server, SDK and settings take for a workflow with one trivial activity and nothing else.

As with Iris, workflows and activities are served by different processes, connected through the same plugin. Everything else is
as the SDK has it by default.

    python -m benchmarks.floor ADDRESS workflows|activities
"""

import asyncio
import sys
import time
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

from iris.client.connection import connect

WORKFLOW_QUEUE = "floor/workflows"
ACTIVITY_QUEUE = "floor/activities"


@activity.defn
async def started() -> int:
    """When this ran: the first thing it does."""
    return time.time_ns()


@workflow.defn
class FloorWorkflow:
    @workflow.run
    async def run(self) -> int:
        return await workflow.execute_activity(started, task_queue=ACTIVITY_QUEUE, start_to_close_timeout=timedelta(minutes=1))


async def start(client: Client, workflow_id: str) -> WorkflowHandle[FloorWorkflow, int]:
    return await client.start_workflow(FloorWorkflow.run, id=workflow_id, task_queue=WORKFLOW_QUEUE)


async def serve(address: str, role: str) -> None:
    """Be a worker until standard input ends: it does when the benchmark does, however that ends."""
    client = await connect(address)
    if role == "workflows":
        worker = Worker(client, task_queue=WORKFLOW_QUEUE, workflows=[FloorWorkflow], max_cached_workflows=5_000)
    else:
        worker = Worker(client, task_queue=ACTIVITY_QUEUE, activities=[started])
    async with worker:
        await asyncio.to_thread(sys.stdin.buffer.read)


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
