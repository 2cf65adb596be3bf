"""A stolen key of a host: it does the work that this host was given, and nothing else."""

import asyncio
from datetime import timedelta

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from temporalio.api.command.v1 import Command, ScheduleActivityTaskCommandAttributes
from temporalio.api.common.v1 import ActivityType, WorkflowExecution
from temporalio.api.enums.v1 import CommandType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.update.v1 import Input, Meta, Request, UpdateRef
from temporalio.api.workflowservice.v1 import (
    PollActivityTaskQueueRequest,
    PollActivityTaskQueueResponse,
    PollWorkflowExecutionUpdateRequest,
    PollWorkflowTaskQueueRequest,
    RecordActivityTaskHeartbeatByIdRequest,
    RecordActivityTaskHeartbeatRequest,
    RespondActivityTaskCompletedByIdRequest,
    RespondActivityTaskCompletedRequest,
    RespondWorkflowTaskCompletedRequest,
    SignalWorkflowExecutionRequest,
    TerminateWorkflowExecutionRequest,
    UpdateWorkflowExecutionRequest,
)

from iris.model import names
from tests.e2e.access import requests
from tests.e2e.access.conftest import Service
from tests.e2e.access.people import CLUSTER, NAMESPACE
from tests.e2e.access.requests import CONTROL, execution, job_id

pytestmark = pytest.mark.production

JOB, OTHER = "ada/given", "ada/other"
#: The size of the seal in a task token, with the tag and the length of its field.
SEAL = 38


def seconds(count: int) -> Duration:
    found = Duration()
    found.FromTimedelta(timedelta(seconds=count))
    return found


async def give(service: Service, job: str, host: str) -> PollActivityTaskQueueResponse:
    """Starts a job and, as its control plane, gives its activity to a host. Returns what the host
    is given.
    """
    await service.who("ada", "start_workflow_execution", requests.start(job))
    poll = PollWorkflowTaskQueueRequest(namespace=NAMESPACE, task_queue=TaskQueue(name=CONTROL))
    while True:
        task = await service.who("cp", "poll_workflow_task_queue", poll)
        if task.workflow_execution.workflow_id == job_id(job):
            break
    activity = ScheduleActivityTaskCommandAttributes(
        activity_id="1",
        activity_type=ActivityType(name="run_task"),
        task_queue=TaskQueue(name=names.host_queue(CLUSTER, host)),
        schedule_to_close_timeout=seconds(60),
        start_to_close_timeout=seconds(60),
    )
    command = Command(
        command_type=CommandType.COMMAND_TYPE_SCHEDULE_ACTIVITY_TASK,
        schedule_activity_task_command_attributes=activity,
    )
    done = RespondWorkflowTaskCompletedRequest(
        namespace=NAMESPACE, task_token=task.task_token, commands=[command]
    )
    await service.who("cp", "respond_workflow_task_completed", done)
    return await polled(service, host)


async def polled(service: Service, host: str) -> PollActivityTaskQueueResponse:
    queue = TaskQueue(name=names.host_queue(CLUSTER, host))
    poll = PollActivityTaskQueueRequest(namespace=NAMESPACE, task_queue=queue)
    who = "joined" if host == "own-w-0" else "stolen"
    while not (given := await service.who(who, "poll_activity_task_queue", poll)).task_token:
        pass
    return given  # type: ignore[no-any-return]


def beat(token: bytes) -> Message:
    return RecordActivityTaskHeartbeatRequest(namespace=NAMESPACE, task_token=token)


async def test_a_host_completes_only_what_it_was_given(service: Service) -> None:
    """Neither another host's token, nor a token without its seal, nor an id in its place."""
    given = await give(service, JOB, "h-w-0")
    token, method = given.task_token, "record_activity_task_heartbeat"

    assert not await service.refusal("stolen", method, beat(token))
    for who in ("joined", "ada", "job", "olga", "vera"):
        assert await service.refusal(who, method, beat(token)), who
    for wrong in (token[:-SEAL], token[:-1], token + b"\x00", b"", b"x" * 100):
        assert await service.refusal("stolen", method, beat(wrong))
    ids = {"namespace": NAMESPACE, "workflow_id": job_id(JOB), "activity_id": "1"}
    by_id: dict[str, Message] = {
        "record_activity_task_heartbeat_by_id": RecordActivityTaskHeartbeatByIdRequest(**ids),
        "respond_activity_task_completed_by_id": RespondActivityTaskCompletedByIdRequest(**ids),
    }
    for each, request in by_id.items():
        assert await service.refusal("stolen", each, request)
    done = RespondActivityTaskCompletedRequest(namespace=NAMESPACE, task_token=token)
    await service.who("stolen", "respond_activity_task_completed", done)


async def test_a_host_reports_only_to_the_jobs_it_was_given_a_task_of(service: Service) -> None:
    """The token of the task is the proof. It is for one workflow and one host."""
    given = await give(service, OTHER, "h-w-0")
    joined = await give(service, "ada/third", "own-w-0")
    proof = {names.TASK_TOKEN_METADATA: given.task_token}
    progress = requests.signal(job_id(OTHER), "task_progress")
    update = UpdateWorkflowExecutionRequest(
        namespace=NAMESPACE,
        workflow_execution=execution(job_id(OTHER)),
        request=Request(meta=Meta(update_id="u"), input=Input(name="start_together")),
    )
    answer = PollWorkflowExecutionUpdateRequest(
        namespace=NAMESPACE,
        update_ref=UpdateRef(workflow_execution=execution(job_id(OTHER)), update_id="u"),
    )
    calls = {
        "signal_workflow_execution": progress,
        "update_workflow_execution": update,
        "poll_workflow_execution_update": answer,
    }

    for method, request in calls.items():
        assert not await service.refusal("stolen", method, request, proof), method
        assert await service.refusal("stolen", method, request), method
        assert await service.refusal("joined", method, request, proof), method
        own = {names.TASK_TOKEN_METADATA: joined.task_token}
        assert await service.refusal("joined", method, request, own), method
        forged = {names.TASK_TOKEN_METADATA: given.task_token[:-SEAL]}
        assert await service.refusal("stolen", method, request, forged), method

    async def refusal(method: str, request: Message) -> str:
        return await service.refusal("stolen", method, request, proof)

    for name in ("placed", "evicted", "hold", "child_started"):
        assert await refusal("signal_workflow_execution", requests.signal(job_id(OTHER), name))
    scheduler = requests.signal(names.scheduler_workflow(CLUSTER), "deliver")
    assert await refusal("signal_workflow_execution", scheduler)
    one = WorkflowExecution(workflow_id=job_id(OTHER))
    stop = TerminateWorkflowExecutionRequest(namespace=NAMESPACE, workflow_execution=one)
    assert await refusal("terminate_workflow_execution", stop)
    both = SignalWorkflowExecutionRequest(
        namespace=NAMESPACE, workflow_execution=execution(job_id(JOB)), signal_name="task_progress"
    )
    assert await refusal("signal_workflow_execution", both)


async def test_a_session_reaches_the_host_and_its_owner(service: Service) -> None:
    """The owner of a task starts a command beside it, and the host completes it."""
    request = requests.session("ada/train:1")
    waiting = asyncio.create_task(polled(service, "h-w-0"))
    await service.who("ada", "start_activity_execution", request)
    given = await waiting

    assert given.activity_id == request.activity_id
    done = RespondActivityTaskCompletedRequest(namespace=NAMESPACE, task_token=given.task_token)
    assert await service.refusal("joined", "respond_activity_task_completed", done)
    await service.who("stolen", "respond_activity_task_completed", done)
