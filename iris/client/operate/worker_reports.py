"""Reads the last report that Temporal has of each worker of a namespace."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import NamedTuple

from temporalio.api.worker.v1 import WorkerHeartbeat
from temporalio.api.workflowservice.v1 import ListWorkersRequest
from temporalio.service import RPCError, RPCStatusCode

from iris.client.connect.connection import RPC_TIMEOUT
from iris.client.connect.rpc import Connection
from iris.model import names
from iris.model.errors import Rejected

#: The maximum number of workers in one reply of the service.
PAGE = 1_000


class AgentReport(NamedTuple):
    """The last report of an agent. The times are by the agent's own clock."""

    reported_at: datetime
    started_at: datetime
    #: The used fraction of the whole machine's cores (`cpu`) and memory (`memory`), from 0 to 1.
    cpu: float = 0.0
    memory: float = 0.0

    @property
    def times(self) -> dict[str, datetime]:
        return {"reported_at": self.reported_at, "started_at": self.started_at}


async def agent_reports(connection: Connection) -> dict[tuple[str, str], AgentReport]:
    """Returns the last report of each agent, by (host, incarnation).

    Raises:
        Rejected: the service has no list of workers.
    """
    found: dict[tuple[str, str], AgentReport] = {}
    async for heartbeat in worker_reports(connection):
        host = names.host_of_queue(connection.record.name, heartbeat.task_queue)
        if host is None:
            continue
        agent = (host, names.incarnation_of(heartbeat.worker_identity))
        report = AgentReport(
            heartbeat.heartbeat_time.ToDatetime(UTC),
            heartbeat.start_time.ToDatetime(UTC),
            heartbeat.host_info.current_host_cpu_usage,
            heartbeat.host_info.current_host_mem_usage,
        )
        found[agent] = max(report, found.get(agent, report))
    return found


async def worker_reports(connection: Connection) -> AsyncIterator[WorkerHeartbeat]:
    """Yields the last report of each worker of the namespace. The report of a worker that was
    killed stays for some minutes.

    Raises:
        Rejected: the service has no list of workers.
        Unreachable: the service does not answer.
    """
    request = ListWorkersRequest(namespace=connection.client.namespace, page_size=PAGE)
    while True:
        with connection.rpc_errors():
            try:
                response = await connection.client.workflow_service.list_workers(
                    request, timeout=RPC_TIMEOUT
                )
            except RPCError as error:
                if error.status is not RPCStatusCode.UNIMPLEMENTED:
                    raise
                raise Rejected(
                    f"the Temporal service at {connection.record.address} has no list of workers"
                ) from None
        for info in response.workers_info:
            yield info.worker_heartbeat
        if not response.next_page_token:
            return
        request.next_page_token = response.next_page_token
