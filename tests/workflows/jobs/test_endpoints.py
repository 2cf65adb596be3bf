"""Endpoints live as long as the attempt that registered them."""

import pytest

from iris.client.jobs import endpoints
from iris.messages.job import Endpoints
from iris.model import names
from iris.model.errors import Rejected
from iris.model.job.endpoints import Endpoint
from tests.harness import Cluster, Held, ask, in_turn, is_preempted


async def names_of(cluster: Cluster, job: str) -> list[tuple[str, int]]:
    found = (await ask(cluster.job(job), "endpoints", Endpoints)).endpoints
    return [(each.name, each.attempt) for each in found]


async def register(cluster: Cluster, job: str, task: int, attempt: int, name: str) -> None:
    endpoint = Endpoint(name=name, address="10.0.0.1:80", job=job, task=task, attempt=attempt)
    await cluster.job(job).signal("endpoint_changed", endpoint)


@pytest.mark.parametrize("tasks", [1, 2])
async def test_an_endpoint_goes_with_its_attempt_and_the_next_one_has_its_own(
    cluster: Cluster, tasks: int
) -> None:
    """A job of one task knows the end of the attempt itself. A job of several tasks learns it from
    their reports.
    """
    first, second = Held(then=is_preempted), Held()
    host = await cluster.join(program=in_turn(first, second))
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


async def test_an_array_whose_tasks_have_sent_too_many_messages_registers_no_more(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server accepts 10,000 signals of a job. Then it could not be held, and would not hear of
    its tasks.
    """
    monkeypatch.setattr(endpoints, "MOST_EVENTS", 1)
    program = Held()
    host = await cluster.join(program=program)
    job = await cluster.submit()
    await cluster.until(lambda: len(host.taken) == 1)
    env = {names.ENV_JOB_ID: job, names.ENV_TASK_INDEX: "0", names.ENV_ATTEMPT: "1"}

    with pytest.raises(Rejected, match="split the array into jobs of at most 1,000 tasks"):
        await cluster.users.endpoints.register(
            "model", "10.0.0.1:80", env={**env, names.ENV_NUM_TASKS: "1001"}
        )
    assert await names_of(cluster, job) == []
    program.let_go()
    await cluster.end(job)
