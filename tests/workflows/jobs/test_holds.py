"""Jobs that their users hold back: nothing of them starts, and what runs runs on."""

from datetime import timedelta

import pytest

from iris.model.job.spec import Band, Hold
from iris.model.states import JobState, TaskState
from iris.workflows.jobs import independent_tasks
from tests.builders import some
from tests.harness import (
    Cluster,
    Held,
    by_index,
    dev_server_cluster,
    in_turn,
    is_preempted,
    succeeds,
)

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


async def _is(cluster: Cluster, job: str, state: JobState) -> bool:
    return (await cluster.status(job)).state is state


async def _counts(cluster: Cluster, *, held: int, waiting: int = 0) -> bool:
    shown = await cluster.snapshot()
    return (shown.held, shown.waiting) == (held, waiting)


async def test_a_waiting_job_that_is_held_gets_no_host_before_it_is_released(
    cluster: Cluster,
) -> None:
    """Nor does it keep one from others; and it says who holds it, and why."""
    job = await cluster.submit()
    await cluster.waits(job)
    await cluster.users.jobs.hold(job, "the data is not there yet")
    await cluster.until(lambda: _counts(cluster, held=1))
    host = await cluster.join(offers=some(cpu=1))
    other = await cluster.submit("other")

    assert (await cluster.end(other)).state is JobState.SUCCEEDED
    status = await cluster.status(job)
    assert [status.state, status.held] == [JobState.HELD, True]
    assert status.reason.startswith("held by ")
    assert status.reason.endswith(": the data is not there yet")
    await cluster.users.jobs.release(job)
    assert (await cluster.end(job)).state is JobState.SUCCEEDED
    assert [task.job for task in host.taken] == [other, job]
    assert await cluster.nothing_held()


async def test_a_released_job_that_has_to_wait_gives_the_schedulers_reason_again(
    cluster: Cluster,
) -> None:
    """The hold is over. If the page still showed it, users would release the job again."""
    await cluster.join(offers=some(cpu=4))
    job = await cluster.submit(resources=some(cpu=32))
    await cluster.waits(job)
    before = (await cluster.status(job)).reason
    await cluster.users.jobs.hold(job)
    await cluster.until(lambda: _counts(cluster, held=1))
    await cluster.users.jobs.release(job)
    await cluster.until(lambda: _counts(cluster, held=0, waiting=1))
    await cluster.waits(job)

    assert (await cluster.status(job)).reason == before
    assert f"**PENDING** (TOO_BIG) {before}" in await cluster.page(cluster.job(job))


async def test_a_running_job_that_is_held_runs_on_and_is_not_tried_again_before_it_is_released(
    cluster: Cluster,
) -> None:
    """A hold stops no running program, but no further attempt of the job starts."""
    taken_away = Held(then=is_preempted)
    host = await cluster.join(program=in_turn(taken_away, succeeds))
    job = await cluster.submit()
    await cluster.until(lambda: host.taken)
    await cluster.users.jobs.hold(job, "look at the curves first")
    await cluster.until(lambda: _is_held(cluster, job))

    assert [(await cluster.status(job)).state, taken_away.cancelled] == [JobState.RUNNING, False]
    taken_away.let_go()
    await cluster.until(lambda: _is(cluster, job, JobState.HELD))
    await cluster.later(HOUR)
    assert [await cluster.nothing_held(), len(host.taken)] == [True, 1]
    await cluster.lose(host.host)
    await cluster.until(lambda: _no_hosts(cluster))
    await cluster.users.jobs.release(job)
    await cluster.waits(job, attempt=1)
    assert "held" not in (await cluster.status(job)).reason
    await cluster.join(incarnation="second")
    status = await cluster.end(job)

    assert status.state is JobState.SUCCEEDED
    assert [status.tasks[0].attempt, status.tasks[0].preemptions] == [2, 1]
    assert await cluster.nothing_held()


async def _no_hosts(cluster: Cluster) -> bool:
    return (await cluster.snapshot()).hosts == ()


async def _is_held(cluster: Cluster, job: str) -> bool:
    return (await cluster.status(job)).held


@pytest.mark.parametrize("at_first", [True, False], ids=["from the start", "after a while"])
async def test_the_scheduling_timeout_does_not_run_while_a_job_is_held(
    cluster: Cluster, *, at_first: bool
) -> None:
    """It is the user who makes it wait, for three hours here; the hour for finding a host is all
    there afterwards.
    """
    if at_first:
        cluster.outbox.asks.close()
    job = await cluster.submit(scheduling_timeout=HOUR)
    if at_first:
        await cluster.users.jobs.hold(job)
        cluster.outbox.asks.open()
    else:
        await cluster.waits(job)
        await cluster.later(HOUR / 2)
        await cluster.users.jobs.hold(job)
    await cluster.until(lambda: _counts(cluster, held=1))
    await cluster.later(3 * HOUR)
    assert await _is(cluster, job, JobState.HELD)
    await cluster.users.jobs.release(job)
    await cluster.until(lambda: _counts(cluster, held=0, waiting=1))
    await cluster.later(HOUR / 2 - 5 * MINUTE)
    assert await _is(cluster, job, JobState.PENDING)
    status = await cluster.end(job, within=HOUR)

    assert status.state is JobState.UNSCHEDULABLE
    assert status.finished_at is not None
    assert 4 * HOUR <= status.finished_at - status.submitted_at < 4 * HOUR + MINUTE
    assert await cluster.nothing_held()


async def test_a_held_job_can_be_cancelled(cluster: Cluster) -> None:
    """Neither its request nor its workflow stays behind."""
    job = await cluster.submit()
    await cluster.waits(job)
    await cluster.users.jobs.hold(job)
    await cluster.until(lambda: _counts(cluster, held=1))
    await cluster.cancel(job, "not needed")
    status = await cluster.end(job)

    assert (status.state, status.reason) == (JobState.KILLED, "not needed")
    assert await _counts(cluster, held=0)


async def test_a_hold_reaches_every_task_of_a_job_of_several(cluster: Cluster) -> None:
    """Those that run run on, those that wait wait on; and one release lets all of them go."""
    runs = Held()
    host = await cluster.join(offers=some(cpu=1), program=by_index(runs, runs, runs))
    job = await cluster.submit(replicas=3)
    await cluster.until(lambda: host.taken)
    await cluster.announce(host.taken[0])
    await cluster.until(lambda: _counts(cluster, held=0, waiting=2))
    await cluster.users.jobs.hold(job)
    await cluster.until(lambda: _counts(cluster, held=2))
    await cluster.until(lambda: _is(cluster, job, JobState.RUNNING))
    runs.let_go()
    await cluster.until(lambda: _is(cluster, job, JobState.HELD))
    tasks = (await cluster.status(job)).tasks

    assert sorted(task.state for task in tasks) == [
        TaskState.PENDING,
        TaskState.PENDING,
        TaskState.SUCCEEDED,
    ]
    assert len(host.taken) == 1
    await cluster.users.jobs.release(job)
    assert (await cluster.end(job)).state is JobState.SUCCEEDED
    assert len(host.taken) == 3
    assert await cluster.nothing_held()


@pytest.mark.long
async def test_a_hold_adds_the_same_few_events_to_a_job_of_any_number_of_tasks(
    cluster: Cluster,
) -> None:
    """The server terminates a workflow with 51,200 events: a job of a thousand tasks would end
    after a few holds.
    """
    job = await cluster.submit(replicas=20)
    await cluster.until(lambda: _every_task_has_a_reason(cluster, job))
    await cluster.later(MINUTE)
    before = len((await cluster.job(job).fetch_history()).events)

    await cluster.users.jobs.hold(job)
    await cluster.until(lambda: _counts(cluster, held=20))
    await cluster.users.jobs.release(job)
    await cluster.until(lambda: _counts(cluster, held=0, waiting=20))
    await cluster.later(MINUTE)

    # A signal, the shown state, an activity and two workflow tasks for each of both: 24 with the
    # marker. It was 328.
    assert len((await cluster.job(job).fetch_history()).events) - before < 40
    assert "no host" in (await cluster.status(job)).reason
    await cluster.join(offers=some(cpu=20))
    assert (await cluster.end(job)).state is JobState.SUCCEEDED


async def _every_task_has_a_reason(cluster: Cluster, job: str) -> bool:
    return all(task.reason for task in (await cluster.status(job)).tasks)


@pytest.mark.long
async def test_tasks_that_are_being_started_hear_of_a_hold_that_comes_and_goes_meanwhile(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that was started with a wish that is over would be held for ever."""
    monkeypatch.setattr(independent_tasks, "STARTS_AT_ONCE", 1)
    runs = Held()
    host = await cluster.join(offers=some(cpu=64), program=runs)
    job = await cluster.submit(replicas=32)
    await cluster.users.jobs.hold(job)
    await cluster.until(lambda: _is_held(cluster, job))
    await cluster.users.jobs.release(job)
    await cluster.until(lambda: len(host.taken) == 32)
    runs.let_go()

    assert (await cluster.end(job)).state is JobState.SUCCEEDED
    assert await cluster.nothing_held()


async def test_a_hold_that_comes_when_the_hosts_are_given_finds_the_job_running(
    cluster: Cluster,
) -> None:
    """The placement was under way: one of the two comes first at the scheduler, and there is
    nothing in between.
    """
    runs = Held()
    job = await cluster.submit()
    await cluster.waits(job)
    cluster.notifier.away = True
    host = await cluster.join(program=runs)
    await cluster.until(lambda: cluster.notifier.given)
    await cluster.users.jobs.hold(job)
    await cluster.until(lambda: host.taken)

    status = await cluster.status(job)
    assert [status.state, status.held] == [JobState.RUNNING, True]
    cluster.notifier.away = False
    runs.let_go()
    assert (await cluster.end(job)).state is JobState.SUCCEEDED
    assert len(host.taken) == 1
    assert await cluster.nothing_held()


async def test_a_held_gang_starts_as_a_whole_when_it_is_released(cluster: Cluster) -> None:
    """A hold knows no tasks: the gang is one request."""
    gang = await cluster.gang()
    await cluster.waits(gang)
    await cluster.users.jobs.hold(gang)
    await cluster.until(lambda: _counts(cluster, held=1))
    hosts = await cluster.join_slice()
    assert await _is(cluster, gang, JobState.HELD)
    await cluster.users.jobs.release(gang)

    assert (await cluster.end(gang)).state is JobState.SUCCEEDED
    assert [len(host.taken) for host in hosts] == [1, 1]


@pytest.mark.long
async def test_a_held_job_that_continues_as_new_stays_held_and_the_hold_counts_in_full() -> None:
    """Else it would start by itself one night, or be given up the moment it is released."""
    async with dev_server_cluster("limit.historyCount.suggestContinueAsNew=30") as cluster:
        job = await cluster.submit(scheduling_timeout=timedelta(seconds=10))
        await cluster.waits(job)
        await cluster.users.jobs.hold(job)
        await cluster.until(lambda: _counts(cluster, held=1))
        first = (await cluster.job(job).describe()).run_id
        await cluster.until(lambda: _other_run_after_a_wish(cluster, job, first))
        await cluster.until(lambda: _counts(cluster, held=1))
        held_until = (await cluster.status(job)).submitted_at + timedelta(seconds=11)
        await cluster.later(held_until - await cluster.now())

        assert await _is(cluster, job, JobState.HELD)
        await cluster.users.jobs.release(job)
        await cluster.until(lambda: _counts(cluster, held=0, waiting=1))
        await cluster.join()
        assert (await cluster.end(job)).state is JobState.SUCCEEDED
        await cluster.until(cluster.nothing_held)


async def _other_run_after_a_wish(cluster: Cluster, job: str, first: str | None) -> bool:
    """Whether the job has continued as new; each wish makes its history longer."""
    await cluster.users.jobs.set_priority(job, Band.BATCH)
    return (await cluster.job(job).describe()).run_id != first


@pytest.mark.parametrize("replicas", [1, 3])
async def test_a_job_that_a_budget_holds_gets_no_host_although_one_is_free(
    cluster: Cluster, replicas: int
) -> None:
    """A hold that came after the request would be too late: hosts are free, and answers quick."""
    host = await cluster.join(offers=some(cpu=8))
    mine = await cluster.submit("before", replicas=replicas)
    assert (await cluster.end(mine)).state is JobState.SUCCEEDED
    before = len(host.taken)
    cluster.outbox.holds["ada"] = Hold(by="budget small", reason="used up")
    job = await cluster.submit("after", replicas=replicas)
    await cluster.until(lambda: _is(cluster, job, JobState.HELD))
    await cluster.until(lambda: _counts(cluster, held=replicas))
    await cluster.later(HOUR)

    assert [len(host.taken), await cluster.nothing_held()] == [before, True]
    assert (await cluster.status(job)).reason == "held by budget small: used up"
    cluster.outbox.holds.clear()
    await cluster.users.jobs.release(job)
    assert (await cluster.end(job)).state is JobState.SUCCEEDED
    assert len(host.taken) == before + replicas
