"""Runs many agents in one process, for clusters with more hosts than one machine can have
processes.

Each agent is a real incarnation: it has its own connection and identity, its own worker on its own
queue and its slice's workflow, and it checks whether it is still a member of the cluster. It has no
process of its own, takes no lock, and never runs a task.

    python -m benchmarks.crowd ADDRESS CLUSTER STORE DIRECTORY FIRST COUNT
"""

import asyncio
import sys
from pathlib import Path

from iris.activities.host.machine.accelerators import Accelerators
from iris.activities.host.machine.gpu_health import GpuHealth
from iris.client.connect.connection import connect
from iris.model import names
from iris.storage.object_store import Store
from iris.worker_agents.host.agent import StopRequest, _Incarnation
from iris.worker_agents.host.agent_options import AgentOptions
from iris.worker_agents.host.probe import describe_host, new_incarnation, probe

#: The most agents that join at once: each join starts a workflow and calls the scheduler.
AT_ONCE = 8


async def serve(
    address: str, cluster: str, store: str, directory: Path, first: int, count: int
) -> None:
    """Runs these hosts until standard input ends."""
    stop, joining = asyncio.Event(), asyncio.Semaphore(AT_ONCE)
    resources = probe(directory)

    async def live(number: int) -> None:
        options = AgentOptions(
            address=address,
            namespace="default",
            cluster=cluster,
            store=store,
            host_id=f"crowd-{number}",
            directory=directory,
        )
        host = describe_host(
            options.host_id, resources, {}, incarnation=new_incarnation(), accept_cpu_jobs=False
        )
        async with joining:
            client = await connect(
                address, identity=names.worker_identity(host.id, host.incarnation)
            )
        stop_request = StopRequest(stop)
        await _Incarnation(
            client,
            Store(store),
            options,
            Accelerators(),
            GpuHealth(),
            None,
            lambda: None,
            host,
            stop_request,
        ).run()

    hosts = [asyncio.create_task(live(number)) for number in range(first, first + count)]
    await asyncio.to_thread(sys.stdin.buffer.read)
    for task in hosts:
        task.cancel()  # without a clean stop of each agent, because the cluster ends too
    await asyncio.wait(hosts, timeout=5)


if __name__ == "__main__":
    address, cluster, store, directory, first, count = sys.argv[1:]
    asyncio.run(serve(address, cluster, store, Path(directory), int(first), int(count)))
