"""The process: both APIs and the control API over one cloud. It ends on request or with its
owner.
"""

import asyncio
import itertools
import json
import os
import shutil
import signal
import sys
from pathlib import Path

import grpc
import psutil

from tests.fakes.google import instances, limits, nodes
from tests.fakes.google.cloud import Cloud
from tests.fakes.google.compute_api import PREFIX, ComputeApi
from tests.fakes.google.control import Control
from tests.fakes.google.faults import Gate
from tests.fakes.google.http import Answer, Asked, listen
from tests.fakes.google.machines import Machines
from tests.fakes.google.tpu_api import handlers

#: Between two looks at what has fallen due, in seconds.
TICK = 0.02
#: The ticks between two looks whether the owner is alive: a look costs as much as all else.
OWNER_TICKS = 50
STEPS = nodes.STEPS | instances.STEPS


def settle(cloud: Cloud) -> None:
    """Whatever has fallen due by now happens."""
    for _, resource, what, operation in cloud.next_due():
        STEPS[what](cloud, resource, operation)
        cloud.touch(resource)
    for queued in limits.waiting_first(list(cloud.resources.values())):
        nodes.serve(cloud, queued)
    cloud.flush()


async def run(
    state: Path, boot: Path | None, tpu_port: int, http_port: int, owner: int, scratch: Path | None
) -> None:
    """Serve until SIGTERM, or until the process `owner` has ended (0: nobody's); then nobody else
    removes `scratch`.
    """
    machines = Machines(boot, owner) if boot else None
    cloud = Cloud(state, machines)
    if machines is not None:
        machines.cloud = cloud
    gate = Gate(cloud, lambda: settle(cloud))
    compute = ComputeApi(
        cloud,
        gate,
        lambda resource, worker: (
            machines.console(resource, worker) if machines else Path(os.devnull)
        ),
    )
    control = Control(cloud, machines, lambda: settle(cloud))

    async def answer(asked: Asked) -> Answer:
        return (
            await compute.answer(asked) if asked.path.startswith(PREFIX) else control.answer(asked)
        )

    server = grpc.aio.server(
        options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", 1 << 24)]
    )
    server.add_generic_rpc_handlers(handlers(cloud, gate))
    tpu_port = server.add_insecure_port(f"127.0.0.1:{tpu_port}")
    await server.start()
    http = await listen(answer, http_port)
    url = f"http://127.0.0.1:{http.sockets[0].getsockname()[1]}"
    addresses = {"tpu": f"grpc://127.0.0.1:{tpu_port}", "compute": url, "control": url}
    print(json.dumps(addresses), flush=True)  # noqa: T201

    end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end.set)
    alive = psutil.Process(owner).is_running if owner else lambda: True
    for tick in itertools.count():
        if end.is_set() or (tick % OWNER_TICKS == 0 and not alive()):
            break
        settle(cloud)
        if machines is not None:
            machines.reap()
        try:
            await asyncio.wait_for(end.wait(), TICK)
        except TimeoutError:
            continue
    for resource in list(cloud.resources.values()):
        cloud.power.off(resource)
    await server.stop(0)
    http.close()
    if scratch is not None and not end.is_set():
        for _ in range(100):  # hosts write there until they have ended
            if machines is None or not machines.reap():
                break
            await asyncio.sleep(TICK)
        shutil.rmtree(scratch, ignore_errors=True)
    sys.stdout.flush()
