"""Jobs of several tasks: a workflow for each, and one end for all."""

from datetime import timedelta

import pytest

from iris.model.errors import NotFound, Rejected
from iris.model.states import JobState, TaskState
from tests.builders import some
from tests.harness import (
    Cluster,
    Held,
    by_index,
    fails,
    in_turn,
    is_not_taken,
    is_preempted,
    succeeds,
)

MINUTE = timedelta(minutes=1)


async def test_every_task_of_a_job_has_one_workflow_and_runs_once(cluster: Cluster) -> None:
    """A job's history must not grow with tasks times attempts, and task i must be task i wherever
    it runs.
    """
    host = await cluster.join(offers=some(cpu=2))
    job = await cluster.submit(replicas=5)
    status = await cluster.end(job)

    assert status.state is JobState.SUCCEEDED
    assert [task.index for task in status.tasks] == [0, 1, 2, 3, 4]
    assert sorted((task.index, task.num_tasks, task.attempt) for task in host.taken) == [
        (i, 5, 1) for i in range(5)
    ]
    assert [await cluster.shown_end(cluster.task(job, i)) for i in range(5)] == ["COMPLETED"] * 5
    assert await cluster.nothing_held()


async def test_each_task_has_accounts_of_its_own(cluster: Cluster) -> None:
    """One unlucky task must not use up what the others may spend."""
    await cluster.join(
        program=by_index(in_turn(fails, succeeds), in_turn(is_preempted, fails, succeeds), succeeds)
    )
    job = await cluster.submit(replicas=3, max_retries_failure=1, max_retries_preemption=1)
    status = await cluster.end(job)

    assert status.state is JobState.SUCCEEDED
    assert [(task.attempt, task.failures, task.preemptions) for task in status.tasks] == [
        (2, 1, 0),
        (3, 1, 1),
        (1, 0, 0),
    ]


async def test_one_failed_task_ends_the_job_and_its_siblings(cluster: Cluster) -> None:
    """The result cannot be complete any more, and other jobs can use the hosts."""
    runs = Held()
    await cluster.join(program=by_index(runs, fails, runs))
    job = await cluster.submit(replicas=3)
    status = await cluster.end(job)

    assert status.state is JobState.FAILED
    assert status.reason.endswith(f"task 1: {status.tasks[1].reason}")
    assert [task.state for task in status.tasks] == [
        TaskState.KILLED,
        TaskState.FAILED,
        TaskState.KILLED,
    ]
    assert status.tasks[0].reason.endswith(f"FAILED: {status.reason}")
    assert [await cluster.shown_end(cluster.task(job, i)) for i in range(3)] == [
        "CANCELED",
        "FAILED",
        "CANCELED",
    ]
    assert await cluster.nothing_held()


async def test_a_job_puts_up_with_as_many_failed_tasks_as_it_says(cluster: Cluster) -> None:
    """A sweep of a thousand is not worthless because one of them crashed."""
    await cluster.join(program=by_index(fails, succeeds, fails, succeeds))
    job = await cluster.submit(replicas=4, max_task_failures=2)
    status = await cluster.end(job)

    assert status.state is JobState.SUCCEEDED
    assert [task.state for task in status.tasks].count(TaskState.FAILED) == 2


async def test_one_failed_task_too_many_ends_the_job(cluster: Cluster) -> None:
    """At once, not when the last of the others has run for a week."""
    await cluster.join(offers=some(cpu=8), program=by_index(fails, fails, Held(), Held(), fails))
    job = await cluster.submit(replicas=5, max_task_failures=2)
    status = await cluster.end(job)

    assert status.state is JobState.FAILED
    assert "max_task_failures 2" in status.reason
    assert [task.state for task in status.tasks].count(TaskState.KILLED) == 2
    assert await cluster.nothing_held()


async def test_a_task_without_a_host_in_time_ends_the_job_and_its_running_siblings(
    cluster: Cluster,
) -> None:
    """Half a job is none. The clock runs as real time does here, because a program runs: hence the
    short timeout.
    """
    runs = Held()
    host = await cluster.join(offers=some(cpu=4), program=runs)
    job = await cluster.submit(
        replicas=2, resources=some(cpu=3), scheduling_timeout=timedelta(seconds=1.5)
    )
    status = await cluster.end(job)

    assert status.state is JobState.UNSCHEDULABLE
    assert sorted(task.state for task in status.tasks) == [
        TaskState.KILLED,
        TaskState.UNSCHEDULABLE,
    ]
    assert "needs 3 cpu; " in status.reason
    assert [len(host.taken), runs.cancelled] == [1, True]
    assert await cluster.nothing_held()


async def test_cancelling_a_job_cancels_its_tasks_whether_they_run_or_wait(
    cluster: Cluster,
) -> None:
    """One button for all of it; and the job's end is not shown before the last program is dead."""
    runs = Held()
    host = await cluster.join(offers=some(cpu=4), program=runs)
    job = await cluster.submit(replicas=3, resources=some(cpu=3))
    await cluster.until(lambda: _one_runs_two_wait(cluster))
    await cluster.cancel(job, "cancelled by ada")
    status = await cluster.end(job)

    assert (status.state, status.reason) == (JobState.KILLED, "cancelled by ada")
    assert [task.state for task in status.tasks] == [TaskState.KILLED] * 3
    assert [task.reason for task in status.tasks] == ["cancelled by ada"] * 3
    assert [await cluster.shown_end(cluster.task(job, i)) for i in range(3)] == ["CANCELED"] * 3
    assert await cluster.shown_end(cluster.job(job)) == "CANCELED"
    assert [len(host.taken), runs.cancelled] == [1, True]
    assert await cluster.nothing_held()


async def test_a_task_cancelled_alone_ends_and_the_others_go_on(cluster: Cluster) -> None:
    """One bad value in a sweep must not cost the other nineteen, and the job's end must not hide
    that one is missing.
    """
    runs, bad = Held(), Held()
    await cluster.join(offers=some(cpu=3), program=by_index(runs, bad, runs))
    job = await cluster.submit(replicas=3)
    await cluster.until(lambda: _run(cluster, 3))
    await cluster.users.jobs.cancel_task(job, 1, "its learning rate is too high")
    await cluster.until(lambda: _is_cancelled(cluster, job, 1))
    before = await cluster.status(job)
    runs.let_go()
    status = await cluster.end(job, within=MINUTE)

    assert (before.state.ended, bad.cancelled, runs.cancelled) == (False, True, False)
    assert [task.state for task in status.tasks] == [
        TaskState.SUCCEEDED,
        TaskState.CANCELLED,
        TaskState.SUCCEEDED,
    ]
    assert status.tasks[1].reason == "its learning rate is too high"
    assert status.state is JobState.SUCCEEDED
    assert status.reason.startswith("2 of 3 tasks ")
    assert [await cluster.shown_end(cluster.task(job, i)) for i in range(3)] == [
        "COMPLETED",
        "CANCELED",
        "COMPLETED",
    ]
    assert (await cluster.users.jobs.cancel_task(job, 1)).ended is TaskState.CANCELLED
    assert await cluster.nothing_held()


async def test_a_task_that_waits_is_cancelled_alone_too_and_all_of_them_are_the_job(
    cluster: Cluster,
) -> None:
    """A job of which nothing is left did not succeed."""
    runs = Held()
    host = await cluster.join(offers=some(cpu=4), program=runs)
    job = await cluster.submit(replicas=2, resources=some(cpu=3))
    await cluster.until(lambda: host.taken)
    (taken,) = host.taken
    await cluster.users.jobs.cancel_task(job, 1 - taken.index)
    await cluster.until(lambda: _is_cancelled(cluster, job, 1 - taken.index))

    assert (await cluster.status(job)).state.ended is False
    await cluster.users.jobs.cancel_task(job, taken.index)
    status = await cluster.end(job, within=MINUTE)
    assert [status.state, runs.cancelled] == [JobState.KILLED, True]
    assert status.reason.startswith("cancelled by ")
    assert await cluster.nothing_held()


async def test_a_task_whose_page_was_used_to_cancel_it_is_cancelled_alone(cluster: Cluster) -> None:
    """The button of a task's page in Temporal's Web UI means that task."""
    runs = Held()
    await cluster.join(offers=some(cpu=2), program=runs)
    job = await cluster.submit(replicas=2)
    await cluster.until(lambda: _run(cluster, 2))
    await cluster.task(job, 0).cancel()
    await cluster.until(lambda: _is_cancelled(cluster, job, 0))
    runs.let_go()

    assert (await cluster.end(job, within=MINUTE)).state is JobState.SUCCEEDED


async def test_a_job_that_is_cancelled_has_the_reason_of_that_and_not_of_an_earlier_cancelled_task(
    cluster: Cluster,
) -> None:
    """Who ended the job is the question, and not who ended a part of it yesterday."""
    await cluster.join(offers=some(cpu=2), program=Held())
    job = await cluster.submit(replicas=2)
    await cluster.until(lambda: _run(cluster, 2))
    await cluster.users.jobs.cancel_task(job, 0, "too slow")
    await cluster.until(lambda: _is_cancelled(cluster, job, 0))
    await cluster.cancel(job, "cancelled by ada")
    status = await cluster.end(job)

    assert (status.state, status.reason) == (JobState.KILLED, "task 1: cancelled by ada")
    assert [task.state for task in status.tasks] == [TaskState.CANCELLED, TaskState.KILLED]


async def test_a_task_of_a_gang_is_not_cancelled_alone(cluster: Cluster) -> None:
    """A gang without one of its members computes nothing; the answer says what to cancel
    instead.
    """
    job = await cluster.gang()

    with pytest.raises(
        Rejected, match=f"are a gang, which ends as a whole; .* run `iris cancel {job}`"
    ):
        await cluster.users.jobs.cancel_task(job, 1)
    with pytest.raises(NotFound, match="0 to 1"):
        await cluster.users.jobs.cancel_task(job, 2)


async def _run(cluster: Cluster, tasks: int) -> bool:
    return (await cluster.snapshot()).running == tasks


async def _is_cancelled(cluster: Cluster, job: str, index: int) -> bool:
    return (await cluster.status(job)).tasks[index].state is TaskState.CANCELLED


async def test_a_job_shows_where_its_tasks_are_prepared(cluster: Cluster) -> None:
    """An environment may take minutes. Until then `status` showed PENDING without a host, and lists
    showed a job that waits.
    """
    runs = Held()
    host = await cluster.join("rack-7", program=runs)
    job = await cluster.submit(replicas=2)
    await cluster.until(lambda: len(host.taken) == 2)
    for task in host.taken:
        await cluster.announce(task, TaskState.BUILDING)
    await cluster.until(lambda: _both_are_built(cluster, job))

    assert [task.host for task in (await cluster.status(job)).tasks] == ["rack-7", "rack-7"]
    assert await cluster.shown_state(cluster.job(job)) == "BUILDING"
    runs.let_go()
    assert (await cluster.end(job, within=MINUTE)).state is JobState.SUCCEEDED


async def _both_are_built(cluster: Cluster, job: str) -> bool:
    return all(task.state is TaskState.BUILDING for task in (await cluster.status(job)).tasks)


async def _one_runs_two_wait(cluster: Cluster) -> bool:
    shown = await cluster.snapshot()
    return (shown.running, shown.waiting) == (1, 2)


async def test_a_task_killed_between_its_attempts_counts_as_killed(cluster: Cluster) -> None:
    """The job has heard of its earlier attempts by then; those must not pass for the task's end."""
    await cluster.join(program=is_not_taken)
    job = await cluster.submit(replicas=2)
    await cluster.until(lambda: _both_wait_again(cluster, job))
    await cluster.cancel(job)
    status = await cluster.end(job)

    assert status.state is JobState.KILLED
    assert [task.state for task in status.tasks] == [TaskState.KILLED, TaskState.KILLED]
    assert await cluster.nothing_held()


async def _both_wait_again(cluster: Cluster, job: str) -> bool:
    tasks = (await cluster.status(job)).tasks
    return all(task.state is TaskState.PENDING and task.attempt for task in tasks)


async def test_a_job_knows_how_far_its_tasks_are(cluster: Cluster) -> None:
    """Users look at the status of the job, not at the workflows of its tasks."""
    runs = Held()
    host = await cluster.join(offers=some(cpu=4), program=runs)
    job = await cluster.submit(replicas=2, resources=some(cpu=3))
    await cluster.until(lambda: host.taken)
    await cluster.announce(host.taken[0])
    await cluster.until(lambda: _one_is_known_to_run(cluster, job))
    status = await cluster.status(job)

    assert status.state is JobState.RUNNING
    assert "needs 3 cpu" in status.reason
    runs.let_go()
    assert (await cluster.end(job)).state is JobState.SUCCEEDED


async def _one_is_known_to_run(cluster: Cluster, job: str) -> bool:
    status = await cluster.status(job)
    return {task.state for task in status.tasks} == {TaskState.RUNNING, TaskState.PENDING} and bool(
        status.reason
    )
