"""Reads the resource use of running tasks from their hosts' heartbeats. Asks only the Temporal
service.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from pydantic import Field
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.service import RPCError, RPCStatusCode

from iris.client.connect.rpc import Connection
from iris.concurrency import for_each
from iris.model import names
from iris.model.frozen import Frozen
from iris.model.job.status import JobStatus, TaskStatus
from iris.model.states import TaskState

#: The maximum number of tasks whose workflows are described at the same time.
AT_ONCE = 20
_ON_HOSTS = (TaskState.ASSIGNED, TaskState.BUILDING, TaskState.RUNNING)
_RUN_TASK = "run_task"


class InUse(Frozen):
    """The resource use of one task, as its host's last heartbeat reported it. A field is None until
    the host reports it.
    """

    task: int
    host: str
    #: The time of the heartbeat.
    at: datetime | None = None
    pid: int | None = None
    #: The CPU use in the last seconds, in percent of one core.
    cpu_percent: float | None = None
    memory_bytes: int | None = None
    #: The maximum memory use so far.
    peak_memory_bytes: int | None = None
    processes: int | None = None
    #: The mean use of the task's GPUs, in percent. None if the task has no GPU, or if their use is
    #: not known.
    gpu_percent: float | None = None
    #: The memory in use on all GPUs of the task, summed up.
    gpu_memory_bytes: int | None = None
    ports: dict[str, int] = Field(default_factory=dict)


async def usage_of(connection: Connection, status: JobStatus) -> list[InUse]:
    """Returns the resource use of each task that is on a host now.

    Raises:
        Unreachable: the service does not answer.
    """
    on_hosts = {
        task.index: task
        for task in status.tasks
        if task.state in _ON_HOSTS and task.host is not None
    }
    found = await _heartbeats(
        connection, names.job_workflow(connection.record.name, status.id), on_hosts.values()
    )

    async def of_own_workflow(task: TaskStatus) -> dict[int, InUse]:
        task_id = names.task_id(status.id, task.index)
        return await _heartbeats(
            connection, names.task_workflow(connection.record.name, task_id), [task]
        )

    if not found and len(status.tasks) > 1:  # independent tasks: each has its own workflow
        for of_one in await for_each(on_hosts.values(), of_own_workflow, at_once=AT_ONCE):
            found |= of_one
    return [
        found.get(index) or InUse(task=index, host=task.host or "")
        for index, task in sorted(on_hosts.items())
    ]


async def _heartbeats(
    connection: Connection, workflow_id: str, tasks: Iterable[TaskStatus]
) -> dict[int, InUse]:
    """Returns the latest heartbeats of the workflow's pending attempts, by task index."""
    with connection.rpc_errors():
        try:
            described = await connection.workflow(workflow_id).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return {}
            raise
    found = {}
    hosts: dict[str, list[int]] = {}
    for task in tasks:
        hosts.setdefault(task.host or "", []).append(task.index)
    for pending in described.raw_description.pending_activities:
        if pending.activity_type.name == _RUN_TASK and pending.HasField("heartbeat_details"):
            host = pending.last_worker_identity.rpartition("@")[0]
            details = await _details(connection, pending)
            on_host = hosts.get(host, [])
            task_index = details.get("task", on_host[0] if len(on_host) == 1 else None)
            if task_index in on_host:
                known = {
                    name: details[name]
                    for name in InUse.model_fields
                    if details.get(name) is not None
                }
                at = pending.last_heartbeat_time.ToDatetime(tzinfo=UTC)
                found[task_index] = InUse.model_validate(
                    {**known, "task": task_index, "host": host, "at": at}
                )
    return found


async def _details(connection: Connection, pending: PendingActivityInfo) -> dict[str, Any]:
    decoded = await connection.client.data_converter.decode(pending.heartbeat_details.payloads)
    return decoded[0] if decoded and isinstance(decoded[0], dict) else {}
