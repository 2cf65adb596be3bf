"""Jobs of the largest sizes that submission accepts, on a real server: a small job of another user still runs to its end."""

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest
from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle

from iris.model.states import JobState
from iris.model.units import MIB
from tests.builders import some
from tests.harness import Cluster, dev_server_cluster
from tests.hostile_sizes import a_hostile_spec, a_name

pytestmark = pytest.mark.long

JOBS = 300
#: Submissions at once.
AT_ONCE = 20


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """In real time: the time-skipping server knows no limits."""
    async with dev_server_cluster() as cluster:
        yield cluster


def payloads(message: Message) -> list[Payload]:
    """All payloads in a message of the server, at any depth."""
    if isinstance(message, Payload):
        return [message]
    found: list[Payload] = []
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            parts = [each for each in value.values() if isinstance(each, Message)]
        else:
            parts = list(value) if field.label == field.LABEL_REPEATED else [value]
        found += [payload for part in parts for payload in payloads(part)]
    return found


async def _check(handle: WorkflowHandle[object, object]) -> None:
    """No task of the workflow has failed or timed out, and no payload of its current run is large."""
    async for event in handle.fetch_history_events():
        assert event.event_type != EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED, event
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:
            # A busy machine may take a task late from the queue; none may take too long.
            assert event.workflow_task_timed_out_event_attributes.timeout_type != 1, event
        assert max((each.ByteSize() for each in payloads(event)), default=0) < MIB


async def test_a_small_job_of_another_user_runs_among_jobs_of_the_largest_sizes(cluster: Cluster) -> None:
    """Gangs of a thousand, constraints and names of full length, hundreds of shapes, many users."""
    random = Random(14)
    await cluster.join("h1", offers=some(cpu=4, memory=16, disk=100))
    await cluster.start_autoscaler()
    users = [a_name(random) for _ in range(30)]
    specs = [a_hostile_spec(random, number, random.choice(users)) for number in range(JOBS)]
    # Tasks of a job that is no gang have a workflow each, and those that fit run: one gang of each job is enough here.
    slots = asyncio.Semaphore(AT_ONCE)

    async def submit(number: int) -> None:
        async with slots:
            await cluster.users.jobs.submit(specs[number])

    async with asyncio.timeout(300):
        await asyncio.gather(*map(submit, range(JOBS // 2)))
        honest = asyncio.create_task(cluster.submit("honest"))
        await asyncio.gather(*map(submit, range(JOBS // 2, JOBS)))
        job = await honest
        status = await cluster.end(job)
    assert status.state is JobState.SUCCEEDED

    await _check(cluster.scheduler)
    await _check(cluster.autoscaler)
    for handle in [cluster.job(job), *(cluster.job(spec.id) for spec in specs[::10])]:
        await _check(handle)
    assert (await cluster.snapshot()).waiting > JOBS // 4
