"""Arrays: tasks with the indices that the user gave, at most so many at once."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.common import SearchAttributeKey

from iris.client.client import AsyncIrisClient
from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.identity import current_user
from iris.client.jobs import results
from iris.client.jobs.submit.rerun import spec_again
from iris.messages.task import RunTask
from iris.model import names
from iris.model.errors import NotFound, Rejected
from iris.model.job.arrays import PART_TASKS, Array, format_indices, part_workflow
from iris.model.job.attempts import TaskOutcome
from iris.model.job.bundles import Bundle
from iris.model.job.errors import JobFailed
from iris.model.job.spec import Band
from iris.model.states import JobState, TaskState
from iris.workflows import policies
from iris.workflows.jobs import array_part
from iris.workflows.jobs import job as job_workflow
from tests.builders import some
from tests.harness import Cluster, Held, by_index, fails, in_turn, succeeds

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def an_array(*indices: int, limit: int | None = None, part: int = PART_TASKS) -> dict[str, object]:
    """The options of a job with these tasks, in parts of this size if there are more."""
    return {
        "array": Array(indices=format_indices(indices), size=len(indices), limit=limit, part=part),
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


async def test_tasks_have_the_indices_of_the_array_wherever_they_are_named(
    cluster: Cluster,
) -> None:
    """A program that takes its index as the number of a shard must get the number that the user
    sees.
    """
    host = await cluster.join(offers=some(cpu=8))
    job = await cluster.submit(**an_array(3, 5, 17))
    status = await cluster.end(job)

    assert status.state is JobState.SUCCEEDED
    assert [task.index for task in status.tasks] == [3, 5, 17]
    assert sorted((task.index, task.num_tasks) for task in host.taken) == [(3, 3), (5, 3), (17, 3)]
    assert [await cluster.shown_end(cluster.task(job, index)) for index in (3, 5, 17)] == [
        "COMPLETED"
    ] * 3
    assert await cluster.nothing_held()


async def test_an_array_of_one_task_keeps_its_index(cluster: Cluster) -> None:
    """As every job of one task it has no workflow for the task, and its only task need not be
    number 0.
    """
    host = await cluster.join()
    job = await cluster.submit(**an_array(17))
    status = await cluster.end(job)

    assert [task.index for task in status.tasks] == [task.index for task in host.taken] == [17]
    with pytest.raises(NotFound, match="17"):
        await cluster.users.jobs.cancel_task(job, 0)


async def test_no_more_tasks_than_the_limit_have_hosts_at_once(cluster: Cluster) -> None:
    """The limit protects what the tasks share: a license, a database, the hosts that others
    need.
    """
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
    assert [task.state for task in status.tasks] == [
        TaskState.SUCCEEDED,
        TaskState.SUCCEEDED,
        TaskState.CANCELLED,
    ]
    assert [task.index for task in host.taken] == [1, 4]


async def test_a_retried_task_of_an_array_keeps_its_place_within_the_limit(
    cluster: Cluster,
) -> None:
    """A failure must not let a task more run than the user allowed, and each task has its own
    account of retries.
    """
    host = await cluster.join(offers=some(cpu=8), program=in_turn(fails, succeeds, succeeds))
    job = await cluster.submit(**an_array(2, 4, limit=1), max_retries_failure=1)
    status = await cluster.end(job, within=MINUTE)

    assert status.state is JobState.SUCCEEDED
    assert [(task.index, task.attempt) for task in host.taken] == [(2, 1), (2, 2), (4, 1), (4, 2)]


async def test_a_job_that_is_cancelled_ends_the_tasks_that_wait_for_the_limit(
    cluster: Cluster,
) -> None:
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


@pytest.mark.parametrize("part", [PART_TASKS, 1])
async def test_the_scheduling_timeout_of_a_task_does_not_count_its_wait_for_the_limit(
    cluster: Cluster, part: int
) -> None:
    """The task could not ask for hosts before, and its end as UNSCHEDULABLE would end the job,
    however many hosts are free.
    """
    job = await cluster.submit(**an_array(0, 1, limit=1, part=part), scheduling_timeout=HOUR / 2)
    await cluster.users.jobs.hold(job)
    await cluster.later(HOUR)
    await cluster.users.jobs.release(job)
    await cluster.users.jobs.cancel_task(job, 0)
    await cluster.later(MINUTE)
    await cluster.join()
    status = await cluster.end(job, within=MINUTE)

    assert status.state is JobState.SUCCEEDED


async def test_only_the_tasks_that_did_not_succeed_run_again_as_the_same_tasks(
    cluster: Cluster,
) -> None:
    """Each has its index, by which it finds its row, and the size of the whole array, by which
    programs divide their data.
    """
    host = await cluster.join(
        offers=some(cpu=8), program=by_index(succeeds, succeeds, fails, succeeds, fails, succeeds)
    )
    job = await cluster.submit(**an_array(1, 2, 4, 5), max_task_failures=2)
    await cluster.end(job)
    again = await spec_again(cluster.users.jobs, job, None, failed=True, name="again")
    assert again is not None
    second = await cluster.users.jobs.submit(again)
    status = await cluster.end(second.id)

    assert [(task.index, task.state) for task in status.tasks] == [
        (2, TaskState.FAILED),
        (4, TaskState.FAILED),
    ]
    assert {task.num_tasks for task in host.taken} == {4}


async def test_a_job_without_an_array_runs_its_failed_tasks_again_by_their_numbers(
    cluster: Cluster,
) -> None:
    """And the whole of it runs again as it was; if nothing has failed, there is nothing to run."""
    await cluster.join(offers=some(cpu=8), program=by_index(succeeds, fails, succeeds))
    job = await cluster.submit(replicas=3, max_task_failures=1)
    await cluster.end(job)
    jobs = cluster.users.jobs
    failed = await spec_again(jobs, job, None, failed=True, name=None)
    whole = await spec_again(jobs, job, None, failed=False, name=None)
    good = await cluster.submit("good")
    await cluster.end(good)

    assert failed is not None
    assert (failed.indices, failed.num_tasks) == ((1,), 3)
    assert whole == (await jobs.submitted_spec(job)).model_copy(update={"user": current_user()})
    assert await spec_again(jobs, good, None, failed=True, name=None) is None


# -- arrays of several parts
# --------------------------------------------------------------------------------------------------


async def test_a_large_array_runs_in_parts_within_one_limit(cluster: Cluster) -> None:
    """The limit is that of the array, and the job has the status of each task, also of those in
    other workflows.
    """
    program = Counted()
    await cluster.join(offers=some(cpu=64), program=program)
    job = await cluster.submit(**an_array(*range(100, 110), limit=4, part=3))
    await cluster.until(lambda: program.running == 4)
    parts = await cluster.shown_end(
        cluster.client.get_workflow_handle(part_workflow(cluster.name, job, 1))
    )
    program.held.let_go()
    status = await cluster.end(job, within=HOUR)

    assert status.state is JobState.SUCCEEDED
    assert [task.index for task in status.tasks] == [*range(100, 110)]
    assert {task.state for task in status.tasks} == {TaskState.SUCCEEDED}
    assert (program.most, parts) == (4, "RUNNING")
    assert await cluster.nothing_held()


async def test_the_replay_of_an_array_in_parts_has_more_time_than_that_of_other_jobs(
    cluster: Cluster,
) -> None:
    """Its history has up to two thousand reports. A replay that never ends in time would hold the
    job up for ever.
    """
    timeouts = []
    for name, part in (("large", 1), ("small", PART_TASKS)):
        job = await cluster.submit(name, **an_array(0, 1, part=part))
        described = await cluster.job(job).describe()
        timeouts.append(
            described.raw_description.execution_config.default_workflow_task_timeout.ToTimedelta()
        )
        await cluster.cancel(job)
        await cluster.end(job)

    assert timeouts == [policies.PARTS_TASK, policies.JOB_TASK]


async def test_a_failure_in_one_part_of_an_array_ends_the_others(cluster: Cluster) -> None:
    """Tasks of parts that have not begun end with the job, too; and every task says why it
    ended.
    """
    runs, bad = Held(), Held(then=fails)
    await cluster.join(offers=some(cpu=64), program=by_index(runs, runs, runs, bad, runs))
    job = await cluster.submit(**an_array(*range(12), limit=4, part=3))
    await cluster.until(lambda: _run(cluster, 4))
    bad.let_go()
    status = await cluster.end(job)

    assert status.state is JobState.FAILED
    assert status.tasks[3].state is TaskState.FAILED
    assert {task.state for task in status.tasks} == {TaskState.FAILED, TaskState.KILLED}
    assert all(
        status.reason in task.reason for task in status.tasks if task.state is TaskState.KILLED
    )
    assert await cluster.nothing_held()


async def test_a_large_array_puts_up_with_as_many_failed_tasks_as_it_says(cluster: Cluster) -> None:
    """The number counts the tasks of all parts."""
    await cluster.join(offers=some(cpu=64), program=by_index(fails, *[succeeds] * 7, fails))
    job = await cluster.submit(**an_array(*range(9), part=3), max_task_failures=2)
    status = await cluster.end(job, within=HOUR)

    assert status.state is JobState.SUCCEEDED
    assert status.reason.startswith("7 of 9 tasks ")


async def test_a_large_array_that_has_ended_tells_the_status_of_all_tasks_without_a_control_plane(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The results of its parts have all of it. A query would replay a history of a thousand events,
    for seconds.
    """
    monkeypatch.setattr(job_workflow, "TASKS_IN_RESULT", 2)
    await cluster.join(offers=some(cpu=64), program=by_index(fails, *[succeeds] * 7, fails))
    enough = await cluster.submit("enough", **an_array(*range(9), part=4), max_task_failures=2)
    asked = await cluster.end(enough, within=HOUR)
    await cluster.stop_serving()
    status = await cluster.users.jobs.status(enough)

    assert status == asked
    assert (status.state, len(status.tasks)) == (JobState.SUCCEEDED, 9)


async def test_the_job_of_a_large_array_is_asked_for_what_its_parts_do_not_know(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks of a part that has not begun, and why tasks were killed: only the job's answer says
    it.
    """
    monkeypatch.setattr(job_workflow, "TASKS_IN_RESULT", 2)
    runs, bad = Held(), Held(then=fails)
    await cluster.join(offers=some(cpu=64), program=by_index(runs, runs, runs, bad, runs))
    train = await cluster.submit(**an_array(*range(12), limit=4, part=3))
    await cluster.until(lambda: _run(cluster, 4))
    bad.let_go()
    asked = await cluster.end(train)

    assert await cluster.users.jobs.status(train) == asked
    assert {task.state for task in asked.tasks} == {TaskState.FAILED, TaskState.KILLED}


async def test_tasks_of_a_large_array_are_cancelled_alone_and_together(cluster: Cluster) -> None:
    """Whether the task runs, waits in its part, or its part has not begun."""
    runs = Held()
    await cluster.join(offers=some(cpu=64), program=runs)
    job = await cluster.submit(**an_array(*range(9), limit=2, part=3))
    await cluster.until(lambda: _run(cluster, 2))
    for index in (0, 2, 8):
        await cluster.users.jobs.cancel_task(job, index, "not this one")
    await cluster.until(lambda: _has_ended(cluster, job, 0))
    await cluster.cancel(job, "enough")
    status = await cluster.end(job)

    assert (status.state, status.reason) == (JobState.KILLED, "enough")
    alone = [task.index for task in status.tasks if task.state is TaskState.CANCELLED]
    assert alone == [0, 2, 8]
    assert {task.reason for task in status.tasks if task.index not in alone} == {"enough"}
    assert {task.reason for task in status.tasks if task.index in alone} == {"not this one"}
    assert await cluster.nothing_held()


@pytest.mark.long
async def test_the_job_hears_soon_that_a_task_of_a_large_array_is_cancelled(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it shows CANCELLING, with a time of SIGKILL long past, until the part reports anyway:
    after hours of a long run.
    """
    monkeypatch.setattr(array_part, "GROWTH", 1e6)
    runs = Held()
    host = await cluster.join(offers=some(cpu=64), program=by_index(succeeds, runs))
    job = await cluster.submit(**an_array(*range(8), limit=1, part=7))
    await cluster.until(lambda: len(host.taken) == 2)
    for index in (5, 6):  # the job may hear of the first one by a report that is due anyway
        await cluster.users.jobs.cancel_task(job, index, "not this one")
        await cluster.until(lambda index=index: _known_as(cluster, job, index, TaskState.CANCELLED))
    await cluster.cancel(job)
    await cluster.end(job)


async def _known_as(cluster: Cluster, job: str, index: int, state: TaskState) -> bool:
    """Whether the job itself knows that the task is in the state."""
    return (await cluster.status(job)).tasks[index].state is state


async def test_a_change_of_a_large_array_reaches_all_of_its_tasks(cluster: Cluster) -> None:
    """Parts that have begun are told, and later ones begin with it."""
    program = Counted()
    await cluster.join(offers=some(cpu=64), program=program)
    job = await cluster.submit(**an_array(*range(9), limit=2, part=3))
    await cluster.until(lambda: program.running == 2)
    await cluster.users.jobs.set_priority(job, Band.BATCH)
    await cluster.until(lambda: _in_band(cluster, job, 1))
    program.held.let_go()
    status = await cluster.end(job, within=HOUR)

    assert status.state is JobState.SUCCEEDED
    assert await _in_band(cluster, job, 8)


async def test_a_task_of_a_large_array_is_asked_itself_where_it_runs(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its part reports less and less often: the job may believe for minutes that a task waits that
    runs, or is cancelled.
    """
    monkeypatch.setattr(array_part, "FIRST_PAUSE", HOUR)
    first, second = Held(), Held()
    await cluster.join(offers=some(cpu=8), program=by_index(first, second))
    job = await cluster.submit(**an_array(0, 1, 2, part=2, limit=1))
    await cluster.until(lambda: _run(cluster, 1))
    jobs, exec_client = cluster.users.jobs, cluster.users.exec
    await cluster.until(lambda: _is(cluster, job, 0, TaskState.ASSIGNED, TaskState.RUNNING))
    first.let_go()
    await cluster.until(lambda: _is(cluster, job, 1, TaskState.ASSIGNED, TaskState.RUNNING))
    late = (await jobs.status(job)).tasks[1].state
    where = await exec_client.locate(job, 1)
    explained = await jobs.explain(job, 1)
    with pytest.raises(Rejected, match="SUCCEEDED"):
        await exec_client.locate(job, 0)
    await jobs.cancel_task(job, 1, "not this one")
    await cluster.until(lambda: _is(cluster, job, 1, TaskState.CANCELLED))

    assert late is TaskState.PENDING, "the job knew: nothing was tested"
    assert (where.task, explained.state) == (1, JobState.RUNNING)
    await cluster.cancel(job)
    await cluster.end(job)


async def test_a_task_of_an_earlier_job_of_the_name_is_not_asked(cluster: Cluster) -> None:
    """Its workflow has the same name until that of the new task starts."""
    host = await cluster.join(offers=some(cpu=8))
    await cluster.end(await cluster.submit(**an_array(0, 1, limit=1)))
    host.program = held = Held()
    job = await cluster.submit(**an_array(0, 1, limit=1))
    await cluster.until(lambda: _run(cluster, 1))

    assert (await cluster.users.jobs.status(job, index=1)).tasks[1].state is TaskState.PENDING
    held.let_go()
    await cluster.end(job)


@pytest.mark.long
async def test_the_results_of_an_array_whose_tasks_were_killed_are_missed_together(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result may come late, but ten thousand tasks that left none would be awaited for hours, one
    after the other.
    """
    monkeypatch.setattr(results, "FAILED_PATIENCE", timedelta(seconds=2))
    await cluster.join(offers=some(cpu=64), program=fails)
    client = AsyncIrisClient(
        cluster.client,
        ClusterRecord(name=cluster.name, address="trial:7233", store=tmp_path.as_uri()),
    )
    function = Bundle(sha256="0" * 64)
    some_lost, all_lost = [
        client.job(
            await cluster.submit(
                name, **an_array(*range(40)), max_task_failures=lost, call=function
            )
        )
        for name, lost in (("some", 40), ("all", 39))
    ]
    for job, state in ((some_lost, JobState.SUCCEEDED), (all_lost, JobState.FAILED)):
        assert (await cluster.end(job.id)).state is state

    async with asyncio.timeout(40):
        lost = await some_lost.results(trusted=True, return_exceptions=True)
        with pytest.raises(JobFailed, match="task 0 of ada/some FAILED"):
            await some_lost.results(trusted=True)
        with pytest.raises(JobFailed, match="ada/all FAILED: 40 failed"):
            await all_lost.results(trusted=True)
    assert [str(error).partition(" FAILED")[0] for error in lost] == [
        f"task {index} of ada/some" for index in range(40)
    ]


async def _is(cluster: Cluster, job: str, index: int, *states: TaskState) -> bool:
    return (await cluster.users.jobs.status(job, index=index)).tasks[index].state in states


async def _run(cluster: Cluster, tasks: int) -> bool:
    return (await cluster.snapshot()).running == tasks


async def _in_band(cluster: Cluster, job: str, index: int) -> bool:
    described = await cluster.task(job, index).describe()
    return (
        described.typed_search_attributes.get(SearchAttributeKey.for_keyword(names.SA_PRIORITY))
        == Band.BATCH
    )


async def _has_ended(cluster: Cluster, job: str, index: int) -> bool:
    return await cluster.shown_end(cluster.task(job, index)) != "RUNNING"
