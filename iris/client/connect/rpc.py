"""Queries and updates of a cluster's workflows, and the conversion of RPC errors to errors for users."""

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

from iris.client.connect.clusters import ClusterRecord
from iris.messages.scheduler import Answers, Batch, Message
from iris.model import names
from iris.model.errors import Rejected, Unreachable
from iris.model.hosts import Host

#: How long a query or update may take before the control plane counts as unreachable.
ASK_TIMEOUT = timedelta(seconds=10)
T = TypeVar("T")
_GONE = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED, RPCStatusCode.FAILED_PRECONDITION)


class Asking:
    """A connection to one cluster that can query and update the cluster's workflows."""

    def __init__(self, client: Client, cluster: ClusterRecord) -> None:
        self._client = client
        self.cluster = cluster

    @classmethod
    def of(cls, client: "Asking") -> Self:
        """Creates a client of this class that shares the connection of another one."""
        return cls(client._client, client.cluster)

    async def tell_scheduler(self, message: Message) -> None:
        """Sends one message to the scheduler and waits for its answer.

        Raises:
            Rejected: the scheduler refuses the message; the error has its reason.
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
        """Queries the scheduler.

        Raises:
            Unreachable: no control plane answers.
        """
        return await self._query(
            self._client.get_workflow_handle(names.scheduler_workflow(self.cluster.name)), query, argument, result
        )

    async def polls(self, host: Host) -> bool:
        """Returns whether this incarnation of the host polls its task queue. After a power cut the scheduler can still list old
        incarnations.

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
        """Converts NOT_FOUND for a planner's workflow to `Unreachable`. Returns any other error unchanged."""
        if error.status is not RPCStatusCode.NOT_FOUND:
            return error
        return Unreachable(f"the control plane of cluster {self.cluster.name} has not started: {error.message}")


@contextlib.asynccontextmanager
async def reaching(cluster: ClusterRecord) -> AsyncIterator[None]:
    """Converts RPC errors of a service that does not answer to `Unreachable`."""
    try:
        yield
    except RPCError as error:
        if error.status in _GONE:
            raise Unreachable(f"cluster {cluster.name} at {cluster.address} does not answer: {error.message}") from None
        raise
