"""A host that is to be empty by a deadline: the scheduler evicts then what still runs there."""

from datetime import datetime, timedelta

import pytest
from temporalio.client import WorkflowUpdateFailedError

from iris.messages.scheduler import Batch, Close, Open
from iris.model.host.hosts import ClosedBy, Closure
from iris.model.states import TaskState
from tests.builders import some
from tests.harness import Cluster, Held

SECONDS = timedelta(seconds=5)


async def drain(cluster: Cluster, host: str, after: timedelta) -> None:
    deadline = await cluster.now() + after
    closure = Closure(by=ClosedBy.CORDON, reason="new kernel", evict_at=deadline)
    await cluster.users.connection.update_scheduler(Close(host_id=host, closure=closure))


async def evicted(cluster: Cluster, job: str) -> bool:
    task = await cluster.only_task(job)
    return task.state is TaskState.PENDING and task.preemptions == 1


async def closed(cluster: Cluster) -> str:
    (view,) = (await cluster.snapshot()).hosts
    return view.closed


async def test_what_runs_on_a_host_is_evicted_at_its_deadline(cluster: Cluster) -> None:
    """A later deadline replaces the first, and a cordon does not end it."""
    host = await cluster.join("h1", offers=some(cpu=1), program=Held())
    job = await cluster.submit("long", resources=some(cpu=1))
    await cluster.until(lambda: host.taken)
    await drain(cluster, "h1", SECONDS)
    await drain(cluster, "h1", 3 * SECONDS)
    cordon = Closure(by=ClosedBy.CORDON, reason="new kernel")
    await cluster.users.connection.update_scheduler(Close(host_id="h1", closure=cordon))
    assert (await closed(cluster)).startswith("cordoned: to be empty by ")

    await cluster.later(2 * SECONDS)
    assert not await evicted(cluster, job)
    await cluster.later(2 * SECONDS)
    await cluster.until(lambda: evicted(cluster, job))

    assert await closed(cluster) == "drained: new kernel"
    (attempt,) = await cluster.attempts(cluster.job(job))
    assert attempt.reason == "evicted: host h1 is drained: new kernel"


async def test_a_host_that_is_opened_again_keeps_what_runs(cluster: Cluster) -> None:
    """The maintenance was called off."""
    host = await cluster.join("h1", offers=some(cpu=1), program=Held())
    job = await cluster.submit("long", resources=some(cpu=1))
    await cluster.until(lambda: host.taken)
    await drain(cluster, "h1", SECONDS)
    await cluster.users.connection.update_scheduler(Open(host_id="h1"))

    await cluster.later(2 * SECONDS)

    assert await closed(cluster) == ""
    assert (await cluster.only_task(job)).state is not TaskState.PENDING


async def test_a_deadline_without_a_time_zone_is_refused(cluster: Cluster) -> None:
    """It cannot be compared with other deadlines, which would stop the scheduler."""
    await cluster.join("h1", offers=some(cpu=1))
    naive = datetime(2026, 11, 29)  # noqa: DTZ001
    closure = Closure.model_construct(by=ClosedBy.CORDON, evict_at=naive)

    with pytest.raises(WorkflowUpdateFailedError):
        await cluster.scheduler.execute_update(
            "exchange", Batch(messages=(Close.model_construct(host_id="h1", closure=closure),))
        )
    assert await closed(cluster) == ""
