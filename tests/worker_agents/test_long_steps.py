"""The planners may compute longer than the SDK lets workflows do."""

import asyncio
import time

from temporalio import workflow
from temporalio.worker import Worker

from iris.worker_agents.control_plane.serve import allow_long_steps
from iris.workflows import policies
from tests.harness import dev_server_cluster

#: The SDK takes a workflow for deadlocked after two seconds.
LONGER = 2.5


def compute() -> None:
    """Takes as long as reading a large ledger on a slow machine."""
    time.sleep(LONGER)


@workflow.defn
class Slow:
    @workflow.run
    async def run(self) -> None:
        compute()


async def test_a_step_that_takes_longer_than_the_limit_of_the_sdk_ends() -> None:
    """The ledger of a large cluster takes seconds to read on a slow machine. Each try would take
    as long, so the cluster would stand still.
    """
    async with dev_server_cluster() as cluster:
        worker = Worker(cluster.client, task_queue="slow", workflows=[Slow])
        allow_long_steps(worker, policies.PLANNER_TASK)
        async with worker:
            slow = await cluster.client.start_workflow(
                Slow.run, id="slow", task_queue="slow", task_timeout=policies.PLANNER_TASK
            )
            await asyncio.wait_for(slow.result(), policies.PLANNER_TASK.total_seconds())
        types = [event.WhichOneof("attributes") async for event in slow.fetch_history_events()]
        assert not [each for each in types if each and "task_failed" in each]
