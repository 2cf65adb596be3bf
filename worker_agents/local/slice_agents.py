"""Runs the agents of all simulated hosts of one slice in one process.

Only the process is shared. Each host has its own connection, identity, worker, queue, lock,
directory, attempts and log in the store. A signal to the process reaches all of its agents. If the
process is killed, no host of the slice has an agent until the supervisor has started the process
again. The next process continues with the running programs of every host.
"""

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

from iris.concurrency import pause
from iris.model.errors import IrisError
from iris.platforms.local import agent_directory, read_request, simulated_hosts
from iris.processes.children import RESTARTS
from iris.worker_agents.host.agent import StopRequest, prepare_process, serve_host
from iris.worker_agents.host.agent_options import AgentOptions
from iris.worker_agents.logging_setup import host_of_context

logger = logging.getLogger(__name__)


def agents_of_slice(home: Path, common: AgentOptions) -> Iterator[AgentOptions]:
    """Yields the options of the agent of each host of a slice.

    Args:
        home: the directory of the slice, which the local platform has written.
        common: what all of them have in common.

    Raises:
        FileNotFoundError, Unreadable: as in `read_request`.
    """
    request = read_request(home)
    for host in simulated_hosts(request):
        yield common.model_copy(
            update={
                "host_id": host.id,
                "host_address": host.address,
                "directory": agent_directory(home, host.id),
                "cpu_millis": host.resources.cpu_millis,
                "memory_bytes": host.resources.memory_bytes,
                "disk_bytes": host.resources.disk_bytes,
                "device": host.resources.device,
                "attributes": host.attributes,
                "accept_cpu_jobs": host.accept_cpu_jobs,
                "image": request.group.task_image or None,
            }
        )


async def serve_slice(agents: Sequence[AgentOptions]) -> None:
    """Runs these agents until SIGTERM or SIGINT, or until SIGHUP, which leaves the running programs
    to the next process.

    An agent that fails is started again after a delay, as the supervisor starts a process again,
    and the others continue.
    """
    stop_request = prepare_process(len(agents))
    async with asyncio.TaskGroup() as running:
        for options in agents:
            running.create_task(_keep(options, stop_request))


async def _keep(options: AgentOptions, stop_request: StopRequest) -> None:
    host_of_context.set(options.host_id)
    delay = timedelta()
    while not stop_request.event.is_set():
        began = time.monotonic()
        try:
            await serve_host(options, stop_request)
        except IrisError as error:
            logger.warning("the agent has ended: %s", error)
        except Exception:  # a fault in one agent must not end those of the other hosts
            logger.exception("the agent has failed")
        delay = RESTARTS.after(timedelta(seconds=time.monotonic() - began), delay)
        await pause(stop_request.event, delay)
