"""What a user starts: ids that look like the own ones, and requests that say more than they seem
to.
"""

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from temporalio.api.common.v1 import (
    ActivityType,
    Callback,
    Header,
    Link,
    RetryPolicy,
    SearchAttributes,
    WorkflowType,
)
from temporalio.api.enums.v1 import TaskQueueKind
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflow.v1 import OnConflictOptions, VersioningOverride
from temporalio.api.workflowservice.v1 import (
    ExecuteMultiOperationRequest,
    SignalWithStartWorkflowExecutionRequest,
    UpdateWorkflowExecutionRequest,
)
from temporalio.service import RPCError, RPCStatusCode

from iris.model import names
from tests.e2e.access import requests
from tests.e2e.access.conftest import Service
from tests.e2e.access.people import CLUSTER, NAMESPACE
from tests.e2e.access.requests import CONTROL, attributes, payload

pytestmark = pytest.mark.production

#: The server looks for the namespace before it asks who calls.
NOT_THERE = (
    RPCStatusCode.PERMISSION_DENIED,
    RPCStatusCode.NOT_FOUND,
    RPCStatusCode.INVALID_ARGUMENT,
)
#: Ids that are not of ada's jobs, although programs that decode, resolve or fold them may take them
#: for such, or for another user's.
LOOK_ALIKES = (
    "ada/../bob/train",
    "ada/train/../../bob/x",
    "ada/./train",
    "ada//train",
    "ada/",
    "ada",
    "/ada/train",
    "ada/train/",
    "ada%2Ftrain",
    "ada/%2e%2e/bob",
    "ada\\train",
    "Ada/train",
    "аda/train",  # the first letter is a Cyrillic one
    "ada/tra\u0131n",
    "ada\u2044train",
    "ada/train\u200b",
    "ada/train\x00",
    "ada/train\n",
    " ada/train",
    "ada /train",
    "ada.bob/train",
    "adam/train",
    "bob/ada/train",
    "ada/train:x",
    "ada:0/train",
    "ada/.hidden",
    "ada/-x",
    "ada/" + "x" * 200,
)


@pytest.mark.parametrize("job", LOOK_ALIKES)
async def test_an_id_has_one_reading(service: Service, job: str) -> None:
    """An id that only looks like the user's own is refused, for starts, schedules, sessions and
    reads.
    """
    one = requests.job_id(job)
    start = requests.start("ada/train", workflow_id=one)
    plan = requests.schedule("ada/train", workflow_id=names.schedule_id(CLUSTER, job))
    plan.schedule_id = names.schedule_id(CLUSTER, job)
    session = requests.session("ada/train:0", activity_id=f"{CLUSTER}/session/{job}")
    signal = requests.signal(one, "hold")

    assert await service.refusal("ada", "start_workflow_execution", start)
    assert await service.refusal("ada", "create_schedule", plan)
    assert await service.refusal("ada", "start_activity_execution", session)
    assert await service.refusal("ada", "signal_workflow_execution", signal)


#: Fields of a start that go around what Iris's workflows do, or around who they do it for.
TRICKS: dict[str, Any] = {
    "another type": {"workflow_type": WorkflowType(name="TaskWorkflow")},
    "the type of a planner": {"workflow_type": WorkflowType(name="SchedulerWorkflow")},
    "the type of a schedule": {"workflow_type": WorkflowType(name="ScheduledJobWorkflow")},
    "no type": {"workflow_type": WorkflowType()},
    "the planners' queue": {"task_queue": TaskQueue(name=names.planner_queue(CLUSTER))},
    "a host's queue": {"task_queue": TaskQueue(name=names.host_queue(CLUSTER, "h-w-0"))},
    "another cluster's queue": {"task_queue": TaskQueue(name="other/control")},
    "the server's own queue": {"task_queue": TaskQueue(name="temporal-sys-per-ns-tq")},
    "a sticky queue": {
        "task_queue": TaskQueue(
            name=CONTROL, kind=TaskQueueKind.TASK_QUEUE_KIND_STICKY, normal_name=CONTROL
        )
    },
    "the planners' id": {"workflow_id": names.scheduler_workflow(CLUSTER)},
    "an id of the server": {"workflow_id": "temporal-sys-scheduler:lab/schedule/ada/train"},
    "another's attributes": {"search_attributes": attributes("bob")},
    "attributes as a list": {"search_attributes": attributes(["ada", "bob"])},  # type: ignore[arg-type]
    "no attributes": {"search_attributes": SearchAttributes()},
    "no user": {"search_attributes": attributes(None)},  # type: ignore[arg-type]
    "another's job as its parent": {
        "search_attributes": attributes("ada", **{names.SA_PARENT: "bob/train"})
    },
    "a parent that its id has not": {
        "search_attributes": attributes("ada", **{names.SA_PARENT: "ada/train"})
    },
    "another kind": {"search_attributes": attributes("ada", "scheduler")},
    "another cluster": {"search_attributes": attributes("ada", **{names.SA_CLUSTER: "other"})},
    "attributes of the server": {
        "search_attributes": attributes("ada", TemporalScheduledById="lab/schedule/bob/x")
    },
    "cron": {"cron_schedule": "* * * * *"},
    "retries": {"retry_policy": RetryPolicy(maximum_attempts=100)},
    "a delay": {"workflow_start_delay": Duration(seconds=60)},
    "an eager start": {"request_eager_execution": True},
    "a callback": {
        "completion_callbacks": [Callback(nexus=Callback.Nexus(url="http://127.0.0.1:1/"))]
    },
    "a result of before": {"last_completion_result": requests.payloads("x")},
    "links": {
        "links": [Link(workflow_event=Link.WorkflowEvent(namespace=NAMESPACE, workflow_id="x"))]
    },
    "a version": {"versioning_override": VersioningOverride(pinned_version="x.y")},
    "links on a conflict": {"on_conflict_options": OnConflictOptions(attach_links=True)},
}


@pytest.mark.parametrize("trick", TRICKS)
async def test_a_start_says_nothing_more_than_a_job_of_ones_own(
    service: Service, trick: str
) -> None:
    """The user may start the job, and not with this field, neither now nor by a schedule."""
    fields = TRICKS[trick]
    plain = requests.start("ada/plain", header=Header(fields={"trace": payload("x")}))

    assert not await service.refusal("ada", "start_workflow_execution", plain)
    start = requests.start("ada/trick", **fields)
    assert await service.refusal("ada", "start_workflow_execution", start)
    known = requests.schedule("ada/trick").schedule.action.start_workflow.DESCRIPTOR.fields_by_name
    if set(fields) <= set(known) and trick != "the type of a schedule":
        plan = requests.schedule("ada/trick", **fields)
        assert await service.refusal("ada", "create_schedule", plan)


async def test_a_child_job_has_the_parent_of_its_id(service: Service) -> None:
    """Lists of child jobs, and their cancellation, use the search attribute."""

    def child(parent: str) -> Any:
        attribute = {names.SA_PARENT: parent}
        return requests.start("ada/train/x", search_attributes=attributes("ada", **attribute))

    assert not await service.refusal("ada", "start_workflow_execution", child("ada/train"))
    for parent in ("ada", "ada/train/x", "bob/train", "ada/other"):
        assert await service.refusal("ada", "start_workflow_execution", child(parent))


async def test_a_start_of_several_things_needs_the_right_to_each(service: Service) -> None:
    """Neither a signal, nor an update, nor several operations come in with a start."""
    start = requests.start("ada/two")
    both = SignalWithStartWorkflowExecutionRequest(
        namespace=NAMESPACE,
        workflow_id=start.workflow_id,
        workflow_type=start.workflow_type,
        task_queue=start.task_queue,
        search_attributes=start.search_attributes,
    )
    method = "signal_with_start_workflow_execution"
    both.signal_name = "placed"
    assert "placed" in await service.refusal("ada", method, both)
    both.signal_name = "hold"
    assert not await service.refusal("ada", method, both)
    both.workflow_id = requests.job_id("bob/two")
    assert await service.refusal("ada", method, both)
    several = ExecuteMultiOperationRequest(
        namespace=NAMESPACE,
        operations=[
            ExecuteMultiOperationRequest.Operation(start_workflow=start),
            ExecuteMultiOperationRequest.Operation(
                update_workflow=UpdateWorkflowExecutionRequest(namespace=NAMESPACE)
            ),
        ],
    )
    assert "nobody" in await service.refusal("ada", "execute_multi_operation", several)


async def test_a_session_is_beside_the_own_task_on_a_queue_of_a_host(service: Service) -> None:
    """A user cannot start another activity than those of sessions, nor one elsewhere."""
    own, method = "ada/train:0", "start_activity_execution"

    async def refusal(**fields: object) -> str:
        return await service.refusal("ada", method, requests.session(own, **fields))

    assert not await refusal()
    assert await refusal(activity_type=ActivityType(name="run_task"))
    assert await refusal(activity_type=ActivityType(name="create_slice"))
    assert await refusal(activity_id=names.session(CLUSTER, "bob/train:0", "exec_task", "s"))
    assert await refusal(activity_id=f"{names.host_queue(CLUSTER, 'h-w-0')}/drain")
    assert await refusal(activity_id=requests.job_id("ada/train"))
    assert await refusal(task_queue=TaskQueue(name=CONTROL))
    assert await refusal(task_queue=TaskQueue(name=names.planner_queue(CLUSTER)))
    assert await refusal(search_attributes=attributes("bob"))


async def test_another_namespace_is_nobodys(service: Service) -> None:
    """The policy is for one namespace; the server's own one is closed, too."""
    for namespace in ("temporal-system", "other", ""):
        start = requests.start("ada/train", namespace=namespace)
        for who in ("ada", "olga", "cp"):
            with pytest.raises(RPCError) as refused:
                await service.who(who, "start_workflow_execution", start)
            assert refused.value.status in NOT_THERE
