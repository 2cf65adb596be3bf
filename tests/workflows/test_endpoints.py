"""Endpoints live as long as the attempt that registered them."""

import pytest

from iris.messages.job import Endpoints
from iris.model.endpoints import Endpoint
from tests.harness import Cluster, Held, ask, in_turn, is_preempted


async def names_of(cluster: Cluster, job: str) -> list[tuple[str, int]]:
    found = (await ask(cluster.job(job), "endpoints", Endpoints)).endpoints
    return [(each.name, each.attempt) for each in found]


async def register(cluster: Cluster, job: str, task: int, attempt: int, name: str) -> None:
    endpoint = Endpoint(name=name, address="10.0.0.1:80", job=job, task=task, attempt=attempt)
    await cluster.job(job).signal("endpoint_changed", endpoint)


@pytest.mark.parametrize("tasks", [1, 2])
async def test_an_endpoint_goes_with_its_attempt_and_the_next_one_has_its_own(cluster: Cluster, tasks: int) -> None:
    """A job of one task knows it itself; one of several is told by its tasks."""
    first, second = Held(then=is_preempted), Held()
    host = await cluster.join(program=in_turn(*[first] * tasks, *[second] * tasks))
    job = await cluster.submit(replicas=tasks)
    await cluster.until(lambda: len(host.taken) == tasks)
    for task in host.taken:
        await cluster.announce(task)
        await register(cluster, job, task.index, 1, "model")
    assert await names_of(cluster, job) == [("model", 1)] * tasks
    first.let_go()
    await cluster.until(lambda: len(host.taken) == 2 * tasks)
    for task in host.taken[tasks:]:
        await cluster.announce(task)
        await register(cluster, job, task.index, 1, "late")  # of the attempt that is over
        await register(cluster, job, task.index, 2, "again")

    assert await names_of(cluster, job) == [("again", 2)] * tasks
    second.let_go()
    await cluster.end(job)
    assert await names_of(cluster, job) == []
