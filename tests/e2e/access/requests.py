"""Requests of clients, as Iris and Temporal's own tools send them."""

import json
from collections.abc import Mapping

from google.protobuf.duration_pb2 import Duration
from temporalio.api.common.v1 import (
    ActivityType,
    Memo,
    Payload,
    Payloads,
    SearchAttributes,
    WorkflowExecution,
    WorkflowType,
)
from temporalio.api.schedule.v1 import Schedule, ScheduleAction, ScheduleSpec
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflow.v1 import NewWorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import (
    CreateScheduleRequest,
    SignalWorkflowExecutionRequest,
    StartActivityExecutionRequest,
    StartWorkflowExecutionRequest,
)

from iris.model import names
from tests.e2e.access.people import CLUSTER, NAMESPACE

CONTROL = names.control_queue(CLUSTER)


def payload(value: object) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(value).encode())


def payloads(*values: object) -> Payloads:
    return Payloads(payloads=[payload(each) for each in values])


def attributes(user: str, kind: str = "job", **other: object) -> SearchAttributes:
    found = {names.SA_CLUSTER: CLUSTER, names.SA_KIND: kind, names.SA_USER: user, **other}
    return SearchAttributes(
        indexed_fields={
            name: Payload(
                metadata={"encoding": b"json/plain", "type": b"Keyword"},
                data=json.dumps(value).encode(),
            )
            for name, value in found.items()
            if value is not None
        }
    )


def memo(values: Mapping[str, object]) -> Memo:
    return Memo(fields={key: payload(value) for key, value in values.items()})


def execution(workflow_id: str) -> WorkflowExecution:
    return WorkflowExecution(workflow_id=workflow_id)


def job_id(job: str) -> str:
    return names.job_workflow(CLUSTER, job)


def start(job: str, **other: object) -> StartWorkflowExecutionRequest:
    """Returns the request that starts a job; `other` replaces and adds fields."""
    values: dict[str, object] = {
        "namespace": NAMESPACE,
        "workflow_id": job_id(job),
        "workflow_type": WorkflowType(name="JobWorkflow"),
        "task_queue": TaskQueue(name=CONTROL),
        "input": payloads({"cluster": CLUSTER, "spec": {"secret": "the input"}}),
        "memo": memo({names.MEMO_COMMAND: "the command", names.MEMO_TASKS: 1}),
        "search_attributes": attributes(job.partition("/")[0]),
        "request_id": job,
        **other,
    }
    return StartWorkflowExecutionRequest(**values)  # type: ignore[arg-type]


def schedule(job: str, **other: object) -> CreateScheduleRequest:
    """Returns the request that schedules a job; `other` replaces fields of the workflow."""
    user, schedule_id = job.partition("/")[0], names.schedule_id(CLUSTER, job)
    own = attributes(user, names.KIND_SCHEDULE)
    values: dict[str, object] = {
        "workflow_id": schedule_id,
        "workflow_type": WorkflowType(name="ScheduledJobWorkflow"),
        "task_queue": TaskQueue(name=CONTROL),
        "input": payloads({"spec": {"secret": "the input"}}),
        "search_attributes": own,
        **other,
    }
    return CreateScheduleRequest(
        namespace=NAMESPACE,
        schedule_id=schedule_id,
        schedule=Schedule(
            spec=ScheduleSpec(cron_string=["0 0 1 1 *"]),
            action=ScheduleAction(start_workflow=NewWorkflowExecutionInfo(**values)),  # type: ignore[arg-type]
        ),
        memo=memo({names.MEMO_COMMAND: "the command", names.MEMO_WHEN: "0 0 1 1 *"}),
        search_attributes=own,
        request_id=job,
    )


def session(task: str, host: str = "h-w-0", **other: object) -> StartActivityExecutionRequest:
    """Returns the request that starts a command beside a task; `other` replaces fields."""
    values: dict[str, object] = {
        "namespace": NAMESPACE,
        "activity_id": names.session(CLUSTER, task, "exec_task", "s1"),
        "activity_type": ActivityType(name="exec_task"),
        "task_queue": TaskQueue(name=names.host_queue(CLUSTER, host)),
        "input": payloads({"session": "s1"}),
        "start_to_close_timeout": Duration(seconds=5),
        "schedule_to_start_timeout": Duration(seconds=5),
        "request_id": task,
        **other,
    }
    return StartActivityExecutionRequest(**values)  # type: ignore[arg-type]


def signal(workflow_id: str, name: str, *arguments: object) -> SignalWorkflowExecutionRequest:
    return SignalWorkflowExecutionRequest(
        namespace=NAMESPACE,
        workflow_execution=execution(workflow_id),
        signal_name=name,
        input=payloads(*arguments),
    )
