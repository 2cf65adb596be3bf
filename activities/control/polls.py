"""Reads when agents last polled their task queues.

Every version of the service lists polls, also one that has neither reports of workers nor
standalone activities. But polls are a coarse measure: only the begin of a poll is known, an idle
poll lasts a minute, and the poll of a dead agent is listed for minutes.
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

#: The most task queues that one observation reads. Later observations read the others.
MAX_READ = 1_000
#: The most task queues that are read at the same time. Temporal allows 2,400 requests a second in a
#: namespace by default.
AT_ONCE = 50


async def poll_ages(
    client: Client, cluster: str, hosts: Iterable[Silent]
) -> dict[tuple[str, str], float | None]:
    """Returns, by (host, incarnation), how many seconds ago each agent began its last poll; None if
    the service lists no poll of it.

    The age is wrong by the difference between this machine's clock and the service's, which
    `POLL_LIMIT` allows for.

    Raises:
        RPCError: the service does not answer.
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
