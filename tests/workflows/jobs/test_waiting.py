"""Waiting for a host: for ever, or for as long as the job said."""

from datetime import timedelta

import pytest

from iris.model.states import JobState, TaskState
from iris.scheduling.placement.refusals import RefusalCode
from tests.builders import a_placement, some
from tests.harness import Cluster, Held, loses_its_host, succeeds

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
MOMENT = timedelta(seconds=5)


@pytest.mark.long
async def test_a_job_that_never_fits_ends_after_three_days_and_blocks_no_other(
    cluster: Cluster,
) -> None:
    """To the second, with the numbers that the user needs; a smaller job submitted after it must
    not pay for its size.
    """
    await cluster.join(offers=some(cpu=4))
    large = await cluster.submit(
        "large", resources=some(cpu=32), scheduling_timeout=timedelta(days=3)
    )
    await cluster.waits(large)
    small = await cluster.submit("small", resources=some(cpu=2))

    assert (await cluster.end(small)).state is JobState.SUCCEEDED
    assert (await cluster.status(large)).state is JobState.PENDING
    status = await cluster.end(large, within=timedelta(days=3))

    assert status.state is JobState.UNSCHEDULABLE
    assert status.finished_at is not None
    assert (
        timedelta(days=3) <= status.finished_at - status.submitted_at < timedelta(days=3, seconds=1)
    )
    assert "needs 32 cpu" in status.reason
    assert await cluster.nothing_held()


@pytest.mark.long
@pytest.mark.parametrize("timeout", [None, timedelta(0)])
async def test_a_job_without_a_timeout_waits_for_ever_and_runs_when_a_host_joins(
    cluster: Cluster, timeout: timedelta | None
) -> None:
    """It still waits after ten days, and runs on the eleventh without another submission. A timeout
    of 0 is none.
    """
    job = await cluster.submit(scheduling_timeout=timeout)
    await cluster.waits(job)
    await cluster.later(timedelta(days=10))

    assert (await cluster.status(job)).state is JobState.PENDING
    await cluster.join()
    status = await cluster.end(job)

    assert status.state is JobState.SUCCEEDED
    assert status.finished_at is not None
    assert status.finished_at - status.submitted_at >= timedelta(days=10)
    assert await cluster.nothing_held()


async def test_two_jobs_that_need_three_of_four_cores_run_one_after_the_other(
    cluster: Cluster,
) -> None:
    """Never together, whatever is free on paper; and the second one starts by itself when the first
    has ended.
    """
    first_runs = Held()
    host = await cluster.join(offers=some(cpu=4), program=first_runs)
    first = await cluster.submit("first", resources=some(cpu=3))
    await cluster.until(lambda: host.taken)
    second = await cluster.submit("second", resources=some(cpu=3))
    await cluster.waits(second)

    refusal = (await cluster.users.jobs.explain(second)).refusal
    assert refusal is not None
    assert (refusal.code, refusal.free["cpu"]) == (RefusalCode.BUSY, 1000)
    assert [task.job for task in host.taken] == [first]
    first_runs.let_go()
    ends = [await cluster.end(first), await cluster.end(second)]

    assert [end.state for end in ends] == [JobState.SUCCEEDED, JobState.SUCCEEDED]
    assert [task.job for task in host.taken] == [first, second]
    assert await cluster.nothing_held()


async def test_the_clock_of_the_scheduling_timeout_stops_at_the_first_placement(
    cluster: Cluster,
) -> None:
    """A job that was preempted once has proved that it fits; it is not given up because the machine
    is away for a day.
    """
    runs = Held(then=loses_its_host)
    host = await cluster.join(program=runs)
    job = await cluster.submit(scheduling_timeout=HOUR)
    await cluster.until(lambda: host.taken)
    await cluster.lose(host.host)
    runs.let_go()
    await cluster.waits(job, attempt=1)
    await cluster.later(timedelta(days=1))

    assert (await cluster.status(job)).state is JobState.PENDING
    host.program = succeeds
    await cluster.join(incarnation="second")
    assert (await cluster.end(job)).state is JobState.SUCCEEDED


async def test_a_placement_that_arrives_after_the_timer_is_handed_straight_back(
    cluster: Cluster,
) -> None:
    """The job has told its user that there was no host; the host must not be kept for it."""
    job = await cluster.submit(scheduling_timeout=HOUR)
    await cluster.waits(job)
    await cluster.later(HOUR - MOMENT)
    cluster.notifier.away = True
    host = await cluster.join()

    assert (await cluster.snapshot()).running == 1, "placed, but not told"
    assert (await cluster.end(job, within=MOMENT)).state is JobState.UNSCHEDULABLE
    cluster.notifier.away = False
    await cluster.later(MINUTE)
    next_job = await cluster.submit("next", resources=some(cpu=4))

    assert (await cluster.end(next_job)).state is JobState.SUCCEEDED
    assert [task.job for task in host.taken] == [next_job]
    assert await cluster.nothing_held()


async def test_a_placement_that_is_told_late_but_in_time_is_used(cluster: Cluster) -> None:
    """The couriers may be slow; a job that has been placed keeps its host until it hears of it."""
    job = await cluster.submit(scheduling_timeout=HOUR)
    await cluster.waits(job)
    cluster.notifier.away = True
    await cluster.join()
    await cluster.until(lambda: cluster.notifier.given)
    cluster.notifier.away = False

    assert (await cluster.end(job, within=MINUTE)).state is JobState.SUCCEEDED
    assert len(cluster.notifier.given) > 1
    assert await cluster.nothing_held()


async def test_placements_that_come_twice_late_or_for_another_attempt_change_nothing(
    cluster: Cluster,
) -> None:
    """Messages are delivered at least once. An attempt must not start twice, nor on hosts that it
    does not have.
    """
    job = await cluster.submit()
    await cluster.waits(job)
    elsewhere = await cluster.join("elsewhere", offers=some(cpu=0.5))
    stale = a_placement(elsewhere.host, key="ada/train:0@0/of another run")
    await cluster.placed(job, stale)

    assert (await cluster.only_task(job)).state is TaskState.PENDING
    runs = Held()
    host = await cluster.join("h1", program=runs)
    await cluster.until(lambda: host.taken)
    (right,) = cluster.notifier.given
    await cluster.placed(job, right)
    await cluster.placed(job, right.model_copy(update={"seats": a_placement(elsewhere.host).seats}))
    runs.let_go()
    status = await cluster.end(job)

    assert status.state is JobState.SUCCEEDED
    assert status.tasks[0].attempt == 1
    assert [len(host.taken), len(elsewhere.taken)] == [1, 0]
    assert await cluster.nothing_held()


async def test_a_job_that_is_placed_at_once_needs_no_signal(cluster: Cluster) -> None:
    """The answer to its ask has the host in it: that is what keeps a short job at thirteen
    events.
    """
    await cluster.join()
    job = await cluster.submit()
    await cluster.end(job)

    assert cluster.notifier.given == []
    assert len([event async for event in cluster.job(job).fetch_history_events()]) <= 15
