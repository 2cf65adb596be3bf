"""Arrays: tasks with the indices that the user gave, at most so many at once."""

from datetime import timedelta

import pytest

from iris.messages.task import RunTask
from iris.model.arrays import Array, format_indices
from iris.model.errors import NotFound
from iris.model.jobs import TaskOutcome
from iris.model.states import JobState, TaskState
from tests.builders import some
from tests.harness import Cluster, Held, fails, in_turn, succeeds

MINUTE = timedelta(minutes=1)


def an_array(*indices: int, limit: int | None = None) -> dict[str, object]:
    """The options of a job with these tasks."""
    return {
        "array": Array(indices=format_indices(indices), size=len(indices), limit=limit),
        "replicas": len(indices),
    }


class Counted:
    """A program that knows how many of it ran at the same time."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.held = Held()

    async def __call__(self, task: RunTask) -> TaskOutcome:
        self.running += 1
        self.most = max(self.most, self.running)
        outcome = await self.held(task)
        self.running -= 1
        return outcome


async def test_tasks_have_the_indices_of_the_array_wherever_they_are_named(cluster: Cluster) -> None:
    """A program that takes its index as the number of a shard must get the number that the user sees."""
    host = await cluster.join(offers=some(cpu=8))
    job = await cluster.submit(**an_array(3, 5, 17))
    status = await cluster.end(job)

    assert status.state is JobState.SUCCEEDED
    assert [task.index for task in status.tasks] == [3, 5, 17]
    assert sorted((task.index, task.num_tasks) for task in host.taken) == [(3, 3), (5, 3), (17, 3)]
    assert [await cluster.shown_end(cluster.task(job, index)) for index in (3, 5, 17)] == ["COMPLETED"] * 3
    assert await cluster.nothing_held()


async def test_an_array_of_one_task_keeps_its_index(cluster: Cluster) -> None:
    """As every job of one task it has no workflow for the task, and its only task need not be number 0."""
    host = await cluster.join()
    job = await cluster.submit(**an_array(17))
    status = await cluster.end(job)

    assert [task.index for task in status.tasks] == [task.index for task in host.taken] == [17]
    with pytest.raises(NotFound, match="its tasks are 17"):
        await cluster.users.jobs.cancel_task(job, 0)


async def test_no_more_tasks_than_the_limit_have_hosts_at_once(cluster: Cluster) -> None:
    """The limit protects what the tasks share: a license, a database, the hosts that others need."""
    program = Counted()
    await cluster.join(offers=some(cpu=8), program=program)
    job = await cluster.submit(**an_array(*range(7), limit=2))
    await cluster.until(lambda: program.running == 2)
    waiting = await cluster.snapshot()
    program.held.let_go()
    status = await cluster.end(job, within=MINUTE)

    assert status.state is JobState.SUCCEEDED
    assert program.most == 2
    assert waiting.waiting == 0
    assert await cluster.nothing_held()


async def test_a_task_that_waits_for_the_limit_can_be_cancelled_alone(cluster: Cluster) -> None:
    """It has no workflow yet, and must never get one."""
    program = Counted()
    host = await cluster.join(offers=some(cpu=8), program=program)
    job = await cluster.submit(**an_array(1, 4, 9, limit=1))
    await cluster.until(lambda: program.running == 1)
    await cluster.users.jobs.cancel_task(job, 9)
    program.held.let_go()
    status = await cluster.end(job, within=MINUTE)

    assert status.state is JobState.SUCCEEDED
    assert [task.state for task in status.tasks] == [TaskState.SUCCEEDED, TaskState.SUCCEEDED, TaskState.CANCELLED]
    assert [task.index for task in host.taken] == [1, 4]


async def test_a_retried_task_of_an_array_keeps_its_place_within_the_limit(cluster: Cluster) -> None:
    """A failure must not let a task more run than the user allowed, and each task has its own account of retries."""
    host = await cluster.join(offers=some(cpu=8), program=in_turn(fails, succeeds, succeeds))
    job = await cluster.submit(**an_array(2, 4, limit=1), max_retries_failure=1)
    status = await cluster.end(job, within=MINUTE)

    assert status.state is JobState.SUCCEEDED
    assert [(task.index, task.attempt) for task in host.taken] == [(2, 1), (2, 2), (4, 1), (4, 2)]


async def test_a_job_that_is_cancelled_ends_the_tasks_that_wait_for_the_limit(cluster: Cluster) -> None:
    """The job's end must not wait for tasks that have not begun."""
    program = Counted()
    await cluster.join(offers=some(cpu=8), program=program)
    job = await cluster.submit(**an_array(*range(4), limit=1))
    await cluster.until(lambda: program.running == 1)
    await cluster.cancel(job, "enough")
    status = await cluster.end(job, within=MINUTE)

    assert (status.state, status.reason) == (JobState.KILLED, "enough")
    assert [task.state for task in status.tasks] == [TaskState.KILLED] * 4
    assert await cluster.nothing_held()
