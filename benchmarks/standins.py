"""The hosts of one large slice in one process: each with its worker on its own queue, and every attempt succeeds at once.

Unlike those of the crowd they are no agents: they report once, run nothing, and take whatever their queues have.

    python -m benchmarks.standins ADDRESS CLUSTER SLICE COUNT
"""

import asyncio
import contextlib
import sys

from temporalio import activity
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.worker import PollerBehaviorSimpleMaximum, Worker

from iris import names
from iris.client.connection import connect
from iris.constraints import TPU_NAME, TPU_WORKER_ID
from iris.jobs import TaskOutcome
from iris.resources import Device, DeviceKind, Resources
from iris.slices import SliceState
from iris.states import TaskState
from iris.worker_agents.probe import describe_host
from iris.workflows.attributes import keywords
from iris.workflows.fleet_messages import HostReady, SliceInput
from iris.workflows.messages import RunTask
from iris.workflows.slice import SliceWorkflow

#: Hosts that report through one connection.
PER_CONNECTION = 64
#: What each host of the slice has.
OFFERS = Resources(cpu_millis=8_000, device=Device(kind=DeviceKind.TPU, variant="v4-4096", count=4))


@activity.defn
async def run_task(task: RunTask) -> TaskOutcome:
    now = activity.info().started_time
    return TaskOutcome(state=TaskState.SUCCEEDED, exit_code=0, started_at=now, finished_at=now)


async def serve(address: str, cluster: str, slice_id: str, count: int) -> None:
    """Be these hosts until standard input ends."""
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
                    {names.SA_CLUSTER: cluster, names.SA_KIND: names.KIND_SLICE, names.SA_STATE: SliceState.REQUESTED}
                ),
                start_signal="host_ready",
                start_signal_args=[HostReady(host=host)],
            )
        await asyncio.to_thread(sys.stdin.buffer.read)


if __name__ == "__main__":
    address, cluster, slice_id, count = sys.argv[1:]
    asyncio.run(serve(address, cluster, slice_id, int(count)))
