"""Bands: who is served first, and who has to make room for whom."""

from datetime import timedelta

import pytest
from temporalio.common import SearchAttributeKey

from iris.model import names
from iris.model.job.attempts import Account
from iris.model.job.spec import Band
from iris.model.states import JobState, TaskState
from iris.scheduling.placement.preemption import Eviction
from iris.scheduling.placement.refusals import RefusalCode
from tests.builders import some
from tests.harness import (
    Cluster,
    Held,
    by_index,
    by_job,
    dev_server_cluster,
    in_turn,
    is_killed,
    succeeds,
)

WHOLE_HOST = some(cpu=4)
MINUTE = timedelta(minutes=1)
NONE = timedelta(0)


async def _running(cluster: Cluster, name: str, **asked: object) -> str:
    """The id of a job that has just been taken by a host."""
    job = await cluster.submit(name, **({"resources": WHOLE_HOST} | asked))
    await cluster.until(
        lambda: any(task.job == job for host in cluster.hosts.values() for task in host.taken)
    )
    return job


async def test_a_waiting_job_that_gets_another_band_is_served_in_that(cluster: Cluster) -> None:
    """It is served before jobs that wait longer in its former band, and keeps the time of its
    submission.
    """
    first = Held()
    host = await cluster.join(program=by_job({"first": first}))
    running = await _running(cluster, "first")
    jobs = [await cluster.submit(name, resources=WHOLE_HOST) for name in ("second", "third")]
    for job in jobs:
        await cluster.waits(job)
    await cluster.users.jobs.set_priority(jobs[1], Band.PRODUCTION)
    await cluster.until(lambda: _ahead_of(cluster, jobs[0], 1))
    first.let_go()
    for job in (running, *jobs):
        assert (await cluster.end(job)).state is JobState.SUCCEEDED

    assert [task.job for task in host.taken] == [running, jobs[1], jobs[0]]


async def _ahead_of(cluster: Cluster, job: str, count: int) -> bool:
    refusal = (await cluster.users.jobs.explain(job)).refusal
    return refusal is not None and refusal.ahead == count


async def test_a_new_band_reaches_every_task_of_a_job_of_several(cluster: Cluster) -> None:
    """Each of them waits by itself; lists show the band they are served in."""
    first = Held()
    host = await cluster.join(program=by_job({"first": first}))
    running = await _running(cluster, "first")
    older = await cluster.submit("older", resources=WHOLE_HOST)
    several = await cluster.submit("several", replicas=2, resources=WHOLE_HOST)
    for job in (older, several):
        await cluster.waits(job)
    await cluster.users.jobs.set_priority(several, Band.PRODUCTION)
    await cluster.until(lambda: _ahead_of(cluster, older, 2))

    for index in range(2):
        described = await cluster.task(several, index).describe()
        assert (
            described.typed_search_attributes[SearchAttributeKey.for_keyword(names.SA_PRIORITY)]
            == Band.PRODUCTION
        )
    first.let_go()
    for job in (running, older, several):
        assert (await cluster.end(job)).state is JobState.SUCCEEDED
    assert [task.job for task in host.taken] == [running, several, several, older]


async def test_a_stronger_job_evicts_a_weaker_one_once_that_has_had_its_time_and_it_comes_back(
    cluster: Cluster,
) -> None:
    """The victim gets something done first; nothing else happens meanwhile, so the scheduler wakes
    by itself. It pays one preemption, never a failure, and runs again when there is room.
    """
    victim = Held()
    host = await cluster.join(program=by_job({"batch": in_turn(victim, succeeds)}))
    await cluster.rules(min_run_time=timedelta(seconds=1.5))
    batch = await _running(cluster, "batch", band=Band.BATCH, max_retries_failure=0)
    production = await cluster.submit("production", resources=WHOLE_HOST, band=Band.PRODUCTION)
    await cluster.waits(production)

    assert [cluster.notifier.evictions, victim.cancelled] == [[], False]
    assert (await cluster.end(production)).state is JobState.SUCCEEDED
    end = await cluster.end(batch)
    assert end.state is JobState.SUCCEEDED
    assert [(task.attempt, task.failures, task.preemptions) for task in end.tasks] == [(2, 0, 1)]
    assert [task.job for task in host.taken] == [batch, production, batch]
    first, _ = await cluster.attempts(cluster.job(batch))
    assert first.account is Account.PREEMPTIONS
    assert "ada/production:0" in first.reason
    # The scheduler counts from its placement, which the gang learns a moment later.
    assert first.ended_at - end.submitted_at >= timedelta(seconds=1.5)
    assert await cluster.nothing_held()


async def test_a_stronger_job_waits_until_its_victim_is_dead_and_says_so(cluster: Cluster) -> None:
    """A program that is still writing its last checkpoint uses what it had."""
    dying = Held(then=is_killed)
    victim = Held(on_cancel=dying)
    host = await cluster.join(program=by_job({"batch": in_turn(victim, succeeds)}))
    await cluster.rules(min_run_time=NONE)
    batch = await _running(cluster, "batch", band=Band.BATCH)
    production = await cluster.submit("production", resources=WHOLE_HOST, band=Band.PRODUCTION)
    await cluster.until(lambda: victim.cancelled)
    explanation = await cluster.users.jobs.explain(production)

    assert explanation.code is RefusalCode.EVICTING
    assert [task.job for task in host.taken] == [batch]
    dying.let_go()
    assert (await cluster.end(production)).state is JobState.SUCCEEDED
    assert (await cluster.end(batch)).state is JobState.SUCCEEDED
    assert len(cluster.notifier.evictions) == 1


@pytest.mark.parametrize("wants", [Band.INTERACTIVE, Band.BATCH])
async def test_nobody_is_evicted_for_a_job_that_is_not_stronger(
    cluster: Cluster, wants: Band
) -> None:
    """Colleagues in one band wait for each other."""
    runs = Held()
    host = await cluster.join(program=by_job({"first": runs}))
    await cluster.rules(min_run_time=NONE)
    first = await _running(cluster, "first", band=wants)
    second = await cluster.submit("second", resources=WHOLE_HOST, band=wants)
    await cluster.waits(second)

    assert cluster.notifier.evictions == []
    runs.let_go()
    assert [(await cluster.end(job)).tasks[0].attempt for job in (first, second)] == [1, 1]
    assert len(host.taken) == 2


async def test_operators_can_switch_eviction_off_and_on(cluster: Cluster) -> None:
    """While eviction is off, jobs of high priority wait. When it is on again, waiting ones get
    their hosts at once.
    """
    victim = Held()
    await cluster.join(program=by_job({"batch": in_turn(victim, succeeds)}))
    await cluster.rules(min_run_time=NONE, preemption=False)
    batch = await _running(cluster, "batch", band=Band.BATCH)
    production = await cluster.submit("production", resources=WHOLE_HOST, band=Band.PRODUCTION)
    await cluster.waits(production)

    assert [cluster.notifier.evictions, (await cluster.users.jobs.explain(production)).code] == [
        [],
        RefusalCode.BUSY,
    ]
    await cluster.rules(min_run_time=NONE, preemption=True)
    assert (await cluster.end(production)).state is JobState.SUCCEEDED
    assert (await cluster.end(batch)).tasks[0].preemptions == 1


async def test_a_gang_is_evicted_as_a_whole(cluster: Cluster) -> None:
    """What is left of a gang computes nothing, and would keep hosts from others."""
    victim = Held()
    hosts = await cluster.join_slice(program=by_job({"gang": in_turn(victim, succeeds)}))
    await cluster.rules(min_run_time=NONE)
    gang = await cluster.gang("gang", band=Band.BATCH)
    await cluster.until(lambda: all(host.taken for host in hosts))
    production = await cluster.submit("production", resources=WHOLE_HOST, band=Band.PRODUCTION)

    assert (await cluster.end(production)).state is JobState.SUCCEEDED
    end = await cluster.end(gang)
    assert end.state is JobState.SUCCEEDED
    assert [(task.attempt, task.failures, task.preemptions) for task in end.tasks] == [
        (2, 0, 1),
        (2, 0, 1),
    ]
    first, _ = await cluster.attempts(cluster.job(gang))
    assert [end.state for end in first.ends] == [TaskState.PREEMPTED, TaskState.PREEMPTED]
    assert await cluster.nothing_held()


async def test_of_a_job_of_several_only_the_tasks_in_the_way_are_evicted(cluster: Cluster) -> None:
    """They go their own ways; the one that is stopped pays alone and comes back."""
    victims = [Held(), Held()]
    hosts = [
        await cluster.join(name, program=by_job({"sweep": in_turn(by_index(*victims), succeeds)}))
        for name in ("h1", "h2")
    ]
    await cluster.rules(min_run_time=NONE)
    sweep = await cluster.submit("sweep", replicas=2, resources=WHOLE_HOST, band=Band.BATCH)
    await cluster.until(lambda: all(host.taken for host in hosts))
    production = await cluster.submit("production", resources=WHOLE_HOST, band=Band.PRODUCTION)

    assert (await cluster.end(production)).state is JobState.SUCCEEDED
    assert [victim.cancelled for victim in victims].count(True) == 1
    for victim in victims:
        victim.let_go()
    end = await cluster.end(sweep)
    assert end.state is JobState.SUCCEEDED
    assert sorted((task.attempt, task.preemptions) for task in end.tasks) == [(1, 0), (2, 1)]


async def test_a_job_that_is_strengthened_while_it_runs_is_no_victim_any_more(
    cluster: Cluster,
) -> None:
    """What runs runs on in its new band: that is what its user asked for."""
    runs = Held()
    host = await cluster.join(program=by_job({"batch": runs}))
    await cluster.rules(min_run_time=NONE)
    batch = await _running(cluster, "batch", band=Band.BATCH)
    await cluster.users.jobs.set_priority(batch, Band.PRODUCTION)
    await cluster.until(lambda: cluster.outbox.amended)
    production = await cluster.submit("production", resources=WHOLE_HOST, band=Band.PRODUCTION)
    await cluster.waits(production)

    assert [cluster.notifier.evictions, runs.cancelled] == [[], False]
    runs.let_go()
    assert [(await cluster.end(job)).tasks[0].attempt for job in (batch, production)] == [1, 1]
    assert len(host.taken) == 2


async def test_a_victim_that_succeeds_when_it_is_told_to_stop_has_succeeded(
    cluster: Cluster,
) -> None:
    """Its result is kept, and no retry counts."""
    victim = Held(on_cancel=succeeds)
    await cluster.join(program=by_job({"batch": victim}))
    await cluster.rules(min_run_time=NONE)
    batch = await _running(cluster, "batch", band=Band.BATCH)
    production = await cluster.submit("production", resources=WHOLE_HOST, band=Band.PRODUCTION)

    assert (await cluster.end(production)).state is JobState.SUCCEEDED
    end = await cluster.end(batch)
    assert [end.state, end.tasks[0].attempt, end.tasks[0].preemptions] == [JobState.SUCCEEDED, 1, 0]


async def test_a_victim_that_is_cancelled_while_it_is_stopped_is_killed(cluster: Cluster) -> None:
    """It must not come back; and the hosts are free when its program is dead, not before."""
    dying = Held(then=is_killed)
    victim = Held(on_cancel=dying)
    host = await cluster.join(program=by_job({"batch": victim}))
    await cluster.rules(min_run_time=NONE)
    batch = await _running(cluster, "batch", band=Band.BATCH)
    production = await cluster.submit("production", resources=WHOLE_HOST, band=Band.PRODUCTION)
    await cluster.until(lambda: victim.cancelled)
    await cluster.cancel(batch, "not needed")
    dying.let_go()

    status = await cluster.end(batch)
    assert (status.state, status.reason) == (JobState.KILLED, "not needed")
    assert (await cluster.end(production)).state is JobState.SUCCEEDED
    assert [task.job for task in host.taken] == [batch, production]


async def test_a_drained_host_gets_rid_of_its_jobs_and_takes_no_new_ones(cluster: Cluster) -> None:
    """However young and strong they are: the machine is to be worked on. They wait, or run
    elsewhere.
    """
    victim = Held()
    host = await cluster.join(program=in_turn(victim, succeeds))
    job = await _running(cluster, "job", band=Band.PRODUCTION)
    await cluster.users.hosts.drain("h1", "new disk")
    await cluster.users.hosts.drain("h1", "new disk")
    await cluster.waits(job, attempt=1)

    explanation = await cluster.users.jobs.explain(job)
    assert explanation.code == RefusalCode.CLOSED
    assert "drained: new disk" in explanation.message
    (attempt,) = explanation.attempts[0]
    assert attempt.account is Account.PREEMPTIONS
    assert attempt.reason.startswith("evicted: host h1 is drained: new disk")
    assert [len(cluster.notifier.evictions), len(host.taken)] == [1, 1]
    await cluster.users.hosts.uncordon("h1")
    end = await cluster.end(job)
    assert [end.state, end.tasks[0].preemptions] == [JobState.SUCCEEDED, 1]


async def test_an_eviction_that_overtakes_the_placement_ends_the_attempt_before_it_computes(
    cluster: Cluster,
) -> None:
    """Messages may come in any order: the hosts are wanted back, and are given back."""
    job = await cluster.submit()
    await cluster.waits(job)
    cluster.notifier.away = True
    host = await cluster.join(program=in_turn(Held(), succeeds))
    await cluster.until(lambda: cluster.notifier.given)
    placement = cluster.notifier.given[0]
    eviction = Eviction(
        key=placement.key, owner=placement.owner, reason="evicted: host h1 is drained"
    )
    for key in ("of another attempt", placement.key):
        await cluster.job(job).signal("evicted", eviction.model_copy(update={"key": key}))
    cluster.notifier.away = False
    status = await cluster.end(job, within=MINUTE)

    assert [status.state, status.tasks[0].attempt, status.tasks[0].preemptions] == [
        JobState.SUCCEEDED,
        2,
        1,
    ]
    assert [task.attempt for task in host.taken][-1] == 2
    assert await cluster.nothing_held()


@pytest.mark.long
async def test_a_scheduler_that_continues_as_new_forgets_no_notice_and_no_eviction() -> None:
    """Without the signals, one job would wait for ever for hosts that it has, and the other would
    keep a drained host.
    """
    async with dev_server_cluster("limit.historyCount.suggestContinueAsNew=50") as cluster:
        victim = Held()
        await cluster.join("drained", program=in_turn(victim, succeeds))
        running = await _running(cluster, "running")
        waiting = [await cluster.submit(f"w{number}", resources=WHOLE_HOST) for number in range(2)]
        for job in waiting:
            await cluster.waits(job)
        cluster.notifier.away = True
        # The first courier stays away while everything else comes up, and the history becomes long.
        await cluster.join("h1")
        await cluster.until(lambda: cluster.notifier.given)
        await cluster.join("h2")
        await cluster.users.hosts.drain("drained")
        first = (await cluster.scheduler.describe()).run_id
        for _ in range(15):
            await cluster.rules(min_run_time=MINUTE)
        cluster.notifier.away = False
        ends = [await cluster.end(job) for job in (running, *waiting)]

        assert {end.state for end in ends} == {JobState.SUCCEEDED}
        assert [end.tasks[0].preemptions for end in ends] == [1, 0, 0]
        assert (await cluster.scheduler.describe()).run_id != first, (
            "it did not continue as new: nothing was tested"
        )
        shown = await cluster.snapshot()
        assert [
            bool(view.closed) for view in sorted(shown.hosts, key=lambda view: view.host.id)
        ] == [True, False, False]
        assert shown.rules.min_run_time == MINUTE
        await cluster.until(cluster.nothing_held)
