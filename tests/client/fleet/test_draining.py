"""Hosts that are to be empty by a moment: what runs may end until then, and nobody has to be there
to see to it.
"""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from iris.client.fleet.hosts import HostsClient
from iris.model.errors import NotFound
from iris.model.states import TaskState
from tests.builders import some
from tests.harness import Cluster, Held, dev_server_cluster

SOON = timedelta(seconds=2)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with dev_server_cluster() as cluster:
        yield cluster


def operator(cluster: Cluster) -> HostsClient:
    return cluster.users.hosts


async def reason(cluster: Cluster) -> str:
    (view,) = await cluster.users.hosts.list()
    return view.closed


@pytest.mark.long
async def test_what_runs_on_a_host_runs_until_the_deadline_and_is_evicted_then(
    cluster: Cluster,
) -> None:
    """A maintenance window has a beginning: what has not ended by then goes back into the queue."""
    await cluster.join("h1", program=Held(), offers=some(cpu=1))
    job = await cluster.submit("long")
    await cluster.until(lambda: cluster.hosts["h1"].taken)

    said = await operator(cluster).drain("h1", "new kernel", SOON)
    assert said == "host h1 takes no new tasks; tasks that still run in 2s are stopped"
    assert (await reason(cluster)).startswith("cordoned: to be empty by ")
    assert ": new kernel (by " in await reason(cluster)
    status = await cluster.users.jobs.status(job)
    assert status.tasks[0].state in (TaskState.RUNNING, TaskState.ASSIGNED, TaskState.BUILDING)

    await cluster.until(lambda: _waits(cluster, job))
    assert (await reason(cluster)).startswith("drained: new kernel (by ")
    (attempt,) = (await cluster.users.jobs.explain(job)).attempts[0]
    assert attempt.reason.startswith("evicted: host h1 is drained: new kernel")


async def _waits(cluster: Cluster, job: str) -> bool:
    task = (await cluster.users.jobs.status(job)).tasks[0]
    return task.state is TaskState.PENDING and task.preemptions == 1


@pytest.mark.long
async def test_a_host_without_a_deadline_is_drained_at_once_and_an_unknown_one_not_at_all(
    cluster: Cluster,
) -> None:
    """As it always was."""
    await cluster.join("tpu-one", program=Held(), offers=some(cpu=1))
    job = await cluster.submit("long")
    await cluster.until(lambda: cluster.hosts["tpu-one"].taken)
    with pytest.raises(NotFound, match=r"did you mean tpu-one\?"):
        await operator(cluster).drain("tpu-own", deadline=SOON)
    with pytest.raises(NotFound, match=r"did you mean tpu-one\?"):
        await operator(cluster).uncordon("tpu-own")
    assert await operator(cluster).drain("tpu-one") == "host tpu-one is being drained"
    await cluster.until(lambda: _waits(cluster, job))
