"""Many agents in one process, for clusters with more hosts than one machine can have processes.

Each is a real incarnation of the agent: its own connection and identity, its own worker on its own queue, its slice's workflow,
its looks at whether it is still counted in. What it lacks is a process: no keeper, no lock, and nothing is ever run on it.

    python -m benchmarks.crowd ADDRESS CLUSTER STORE DIRECTORY FIRST COUNT
"""

import asyncio
import sys
from pathlib import Path

from iris import names
from iris.client.connection import connect
from iris.store import Store
from iris.worker_agents import host as agent
from iris.worker_agents.probe import describe_host, probe

#: Joining at once: each join is a workflow and an exchange.
AT_ONCE = 8


async def serve(address: str, cluster: str, store: str, directory: Path, first: int, count: int) -> None:
    """Be these hosts until standard input ends."""
    stop, joining = asyncio.Event(), asyncio.Semaphore(AT_ONCE)
    resources = probe(directory)

    async def live(number: int) -> None:
        options = agent.AgentOptions(
            address=address, namespace="default", cluster=cluster, store=store, host_id=f"crowd-{number}", directory=directory
        )
        host = describe_host(options.host_id, resources, {}, accept_cpu_jobs=False)
        async with joining:
            client = await connect(address, identity=names.worker_identity(host.id, host.incarnation))
        await agent._Incarnation(client, Store(store), options, host, stop).live()

    hosts = [asyncio.create_task(live(number)) for number in range(first, first + count)]
    await asyncio.to_thread(sys.stdin.buffer.read)
    for task in hosts:
        task.cancel()  # not one by one with a farewell: the cluster they would say it to ends too
    await asyncio.wait(hosts, timeout=5)


if __name__ == "__main__":
    address, cluster, store, directory, first, count = sys.argv[1:]
    asyncio.run(serve(address, cluster, store, Path(directory), int(first), int(count)))
