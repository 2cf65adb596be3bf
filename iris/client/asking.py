"""Questions to workflows, and what is said when nobody answers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Self, TypeVar

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import (
    Client,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.service import RPCError, RPCStatusCode

from iris import names
from iris.client.clusters import ClusterRecord
from iris.errors import Rejected, Unreachable
from iris.hosts import Host
from iris.workflows.messages import Answers, Batch, Message

#: How long a question to a workflow may take before the control plane counts as away.
ASK_TIMEOUT = timedelta(seconds=10)
T = TypeVar("T")
_GONE = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED, RPCStatusCode.FAILED_PRECONDITION)


class Asking:
    """Whoever asks the workflows of one cluster."""

    def __init__(self, client: Client, cluster: ClusterRecord) -> None:
        self._client = client
        self.cluster = cluster

    @classmethod
    def of(cls, client: "Asking") -> Self:
        """The same connection, with other eyes."""
        return cls(client._client, client.cluster)

    async def tell_scheduler(self, message: Message) -> None:
        """Say one thing to the scheduler, at once.

        Raises:
            Rejected: it makes no sense to it; the error says why.
            Unreachable: no control plane answers.
        """
        scheduler = self._client.get_workflow_handle(names.scheduler_workflow(self.cluster.name))
        async with reaching(self.cluster):
            try:
                reply = await asyncio.wait_for(
                    scheduler.execute_update("exchange", Batch(messages=(message,)), result_type=Answers),
                    ASK_TIMEOUT.total_seconds(),
                )
            except (TimeoutError, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
                raise Unreachable(f"the control plane of cluster {self.cluster.name} does not answer: {error}") from None
            except RPCError as error:
                raise self._not_started(error) from None
        if reply.answers[0].problem:
            raise Rejected(reply.answers[0].problem)

    async def ask_scheduler(self, query: str, argument: Any, result: type[T]) -> T:
        """Ask the scheduler something.

        Raises:
            Unreachable: no control plane answers.
        """
        return await self._query(
            self._client.get_workflow_handle(names.scheduler_workflow(self.cluster.name)), query, argument, result
        )

    async def polls(self, host: Host) -> bool:
        """Whether this incarnation of the host asks for work: after a power cut the book may name those that were there before.

        Raises:
            Unreachable: the service does not answer.
        """
        request = DescribeTaskQueueRequest(
            namespace=self._client.namespace,
            task_queue=TaskQueue(name=names.host_queue(self.cluster.name, host.id)),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
        )
        async with reaching(self.cluster):
            described = await self._client.workflow_service.describe_task_queue(request, timeout=ASK_TIMEOUT)
        return any(poller.identity == names.worker_identity(host.id, host.incarnation) for poller in described.pollers)

    async def _query(self, handle: WorkflowHandle[Any, Any], query: str, argument: Any, result: type[T]) -> T:
        arguments = [] if argument is None else [argument]
        async with reaching(self.cluster):
            try:
                answer: T = await handle.query(query, args=arguments, result_type=result, rpc_timeout=ASK_TIMEOUT)
                return answer
            except (WorkflowQueryFailedError, WorkflowQueryRejectedError) as error:
                raise Unreachable(f"the control plane of cluster {self.cluster.name} could not answer: {error}") from None
            except RPCError as error:
                raise self._not_started(error) from None

    def _not_started(self, error: RPCError) -> Unreachable | RPCError:
        """What a workflow that is not there says of its cluster; any other error is itself."""
        if error.status is not RPCStatusCode.NOT_FOUND:
            return error
        return Unreachable(f"the control plane of cluster {self.cluster.name} has not started: {error.message}")


@contextlib.asynccontextmanager
async def reaching(cluster: ClusterRecord) -> AsyncIterator[None]:
    """Turn what a client's library says of an absent service into what a user can act on."""
    try:
        yield
    except RPCError as error:
        if error.status in _GONE:
            raise Unreachable(f"cluster {cluster.name} at {cluster.address} does not answer: {error.message}") from None
        raise
