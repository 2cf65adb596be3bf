"""Runs the hosts of one large slice in one process: each has a worker on its own queue, and every
attempt succeeds at once.

Unlike the hosts of `crowd` they are not agents: they report once, run nothing, and accept every
task of their queues.

    python -m benchmarks.standins ADDRESS CLUSTER SLICE COUNT
"""

import asyncio
import contextlib
import sys
import uuid

from temporalio import activity
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.worker import PollerBehaviorSimpleMaximum, Worker

from iris.client.connect.connection import connect
from iris.messages.slice import HostReady, SliceInput
from iris.messages.task import RunTask
from iris.model import names
from iris.model.host.constraints import TPU_NAME, TPU_WORKER_ID
from iris.model.host.resources import Device, DeviceKind, Resources
from iris.model.job.attempts import TaskOutcome
from iris.model.slice.status import SliceState
from iris.model.states import TaskState
from iris.worker_agents.host.probe import describe_host
from iris.workflows.search_attributes import keywords
from iris.workflows.slices.slice import SliceWorkflow

#: The number of hosts that share one connection.
PER_CONNECTION = 64
#: The resources of each host of the slice.
OFFERS = Resources(cpu_millis=8_000, device=Device(kind=DeviceKind.TPU, variant="v4-4096", count=4))


@activity.defn
async def run_task(task: RunTask) -> TaskOutcome:
    now = activity.info().started_time
    return TaskOutcome(state=TaskState.SUCCEEDED, exit_code=0, started_at=now, finished_at=now)


async def serve(address: str, cluster: str, slice_id: str, count: int) -> None:
    """Runs these hosts until standard input ends."""
    async with contextlib.AsyncExitStack() as stack:
        for number in range(count):
            if number % PER_CONNECTION == 0:
                client = await connect(address)
            host = describe_host(
                f"{slice_id}-w-{number}",
                OFFERS,
                {TPU_NAME: slice_id, TPU_WORKER_ID: number},
                slice_id=slice_id,
                address="127.0.0.1",
                incarnation=uuid.uuid4().hex,
            )
            worker = Worker(
                client,
                task_queue=names.host_queue(cluster, host.id),
                activities=[run_task],
                identity=names.worker_identity(host.id, host.incarnation),
                activity_task_poller_behavior=PollerBehaviorSimpleMaximum(1),
                max_concurrent_activities=1,
            )
            await stack.enter_async_context(worker)
            await client.start_workflow(
                SliceWorkflow.run,
                SliceInput(cluster=cluster, id=slice_id, size=count),
                id=names.slice_workflow(cluster, slice_id),
                task_queue=names.control_queue(cluster),
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                search_attributes=keywords(
                    {
                        names.SA_CLUSTER: cluster,
                        names.SA_KIND: names.KIND_SLICE,
                        names.SA_STATE: SliceState.REQUESTED,
                    }
                ),
                start_signal="host_ready",
                start_signal_args=[HostReady(host=host)],
            )
        await asyncio.to_thread(sys.stdin.buffer.read)


if __name__ == "__main__":
    address, cluster, slice_id, count = sys.argv[1:]
    asyncio.run(serve(address, cluster, slice_id, int(count)))
