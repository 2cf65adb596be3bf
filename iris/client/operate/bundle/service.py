"""Reads what the Temporal service knows of a cluster's workflows, without the payloads, for a
bundle. A payload may have a command, an environment, or a program's result.
"""

from collections import deque
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeTaskQueueRequest,
    GetClusterInfoRequest,
    GetSystemInfoRequest,
)
from temporalio.service import RPCError, RPCStatusCode

from iris.client.connect.connection import RPC_TIMEOUT
from iris.client.connect.rpc import Connection
from iris.model import names
from iris.model.errors import NotFound

#: The maximum number of events of a workflow's history in a bundle. If the history has more, its
#: first events are left out, because the last ones show the fault.
MAX_EVENTS = 5_000
#: The Protobuf messages of Temporal's API that are payloads or consist of payloads.
_PAYLOADS = {
    f"temporal.api.{name}"
    for name in (
        *("common.v1.Payload", "common.v1.Payloads", "common.v1.Header", "common.v1.Memo"),
        *("common.v1.SearchAttributes", "sdk.v1.UserMetadata"),
    )
}


def without_payloads(message: Message) -> dict[str, Any]:
    """Returns a message of Temporal as JSON, without its payloads."""
    copy = type(message)()
    copy.CopyFrom(message)
    _clear_payloads(copy)
    found: dict[str, Any] = MessageToDict(copy)
    return found


def _clear_payloads(message: Message) -> None:
    for field, value in message.ListFields():
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            kind = kind.fields_by_name["value"].message_type
            value = value.values()
        if kind is None:
            continue
        if kind.full_name in _PAYLOADS:
            message.ClearField(field.name)
            continue
        for each in [value] if isinstance(value, Message) else value:
            _clear_payloads(each)


async def server_facts(connection: Connection) -> dict[str, Any]:
    """Returns the version and the settings of the service, and who polls the cluster's task queues.

    Raises:
        Unreachable: the service does not answer.
    """
    service, namespace = connection.client.workflow_service, connection.client.namespace
    cluster = connection.record.name
    with connection.rpc_errors():
        found = {
            "system": await service.get_system_info(GetSystemInfoRequest(), timeout=RPC_TIMEOUT),
            "cluster": await service.get_cluster_info(GetClusterInfoRequest(), timeout=RPC_TIMEOUT),
            "namespace": await service.describe_namespace(
                DescribeNamespaceRequest(namespace=namespace), timeout=RPC_TIMEOUT
            ),
        }
        queues = {}
        for queue in (
            names.control_queue(cluster),
            names.planner_queue(cluster),
            names.patient_queue(cluster),
        ):
            for kind in (
                TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
                TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
            ):
                request = DescribeTaskQueueRequest(
                    namespace=namespace,
                    task_queue=TaskQueue(name=queue),
                    task_queue_type=kind,
                    report_stats=True,
                )
                described = await service.describe_task_queue(request, timeout=RPC_TIMEOUT)
                queues[f"{queue} {TaskQueueType.Name(kind)}"] = without_payloads(described)
    return {**{name: without_payloads(each) for name, each in found.items()}, "queues": queues}


async def workflow_facts(connection: Connection, workflow_id: str) -> dict[str, Any]:
    """Returns the state of a workflow: the length of its history, and its pending tasks.

    Raises:
        NotFound: there is no such workflow.
        Unreachable: the service does not answer.
    """
    with connection.rpc_errors():
        try:
            described = await connection.workflow(workflow_id).describe()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            raise NotFound(f"there is no workflow {workflow_id}") from None
    return without_payloads(described.raw_description)


async def history_of(connection: Connection, workflow_id: str) -> list[dict[str, Any]]:
    """Returns the last events of a workflow's latest run.

    Raises:
        Unreachable: the service does not answer.
    """
    events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)
    with connection.rpc_errors():
        async for event in connection.workflow(workflow_id).fetch_history_events():
            events.append(without_payloads(event))
    return list(events)
