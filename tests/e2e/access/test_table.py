"""The table of who may call which of Temporal's methods on whose objects, against the real server.

A call is allowed if the service does not refuse the caller, whatever else it answers: most objects
do not exist.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
from google.protobuf.message import Message
from temporalio.api.common.v1 import WorkflowType
from temporalio.api.enums.v1 import HistoryEventFilterType, TaskQueueKind
from temporalio.api.operatorservice.v1 import service_pb2 as operator_service
from temporalio.api.query.v1 import WorkflowQuery
from temporalio.api.schedule.v1 import SchedulePatch
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.update.v1 import Input, Meta, Request, UpdateRef
from temporalio.api.worker.v1 import WorkerHeartbeat
from temporalio.api.workflowservice.v1 import request_response_pb2 as api
from temporalio.api.workflowservice.v1 import service_pb2 as workflow_service

from iris.model import names
from tests.e2e.access import requests
from tests.e2e.access.conftest import Service
from tests.e2e.access.people import CLUSTER, NAMESPACE
from tests.e2e.access.requests import execution, job_id

pytestmark = pytest.mark.production

EVERYBODY = ("vera", "ada", "job", "olga", "stolen", "joined", "cp")
#: Those who submit jobs; ADAS is who acts on ada's job `ada/train`, BOBS who acts on bob's.
SEES = ("vera", "ada", "job", "olga", "cp")
ADAS, BOBS = ("ada", "job", "olga", "cp"), ("olga", "cp")
OPERATES, CP = ("olga", "cp"), ("cp",)

ADA, BOB = "ada/train", "bob/train"
SCHEDULER = names.scheduler_workflow(CLUSTER)
AUTOSCALER = names.autoscaler_workflow(CLUSTER)
SLICE = names.slice_workflow(CLUSTER, "h")
CLOSE = HistoryEventFilterType.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT


class Row(NamedTuple):
    """A call, and who may make it."""

    method: str
    request: Message
    allowed: tuple[str, ...]

    def __str__(self) -> str:
        return self.method


def space(kind: Callable[..., Any], **values: object) -> Any:
    """Returns a request in the cluster's namespace."""
    return kind(namespace=NAMESPACE, **values)


def signal(workflow_id: str, name: str, allowed: tuple[str, ...]) -> Row:
    return Row("signal_workflow_execution", requests.signal(workflow_id, name), allowed)


def query(workflow_id: str, name: str, allowed: tuple[str, ...]) -> Row:
    request = space(
        api.QueryWorkflowRequest,
        execution=execution(workflow_id),
        query=WorkflowQuery(query_type=name),
    )
    return Row("query_workflow", request, allowed)


def update(workflow_id: str, name: str, allowed: tuple[str, ...]) -> Row:
    request = space(
        api.UpdateWorkflowExecutionRequest,
        workflow_execution=execution(workflow_id),
        request=Request(meta=Meta(update_id="u"), input=Input(name=name)),
    )
    return Row("update_workflow_execution", request, allowed)


def on_workflow(workflow_id: str, reads: tuple[str, ...], changes: tuple[str, ...]) -> list[Row]:
    """The rows of a workflow: for those who see it, and those who read its inputs and end it."""
    one = execution(workflow_id)
    history = space(api.GetWorkflowExecutionHistoryRequest, execution=one)
    end = space(
        api.GetWorkflowExecutionHistoryRequest, execution=one, history_event_filter_type=CLOSE
    )
    reverse = space(api.GetWorkflowExecutionHistoryReverseRequest, execution=one)
    cancel = space(api.RequestCancelWorkflowExecutionRequest, workflow_execution=one)
    terminate = space(api.TerminateWorkflowExecutionRequest, workflow_execution=one)
    describe = space(api.DescribeWorkflowExecutionRequest, execution=one)
    return [
        Row("describe_workflow_execution", describe, reads),
        Row("get_workflow_execution_history", end, reads),
        Row("get_workflow_execution_history", history, changes),
        Row("get_workflow_execution_history_reverse", reverse, changes),
        Row("request_cancel_workflow_execution", cancel, changes),
        Row("terminate_workflow_execution", terminate, changes),
    ]


def on_schedule(job: str, reads: tuple[str, ...], changes: tuple[str, ...]) -> list[Row]:
    one = names.schedule_id(CLUSTER, job)
    made = requests.schedule(job)
    change = space(api.UpdateScheduleRequest, schedule_id=one, schedule=made.schedule)
    own = tuple(who for who in changes if who != "olga")
    patch = space(api.PatchScheduleRequest, schedule_id=one, patch=SchedulePatch(pause="x"))
    times = space(api.ListScheduleMatchingTimesRequest, schedule_id=one)
    return [
        Row("update_schedule", change, own),
        Row("patch_schedule", patch, changes),
        Row("delete_schedule", space(api.DeleteScheduleRequest, schedule_id=one), changes),
        Row("describe_schedule", space(api.DescribeScheduleRequest, schedule_id=one), reads),
        Row("list_schedule_matching_times", times, reads),
    ]


def on_session(task: str, allowed: tuple[str, ...]) -> list[Row]:
    one = requests.session(task).activity_id
    ended = ("describe", "poll", "request_cancel", "terminate")
    kinds: Mapping[str, Any] = {
        "describe": api.DescribeActivityExecutionRequest,
        "poll": api.PollActivityExecutionRequest,
        "request_cancel": api.RequestCancelActivityExecutionRequest,
        "terminate": api.TerminateActivityExecutionRequest,
    }
    return [
        Row("start_activity_execution", requests.session(task), allowed),
        *(
            Row(f"{each}_activity_execution", space(kinds[each], activity_id=one), allowed)
            for each in ended
        ),
    ]


def polls() -> list[Row]:
    """The rows of workers: of hosts, pools and control planes."""
    activities: dict[str, tuple[str, ...]] = {
        names.host_queue(CLUSTER, "h-w-0"): ("stolen", "cp"),
        names.host_queue(CLUSTER, "h-w-1"): CP,
        names.host_queue(CLUSTER, "own-w-0"): ("joined", "cp"),
        names.pool_queue(CLUSTER, "ada/pool", "t"): ("ada", "cp"),
        names.pool_queue(CLUSTER, "bob/pool", "t"): CP,
        names.control_queue(CLUSTER): CP,
        names.planner_queue(CLUSTER): CP,
        names.patient_queue(CLUSTER): CP,
        "/_sys/lab/host/h-w-0/1": (),
        "temporal-sys-per-ns-tq": (),
    }
    found = []
    for queue, allowed in activities.items():
        request = space(api.PollActivityTaskQueueRequest, task_queue=TaskQueue(name=queue))
        found.append(Row("poll_activity_task_queue", request, allowed))
        host = names.host_of_queue(CLUSTER, queue) or "cp"
        beat = WorkerHeartbeat(task_queue=queue, worker_identity=f"{host}@1")
        request = space(api.RecordWorkerHeartbeatRequest, worker_heartbeat=[beat])
        found.append(Row("record_worker_heartbeat", request, allowed))
        request = space(api.ShutdownWorkerRequest, task_queue=queue, identity=f"{host}@1")
        found.append(Row("shutdown_worker", request, allowed))
    other = WorkerHeartbeat(
        task_queue=names.host_queue(CLUSTER, "h-w-0"), worker_identity="h-w-1@1"
    )
    sticky = TaskQueue(
        name="random",
        kind=TaskQueueKind.TASK_QUEUE_KIND_STICKY,
        normal_name=names.control_queue(CLUSTER),
    )
    return [
        *found,
        Row(
            "record_worker_heartbeat",
            space(api.RecordWorkerHeartbeatRequest, worker_heartbeat=[other]),
            CP,
        ),
        Row(
            "poll_workflow_task_queue",
            space(
                api.PollWorkflowTaskQueueRequest,
                task_queue=TaskQueue(name=names.control_queue(CLUSTER)),
            ),
            CP,
        ),
        Row(
            "poll_workflow_task_queue",
            space(api.PollWorkflowTaskQueueRequest, task_queue=sticky),
            CP,
        ),
    ]


def with_tokens() -> list[Row]:
    """The rows of calls about a task that nobody was given."""
    kinds: Mapping[str, Any] = {
        "record_activity_task_heartbeat": api.RecordActivityTaskHeartbeatRequest,
        "respond_activity_task_completed": api.RespondActivityTaskCompletedRequest,
        "respond_activity_task_failed": api.RespondActivityTaskFailedRequest,
        "respond_activity_task_canceled": api.RespondActivityTaskCanceledRequest,
        "respond_workflow_task_completed": api.RespondWorkflowTaskCompletedRequest,
        "respond_workflow_task_failed": api.RespondWorkflowTaskFailedRequest,
        "respond_query_task_completed": api.RespondQueryTaskCompletedRequest,
    }
    return [Row(name, space(kind, task_token=b""), CP) for name, kind in kinds.items()]


LISTS = (
    "list_open_workflow_executions",
    "list_closed_workflow_executions",
    "list_workflow_executions",
    "scan_workflow_executions",
    "count_workflow_executions",
    "list_schedules",
    "count_schedules",
    "list_activity_executions",
    "count_activity_executions",
    "list_workers",
    "describe_worker",
    "describe_task_queue",
    "list_task_queue_partitions",
    "get_search_attributes",
)


def request_type(method: str) -> Any:
    """Returns the type of a method's request."""
    camel = "".join(part.capitalize() for part in method.split("_"))
    return METHODS[camel]


def empty(method: str) -> Message:
    """Returns a request of a method in the cluster's namespace, if the method has one."""
    kind = request_type(method)
    return space(kind) if "namespace" in kind.DESCRIPTOR.fields_by_name else kind()


def _methods(service: Any) -> dict[str, Any]:
    from google.protobuf.message_factory import GetMessageClass

    return {each.name: GetMessageClass(each.input_type) for each in service.methods}


METHODS = {
    **_methods(workflow_service.DESCRIPTOR.services_by_name["WorkflowService"]),
    **_methods(operator_service.DESCRIPTOR.services_by_name["OperatorService"]),
}


def snake(name: str) -> str:
    return "".join(f"_{each.lower()}" if each.isupper() else each for each in name).lstrip("_")


def table() -> list[Row]:
    poll_update = space(
        api.PollWorkflowExecutionUpdateRequest,
        update_ref=UpdateRef(workflow_execution=execution(SCHEDULER), update_id="u"),
    )
    start_slice = requests.start(
        "x",
        workflow_id=SLICE,
        workflow_type=WorkflowType(name="SliceWorkflow"),
        search_attributes=requests.attributes(None, "slice"),  # type: ignore[arg-type]
    )
    return [
        Row("start_workflow_execution", requests.start(ADA), ("ada", "job", "cp")),
        Row("start_workflow_execution", requests.start(f"{ADA}/child"), ("ada", "job", "cp")),
        Row("start_workflow_execution", requests.start("ada/other"), ("ada", "cp")),
        Row("start_workflow_execution", requests.start(BOB), CP),
        Row("start_workflow_execution", start_slice, ("stolen", "cp")),
        *(signal(job_id(ADA), each, ADAS) for each in ("hold", "release", "set_priority")),
        *(signal(job_id(BOB), each, BOBS) for each in ("hold", "release", "cancel_task")),
        signal(job_id(ADA), "endpoint_changed", ("ada", "job", "cp")),
        signal(job_id(BOB), "endpoint_changed", CP),
        *(
            signal(job_id(ADA), each, CP)
            for each in ("placed", "evicted", "task_changed", "child_started", "task_progress")
        ),
        signal(names.task_workflow(CLUSTER, f"{ADA}:0"), "placed", CP),
        signal(SCHEDULER, "deliver", OPERATES),
        signal(SCHEDULER, names.vacate_signal("h-w-0"), ("stolen", "cp")),
        signal(SCHEDULER, names.vacate_signal("h-w-1"), CP),
        signal(AUTOSCALER, "close_down", OPERATES),
        signal(AUTOSCALER, "slice_changed", CP),
        signal(SLICE, "drain", OPERATES),
        signal(SLICE, "host_ready", ("stolen", "cp")),
        signal(SLICE, "host_lost", ("stolen", "cp")),
        signal(SLICE, "cloud_state", CP),
        update(SCHEDULER, "exchange", OPERATES),
        update(job_id(ADA), "start_together", CP),
        Row("poll_workflow_execution_update", poll_update, OPERATES),
        query(job_id(ADA), "status", SEES),
        query(job_id(BOB), "status", SEES),
        query(job_id(ADA), "attempts", SEES),
        query(job_id(BOB), "attempts", SEES),
        query(job_id(BOB), "endpoints", BOBS),
        query(job_id(BOB), "claim", BOBS),
        query(job_id(BOB), "__stack_trace", BOBS),
        query(job_id(ADA), "__stack_trace", BOBS),
        query(names.task_workflow(CLUSTER, f"{BOB}:0"), "own_status", SEES),
        query(SCHEDULER, "queue", SEES),
        query(SCHEDULER, "quotas", SEES),
        query(SCHEDULER, "wanted", OPERATES),
        query(AUTOSCALER, "status", SEES),
        query(SLICE, "status", (*SEES, "stolen")),
        *on_workflow(job_id(ADA), SEES, ADAS),
        *on_workflow(job_id(BOB), SEES, BOBS),
        *on_workflow(job_id("ada/trainer"), SEES, ("ada", *BOBS)),
        *on_workflow(names.task_workflow(CLUSTER, f"{BOB}:0"), SEES, BOBS),
        *on_workflow(f"{CLUSTER}/part/{BOB}:0", SEES, BOBS),
        *on_workflow(names.slice_workflow(CLUSTER, "h-2"), SEES, OPERATES),
        *on_workflow(SCHEDULER, SEES, OPERATES),
        *on_schedule(ADA, SEES, ADAS),
        *on_schedule(BOB, SEES, BOBS),
        Row("create_schedule", requests.schedule(ADA), ("ada", "job", "cp")),
        Row("create_schedule", requests.schedule(BOB), CP),
        *on_session(f"{ADA}:0", ADAS),
        *on_session(f"{BOB}:0", BOBS),
        *polls(),
        *with_tokens(),
        *(Row(each, empty(each), EVERYBODY) for each in LISTS),
        Row("list_search_attributes", empty("list_search_attributes"), EVERYBODY),
        *(Row(each, empty(each), EVERYBODY) for each in ("get_system_info", "get_cluster_info")),
        Row("describe_namespace", empty("describe_namespace"), EVERYBODY),
        *(
            Row(each, empty(each), CP)
            for each in (
                *("register_namespace", "update_namespace", "add_search_attributes"),
                "reset_sticky_task_queue",
            )
        ),
    ]


async def allowed(service: Service, row: Row) -> tuple[str, ...]:
    """Returns who may make a call."""
    whys = await asyncio.gather(
        *(service.refusal(who, row.method, row.request) for who in EVERYBODY)
    )
    return tuple(who for who, why in zip(EVERYBODY, whys, strict=True) if not why)


async def test_each_role_may_do_what_the_table_says(service: Service) -> None:
    """Default deny: what a row does not allow is refused, by method, role, and whose object."""
    wrong = []

    async def check(row: Row) -> None:
        async with few:
            found = await allowed(service, row)
        if sorted(found) != sorted(row.allowed):
            wrong.append(f"{row.method} {row.request}: {found}, and not {row.allowed}")

    few = asyncio.Semaphore(8)
    await asyncio.gather(*map(check, table()))

    assert not wrong, "\n".join(wrong)


async def test_all_other_methods_are_for_nobody(service: Service) -> None:
    """Batch operations, resets, deletions, nexus, rules, versions: they would go around the rules,
    so not even a control plane may.
    """
    listed = {row.method for row in table()} | {"signal_with_start_workflow_execution"}
    others = [name for name in map(snake, METHODS) if name not in listed]
    open_to = {}
    for method in others:
        found = await allowed(service, Row(method, empty(method), ()))
        if found:
            open_to[method] = found

    assert {"start_batch_operation", "execute_multi_operation", "reset_activity"} < set(others)
    assert open_to == {}
