"""A control plane that starts does not wait for workflow tasks that died with an earlier one."""

import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio
from temporalio import workflow
from temporalio.api.enums.v1 import EventType, TaskQueueKind
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    PollWorkflowTaskQueueRequest,
    RespondWorkflowTaskFailedRequest,
)
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from iris.retrying import retry
from iris.worker_agents.control_plane.lost_tasks import LOOK_EVERY, end_lost_tasks
from iris.workflows import policies

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: The ages from which tasks count as lost, where a test need not wait for the real one.
AT_ONCE, NEVER = timedelta(), timedelta(hours=1)
#: Sooner than the timeout of a task that was begun a moment ago.
SOON = policies.PLANNER_TASK * 2 / 3


@workflow.defn
class Counting:
    """A workflow that lives on, as a planner does."""

    def __init__(self) -> None:
        self._count = 0

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: self._count < 0)

    @workflow.update
    def add(self) -> int:
        self._count += 1
        return self._count

    @workflow.signal
    def wake(self) -> None:
        self._count += 1


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[Client]:
    path = Path(sys.executable).with_name("temporal")
    async with await WorkflowEnvironment.start_local(dev_server_existing_path=str(path)) as server:
        yield server.client


async def start(client: Client) -> WorkflowHandle[Counting, None]:
    name = str(uuid4())
    return await client.start_workflow(
        Counting.run, id=name, task_queue=name, task_timeout=policies.PLANNER_TASK
    )


def a_worker(client: Client, handle: WorkflowHandle[Counting, None]) -> Worker:
    return Worker(
        client,
        task_queue=handle.id,
        workflows=[Counting],
        max_cached_workflows=0,
        workflow_runner=UnsandboxedWorkflowRunner(),
    )


async def begin_task(client: Client, handle: WorkflowHandle[Counting, None]) -> bytes:
    """Takes the workflow's task as a worker does, and does nothing with it. Returns its token."""
    answer = await client.workflow_service.poll_workflow_task_queue(
        PollWorkflowTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=handle.id, kind=TaskQueueKind.TASK_QUEUE_KIND_NORMAL),
            identity="a process that dies",
        )
    )
    assert answer.task_token
    return answer.task_token


async def failures(handle: WorkflowHandle[Counting, None]) -> list[str]:
    """What the history says of each failed task."""
    return [
        event.workflow_task_failed_event_attributes.failure.application_failure_info.type
        async for event in handle.fetch_history_events()
        if event.event_type is EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
    ]


async def test_a_task_that_died_with_its_worker_is_begun_again_after_seconds(
    client: Client,
) -> None:
    """Not after the timeout, which has to be longer than a replay on a slow machine."""
    handle = await start(client)
    await begin_task(client, handle)

    await end_lost_tasks(client, [handle.id])

    async with a_worker(client, handle):
        assert await handle.execute_update(Counting.add) == 1
    # A task that waits for its timeout times out, and does not fail.
    assert await failures(handle) == ["LostTask"]


async def test_an_update_whose_task_died_with_its_worker_is_answered_after_seconds(
    client: Client,
) -> None:
    """Such a task is in the memory of the service only, and the sender still waits."""
    handle = await start(client)
    async with a_worker(client, handle):
        assert await handle.execute_update(Counting.add) == 1
    sent = asyncio.create_task(handle.execute_update(Counting.add))
    await begin_task(client, handle)

    await end_lost_tasks(client, [handle.id], AT_ONCE)

    async with a_worker(client, handle):
        assert await asyncio.wait_for(sent, SOON.total_seconds()) == 2


async def test_a_task_that_is_lost_twice_is_begun_again_after_seconds_each_time(
    client: Client,
) -> None:
    """A control plane may die in the replay of the task that another one has lost."""
    handle = await start(client)
    for _ in range(2):
        await begin_task(client, handle)
        await end_lost_tasks(client, [handle.id], AT_ONCE)

    @retry((RPCError,), every=0.1, timeout=SOON)
    async def add() -> int:
        # The service refuses updates while a task has failed twice.
        return await handle.execute_update(Counting.add)

    async with a_worker(client, handle):
        assert await add() == 1


async def test_a_task_that_a_living_worker_ends_in_time_is_left_alone(client: Client) -> None:
    """Of two control planes, one may start while the other one works."""
    handle = await start(client)
    token = await begin_task(client, handle)
    looking = asyncio.create_task(end_lost_tasks(client, [handle.id], NEVER))
    await asyncio.wait({looking}, timeout=5 * LOOK_EVERY)
    assert not looking.done(), "it ended the task at once"
    # Any end of the task does, and this one needs no worker.
    await client.workflow_service.respond_workflow_task_failed(
        RespondWorkflowTaskFailedRequest(namespace=client.namespace, task_token=token)
    )
    await looking
    assert await failures(handle) == [""]


async def test_nothing_is_done_where_no_task_is_under_way(client: Client) -> None:
    """A new cluster has no planners, and those of a cluster at rest have no tasks."""
    handle = await start(client)
    await end_lost_tasks(client, [handle.id, "there is none"], NEVER)
    assert await failures(handle) == []
