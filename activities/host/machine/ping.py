"""Checks whether agents take work, through the task queues from which they take it.

No other check is both fast and reliable: an agent's first report takes ten seconds, and the server
lists the poll of a frozen agent for a minute. The activity `ping` is standalone (it belongs to no
workflow), so it adds nothing to a history.
"""

import asyncio
import uuid
from collections.abc import Iterable
from datetime import timedelta

from temporalio import activity
from temporalio.client import ActivityFailureError, Client
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from iris.autoscaling.liveness import PING_TIMEOUT, Silent
from iris.model import names
from iris.model.host.hosts import Host

#: The time limit of one try to ping a host. If the agent was cut off from the service, the first
#: try may be lost: the service hands it to a poll for which the agent no longer waits.
TRY = timedelta(seconds=1.5)
TRIES = RetryPolicy(
    initial_interval=timedelta(milliseconds=100), backoff_coefficient=1, maximum_attempts=3
)
#: The maximum number of hosts that one observation pings. The next observation, a second later,
#: pings the other hosts.
MAX_PINGED = 500


class Ping:
    """The activity `ping`, with which one incarnation of a host shows that it is alive."""

    def __init__(self, host: Host) -> None:
        self._host = host

    @activity.defn
    async def ping(self, incarnation: str) -> bool:
        """Returns True if this is still the current incarnation of the host."""
        return incarnation == self._host.incarnation


async def ask(
    client: Client, cluster: str, hosts: Iterable[Silent]
) -> dict[tuple[str, str], bool | None]:
    """Pings hosts. Returns for each pinged (host, incarnation) whether it has answered.

    The value is None if the service cannot ping: before 1.32 it has no standalone activities.

    Raises:
        RPCError: the service does not answer, so nothing is known about the hosts.
    """
    pinged = list(hosts)[:MAX_PINGED]
    answers = await asyncio.gather(*(_answers(client, cluster, host) for host in pinged))
    return {host.agent: answer for host, answer in zip(pinged, answers, strict=True)}


async def _answers(client: Client, cluster: str, host: Silent) -> bool | None:
    queue = names.host_queue(cluster, host.host_id)
    try:
        handle = await client.start_activity_method(
            Ping.ping,
            host.incarnation,
            id=f"{queue}/ping/{uuid.uuid4().hex}",
            task_queue=queue,
            schedule_to_close_timeout=PING_TIMEOUT,
            start_to_close_timeout=TRY,
            retry_policy=TRIES,
            summary=f"whether host {host.host_id} is there",
        )
        return await handle.result()
    except ActivityFailureError as error:
        # An agent that answers with an error is there.
        return isinstance(error.cause, ApplicationError)
    except RPCError as error:
        if error.status is RPCStatusCode.UNIMPLEMENTED:
            return None
        raise
