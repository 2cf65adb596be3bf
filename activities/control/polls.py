"""Reads when agents last polled their task queues.

A poll is evidence that every version of the service gives, also if it has neither the workers'
reports nor standalone activities. It is coarse: the service tells when a poll began, an idle one
lasts a minute, and that of a dead agent is listed for minutes.
"""

import time
from collections.abc import Iterable
from functools import partial

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from iris.autoscaling.liveness import Silent
from iris.concurrency import for_each
from iris.model import names

#: The most task queues read in one observation. Hosts beyond it are read in a later one.
MAX_READ = 1_000
#: How many are read at once. Temporal's default limit of a namespace is 2,400 requests a second.
AT_ONCE = 50


async def poll_ages(
    client: Client, cluster: str, hosts: Iterable[Silent]
) -> dict[tuple[str, str], float | None]:
    """Returns, by (host, incarnation), how many seconds ago each agent began its last poll; None:
    the service lists no poll.

    The age is by this machine's clock and the service's; it is exact to their difference, which
    `POLL_LIMIT` allows for.

    Raises:
        RPCError: the service does not answer, so nothing is known of the hosts.
    """
    some = list(hosts)[:MAX_READ]
    ages = await for_each(some, partial(_poll_age, client, cluster), at_once=AT_ONCE)
    return {host.agent: age for host, age in zip(some, ages, strict=True)}


async def _poll_age(client: Client, cluster: str, host: Silent) -> float | None:
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=names.host_queue(cluster, host.host_id)),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
    )
    try:
        described = await client.workflow_service.describe_task_queue(request)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise
    identity = names.worker_identity(host.host_id, host.incarnation)
    began = [
        poll.last_access_time.ToMilliseconds() / 1000
        for poll in described.pollers
        if poll.identity == identity
    ]
    return max(0.0, time.time() - max(began)) if began else None
