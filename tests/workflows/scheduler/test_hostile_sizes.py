"""Jobs of the largest sizes that submission accepts, on a real server: a small job of another user
still runs to its end.
"""

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest
from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle

from iris.model.job.spec import JobSpec
from iris.model.states import JobState
from iris.model.units import MIB
from tests.builders import some
from tests.harness import Cluster, dev_server_cluster
from tests.hostile_sizes import a_hostile_spec, a_name

pytestmark = pytest.mark.long

JOBS = 150
#: How many are submitted at the same time.
AT_ONCE = 20


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """In real time: the time-skipping server does not limit payloads."""
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
            parts = list(value) if field.is_repeated else [value]
        found += [payload for part in parts for payload in payloads(part)]
    return found


async def check(handle: WorkflowHandle[object, object]) -> None:
    """No task of the workflow has failed, and no payload of its current run is large. On a busy
    machine a task may be late.
    """
    async for event in handle.fetch_history_events():
        assert event.event_type != EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED, event
        assert max((each.ByteSize() for each in payloads(event)), default=0) < MIB


async def test_a_small_job_of_another_user_runs_among_jobs_of_the_largest_sizes(
    cluster: Cluster,
) -> None:
    """Gangs of a thousand, constraints and names of full length, hundreds of shapes, many users."""
    random = Random(14)
    await cluster.join("h1", offers=some(cpu=4, memory=16, disk=100))
    await cluster.start_autoscaler()
    users = [a_name(random) for _ in range(30)]
    specs = [a_hostile_spec(random, number, random.choice(users)) for number in range(JOBS)]
    slots = asyncio.Semaphore(AT_ONCE)

    async def submit(spec: JobSpec) -> None:
        async with slots:
            await cluster.users.jobs.submit(spec)

    async with asyncio.timeout(300):
        await asyncio.gather(*map(submit, specs[: JOBS // 2]))
        honest, _ = await asyncio.gather(
            cluster.submit("honest"), asyncio.gather(*map(submit, specs[JOBS // 2 :]))
        )
        status = await cluster.end(honest)

    assert status.state is JobState.SUCCEEDED
    assert (await cluster.snapshot()).waiting > JOBS // 4
    for handle in (
        cluster.scheduler,
        cluster.autoscaler,
        cluster.job(honest),
        *(cluster.job(spec.id) for spec in specs[::10]),
    ):
        await check(handle)
