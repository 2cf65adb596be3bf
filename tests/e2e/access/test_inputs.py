"""What others may read of a job: its state, and not what was given to it."""

import asyncio

import pytest
from google.protobuf.message import Message
from temporalio.api.enums.v1 import EventType, HistoryEventFilterType
from temporalio.api.workflowservice.v1 import (
    CountWorkflowExecutionsRequest,
    DescribeScheduleRequest,
    DescribeWorkflowExecutionRequest,
    GetWorkflowExecutionHistoryRequest,
    ListSchedulesRequest,
    ListWorkflowExecutionsRequest,
    TerminateWorkflowExecutionRequest,
)
from temporalio.service import RPCError, RPCStatusCode

from iris.model import names
from tests.e2e.access import requests
from tests.e2e.access.conftest import Service
from tests.e2e.access.people import CLUSTER, NAMESPACE
from tests.e2e.access.requests import execution, job_id

pytestmark = pytest.mark.production

JOB = "bob/secret"
CLOSE = HistoryEventFilterType.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT
SECRETS = (b"the input", b"the command", b"the details")


@pytest.fixture(scope="module")
def job(service: Service) -> str:
    """A job of bob's that waits for a control plane, and its schedule."""
    start = requests.start(JOB, user_metadata={"details": requests.payload("the details")})

    async def make() -> None:
        await service.who("bob", "start_workflow_execution", start)
        await service.who("bob", "create_schedule", requests.schedule(JOB))

    asyncio.run(make())
    return JOB


def leaks(answer: Message) -> list[bytes]:
    """Returns the secrets in an answer."""
    whole = answer.SerializeToString()
    return [each for each in SECRETS if each in whole]


async def test_a_job_is_described_to_others_without_what_was_given_to_it(
    service: Service, job: str
) -> None:
    """Its owner and operators see its memo and its summary, others only what has states."""
    request = DescribeWorkflowExecutionRequest(
        namespace=NAMESPACE, execution=execution(job_id(job))
    )

    answers = {
        who: await service.who(who, "describe_workflow_execution", request)
        for who in ("bob", "olga", "ada", "vera", "job")
    }

    assert [who for who in answers if leaks(answers[who])] == ["bob", "olga"]
    for answer in answers.values():
        info = answer.workflow_execution_info
        assert names.MEMO_TASKS in info.memo.fields
        assert info.search_attributes.indexed_fields[names.SA_USER].data == b'"bob"'


async def test_lists_show_others_states_and_no_memos(service: Service, job: str) -> None:
    """Every kind of list leaves out what a describe leaves out."""
    request = ListWorkflowExecutionsRequest(
        namespace=NAMESPACE, query=f"WorkflowId = '{job_id(job)}'"
    )
    for method in ("list_workflow_executions", "scan_workflow_executions"):
        for who, sees in {"bob": True, "olga": True, "ada": False, "vera": False}.items():
            found = await listed(service, who, method, request)
            assert bool(leaks(found)) is sees, (who, method)


async def listed(
    service: Service, who: str, method: str, request: ListWorkflowExecutionsRequest
) -> Message:
    """Returns a list once it has the job: lists lag behind."""
    while True:
        found = await service.who(who, method, request)
        if found.executions:
            return found  # type: ignore[no-any-return]
        await asyncio.sleep(0.2)


async def test_the_history_of_others_is_only_its_end(service: Service, job: str) -> None:
    """An ended job tells everybody how it ended, and its owner what it was given."""
    ended = "bob/ended"
    await service.who("bob", "start_workflow_execution", requests.start(ended))
    stop = TerminateWorkflowExecutionRequest(
        namespace=NAMESPACE, workflow_execution=execution(job_id(ended)), reason="enough"
    )
    await service.who("bob", "terminate_workflow_execution", stop)
    end = GetWorkflowExecutionHistoryRequest(
        namespace=NAMESPACE, execution=execution(job_id(ended)), history_event_filter_type=CLOSE
    )
    whole = GetWorkflowExecutionHistoryRequest(
        namespace=NAMESPACE, execution=execution(job_id(ended))
    )

    for who in ("ada", "vera"):
        seen = await service.who(who, "get_workflow_execution_history", end)
        (event,) = seen.history.events
        assert event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED
        assert await service.refusal(who, "get_workflow_execution_history", whole)
    assert leaks(await service.who("bob", "get_workflow_execution_history", whole))


async def test_a_page_of_a_history_belongs_to_who_asked_for_it(service: Service, job: str) -> None:
    """The token of the next page has what the server reads next. Nobody can make one, or use
    another's, or one for another workflow.
    """
    one = GetWorkflowExecutionHistoryRequest(
        namespace=NAMESPACE, execution=execution(job_id(job)), maximum_page_size=1
    )
    page = await service.who("bob", "get_workflow_execution_history", one)
    token = page.next_page_token
    assert token
    own = requests.start("ada/own")
    await service.who("ada", "start_workflow_execution", own)

    async def refusal(who: str, workflow: str, token: bytes) -> str:
        request = GetWorkflowExecutionHistoryRequest(
            namespace=NAMESPACE, execution=execution(job_id(workflow)), next_page_token=token
        )
        return await service.refusal(who, "get_workflow_execution_history", request)

    assert not await refusal("bob", job, token)
    assert await refusal("ada", "ada/own", token)
    assert await refusal("bob", "bob/ended", token)
    assert await refusal("bob", job, token[32:])
    assert await refusal("bob", job, token[:-1])


async def test_a_schedule_shows_others_its_times_and_not_its_job(
    service: Service, job: str
) -> None:
    """As for jobs."""
    one = names.schedule_id(CLUSTER, job)
    request = DescribeScheduleRequest(namespace=NAMESPACE, schedule_id=one)
    for who, sees in {"bob": True, "olga": True, "ada": False, "vera": False}.items():
        answer = await service.who(who, "describe_schedule", request)
        assert bool(leaks(answer)) is sees
        assert answer.schedule.action.start_workflow.workflow_id == one
        assert names.MEMO_WHEN in answer.memo.fields
        found = await listed_schedules(service, who)
        assert bool(leaks(found)) is sees


async def listed_schedules(service: Service, who: str) -> Message:
    """Returns the list of schedules once it has some: lists lag behind."""
    request = ListSchedulesRequest(namespace=NAMESPACE)
    while True:
        found = await service.who(who, "list_schedules", request)
        if found.schedules:
            return found  # type: ignore[no-any-return]
        await asyncio.sleep(0.2)


async def test_counts_have_no_memos_to_ask_about(service: Service, job: str) -> None:
    """A query cannot be about a memo or an input, so a count cannot guess them."""
    request = CountWorkflowExecutionsRequest(
        namespace=NAMESPACE, query=f"{names.MEMO_COMMAND} = 'the command'"
    )
    with pytest.raises(RPCError) as refused:
        await service.who("ada", "count_workflow_executions", request)
    assert refused.value.status is RPCStatusCode.INVALID_ARGUMENT
