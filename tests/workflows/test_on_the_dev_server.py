"""What the time-skipping server cannot show: histories that continue as new, collisions with
timers, terminated jobs.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity
from temporalio.api.enums.v1 import EventType

from iris.activities.control import child_jobs, job_tasks
from iris.activities.control import notifier as notifier_activities
from iris.messages.scheduler import Signalled
from iris.messages.task import RunTask
from iris.model.job.arrays import PART_TASKS, Array
from iris.model.job.attempts import TaskOutcome
from iris.model.states import JobState
from iris.scheduling.placement.preemption import Eviction
from iris.workflows import policies
from iris.workflows.jobs import independent_tasks
from tests.builders import some
from tests.harness import (
    Cluster,
    Held,
    by_job,
    child,
    dev_server_cluster,
    fails,
    in_turn,
    is_killed,
    is_preempted,
    succeeds,
)

pytestmark = pytest.mark.long

#: Long for a history here; 4,096 events by default.
LONG = 50


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """On a server that finds a history long after fifty events."""
    async with dev_server_cluster(f"limit.historyCount.suggestContinueAsNew={LONG}") as cluster:
        yield cluster


async def test_a_scheduler_that_continues_as_new_under_load_loses_nothing(cluster: Cluster) -> None:
    """Every ask, placement, notice and release of a burst of jobs survives, whichever run it came
    to.
    """
    await asyncio.gather(*(cluster.join(f"h{i}", offers=some(cpu=2)) for i in range(2)))
    jobs = await asyncio.gather(*(cluster.submit(f"j{i}") for i in range(30)))
    ends = await asyncio.gather(*(cluster.end(job) for job in jobs))

    assert {end.state for end in ends} == {JobState.SUCCEEDED}
    assert sum(len(host.taken) for host in cluster.hosts.values()) == len(jobs)
    await cluster.until(cluster.nothing_held)
    first = await _first_run(cluster)
    assert (await cluster.scheduler.describe()).run_id != first, (
        "it did not continue as new: nothing was tested"
    )


async def _first_run(cluster: Cluster) -> str | None:
    return (await cluster.scheduler.describe()).raw_description.workflow_execution_info.first_run_id


async def test_a_waiting_queue_is_carried_from_run_to_run(cluster: Cluster) -> None:
    """Waiting gangs do not send their requests again: only the scheduler has them."""
    waiting = [await cluster.submit(f"w{i}", resources=some(cpu=8)) for i in range(3)]
    for job in waiting:
        await cluster.waits(job)
    await cluster.join("small", offers=some(cpu=1))
    first = await _first_run(cluster)
    for i in range(12):
        await cluster.end(await cluster.submit(f"j{i}"))

    assert (await cluster.scheduler.describe()).run_id != first
    assert (await cluster.snapshot()).waiting == 3
    await cluster.join("large", offers=some(cpu=8))
    assert {(await cluster.end(job)).state for job in waiting} == {JobState.SUCCEEDED}


async def test_a_job_that_continues_as_new_keeps_its_accounts_and_its_age(cluster: Cluster) -> None:
    """Between two attempts; else a job could spend its budget anew with every run, or change its
    place in the queue.
    """
    host = await cluster.join(program=is_preempted)
    job = await cluster.submit(max_retries_preemption=9)
    first = (await cluster.job(job).describe()).run_id
    status = await cluster.end(job)
    described = await cluster.job(job).describe()

    assert described.run_id != first, "it did not continue as new: nothing was tested"
    assert status.state is JobState.WORKER_FAILED
    assert status.tasks[0].preemptions == 10
    assert [task.attempt for task in host.taken] == list(range(1, 11))
    assert status.submitted_at < described.start_time
    assert len({task.logs.rpartition("/")[0] for task in host.taken}) == 1
    await cluster.until(cluster.nothing_held)


async def test_a_task_that_continues_as_new_goes_on_with_its_next_attempt(cluster: Cluster) -> None:
    """A job of several must not notice, nor the scheduler."""
    await cluster.join(program=in_turn(*[is_preempted] * 9, succeeds))
    job = await cluster.submit(replicas=2)
    status = await cluster.end(job)

    assert status.state is JobState.SUCCEEDED
    assert [(task.attempt, task.preemptions) for task in status.tasks] == [(10, 9), (10, 9)]
    await cluster.until(cluster.nothing_held)


async def test_when_hosts_join_in_the_very_moment_of_the_timeouts_every_job_has_one_outcome(
    cluster: Cluster,
) -> None:
    """Some timers win, some placements do; whichever it is, a job runs once or not at all, and
    nothing stays held.
    """
    before = timedelta(seconds=2)
    spread = timedelta(milliseconds=40)
    jobs = await asyncio.gather(
        *(cluster.submit(f"j{i}", scheduling_timeout=before + i * spread) for i in range(24))
    )
    middle = (await cluster.status(jobs[0])).submitted_at + before + 6 * spread
    await cluster.later(middle - await cluster.now())
    hosts = await asyncio.gather(*(cluster.join(f"h{i}", offers=some(cpu=2)) for i in range(2)))
    ends = {job: (await cluster.end(job)).state for job in jobs}

    assert set(ends.values()) <= {JobState.SUCCEEDED, JobState.UNSCHEDULABLE}
    ran = [task.job for host in hosts for task in host.taken]
    assert sorted(ran) == sorted(job for job, end in ends.items() if end is JobState.SUCCEEDED)
    await cluster.until(cluster.nothing_held)


async def test_a_job_cancelled_while_the_scheduler_is_slow_to_answer_is_killed_and_holds_nothing(
    cluster: Cluster,
) -> None:
    """The quick exchange has given up by then and the patient one waits: another way for a
    cancellation to arrive.
    """
    await cluster.join()
    cluster.outbox.asks.close()
    job = await cluster.submit()
    await cluster.until(lambda: cluster.outbox.asks.seen == 2)
    await cluster.cancel(job, "not needed")
    status = await cluster.end(job)
    cluster.outbox.asks.open()

    assert (status.state, status.reason) == (JobState.KILLED, "not needed")
    await cluster.until(cluster.nothing_held)


async def test_what_a_terminated_job_held_or_waited_for_is_found_and_freed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Terminate in the Web UI gives a workflow no chance to give anything back."""
    monkeypatch.setattr(policies, "CHECK_JOBS_EVERY", timedelta(seconds=1))
    monkeypatch.setattr(notifier_activities, "LEFT_TO_HOSTS", timedelta(seconds=1))
    host = await cluster.join(offers=some(cpu=4), program=Held())
    holder = await cluster.submit("holder", resources=some(cpu=4))
    await cluster.until(lambda: host.taken)
    waiter = await cluster.submit("waiter", resources=some(cpu=8))
    await cluster.waits(waiter)
    for job in (holder, waiter):
        await cluster.job(job).terminate()

    await cluster.until(cluster.nothing_held)


async def test_a_slow_check_for_children_without_a_parent_does_not_hold_up_what_is_freed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hosts that are kept without use cost money, and the check of children can wait."""
    monkeypatch.setattr(policies, "CHECK_JOBS_EVERY", timedelta(seconds=1))
    monkeypatch.setattr(notifier_activities, "LEFT_TO_HOSTS", timedelta(seconds=1))
    checks = asyncio.Event()

    async def hangs(*_: object) -> None:
        checks.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(child_jobs, "cancel_orphans", hangs)
    host = await cluster.join(offers=some(cpu=4), program=Held())
    holder = await cluster.submit("holder", resources=some(cpu=4))
    await cluster.until(lambda: host.taken)
    await cluster.until(checks.is_set)
    await cluster.job(holder).terminate()

    await cluster.until(cluster.nothing_held)


async def test_an_eviction_that_comes_after_the_scheduling_timeout_is_none(
    cluster: Cluster,
) -> None:
    """The request was placed, and its host drained, while it was being withdrawn: nothing had
    started that could be evicted.
    """
    cluster.outbox.releases.close()
    job = await cluster.submit(resources=some(cpu=32), scheduling_timeout=timedelta(seconds=1))
    await cluster.until(lambda: cluster.outbox.releases.seen > 0)
    key = (await cluster.only_task(job)).key or ""
    await cluster.job(job).signal(
        "evicted",
        Eviction(key=key, owner=cluster.job(job).id, reason="evicted: the host is drained"),
    )
    cluster.outbox.releases.open()

    assert (await cluster.end(job)).state is JobState.UNSCHEDULABLE


@pytest.mark.parametrize(("part", "starts", "waits"), [(PART_TASKS, 2, 1), (2, 3, 3)])
async def test_a_job_that_takes_the_name_of_a_terminated_one_waits_once_for_its_tasks(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, part: int, starts: int, waits: int
) -> None:
    """A try for each task, or each part of an array, and every five seconds fills a history: of a
    thousand tasks in a minute.
    """
    array = Array(indices="0-5", size=6, part=part)
    monkeypatch.setattr(independent_tasks, "STARTS_AT_ONCE", 2)
    monkeypatch.setattr(job_tasks, "AGAIN", timedelta(seconds=0.1))
    ends = asyncio.Event()

    async def ends_late(task: RunTask) -> TaskOutcome:
        await ends.wait()
        return await is_killed(task)

    program = Held(on_cancel=ends_late)
    host = await cluster.join(offers=some(cpu=6), program=program)
    job = await cluster.submit(replicas=6, array=array)
    await cluster.until(lambda: len(host.taken) == 6)
    await cluster.job(job).terminate()
    await cluster.until(lambda: program.cancelled)
    assert await cluster.submit(replicas=6, array=array) == job
    await cluster.until(lambda: _waits_for_an_earlier_job(cluster, job))
    ends.set()
    program.let_go()

    assert (await cluster.end(job)).state is JobState.SUCCEEDED
    events = [event.event_type for event in (await cluster.job(job).fetch_history()).events]
    assert events.count(EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_FAILED) <= starts
    assert events.count(EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED) == waits
    await cluster.until(cluster.nothing_held)


async def _waits_for_an_earlier_job(cluster: Cluster, job: str) -> bool:
    return "of an earlier job of this name has not ended yet" in (await cluster.status(job)).reason


async def test_the_descendants_of_a_terminated_job_are_found_and_cancelled(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its workflow had no chance to do it; and a job that has succeeded leaves its children to the
    job above it.
    """
    monkeypatch.setattr(policies, "CHECK_JOBS_EVERY", timedelta(seconds=1))
    monkeypatch.setattr(notifier_activities, "LEFT_TO_HOSTS", timedelta(seconds=1))
    launcher = Held()
    host = await cluster.join(offers=some(cpu=8), program=by_job({"launcher": launcher}, Held()))
    top, other = await cluster.submit("top"), await cluster.submit("other")
    middle = await child(cluster, top, "launcher")
    below, unconcerned = await child(cluster, middle, "below"), await child(cluster, other, "child")
    await cluster.until(lambda: len(host.taken) == 5)
    launcher.let_go()
    assert (await cluster.end(middle)).state is JobState.SUCCEEDED
    await cluster.job(top).terminate()

    end = await cluster.end(below)
    assert (end.state, end.reason) == (
        JobState.KILLED,
        "job ada/top, to which it belongs, has ended without success",
    )
    assert await cluster.shown_end(cluster.job(unconcerned)) == "RUNNING"
    await cluster.cancel(other)


async def test_a_parent_that_continues_as_new_cancels_the_children_of_its_earlier_runs(
    cluster: Cluster,
) -> None:
    """The children of its first attempts belong to it as those of its last."""
    last = Held(then=fails)
    program = in_turn(*[is_preempted] * 12, last)
    host = await cluster.join(offers=some(cpu=8), program=by_job({"child": Held()}, program))
    parent = await cluster.submit("parent", max_retries_preemption=100)
    first = (await cluster.job(parent).describe()).run_id
    early = await child(cluster, parent)
    await cluster.until(
        lambda: any(task.job == parent and task.attempt == 13 for task in host.taken)
    )
    assert (await cluster.job(parent).describe()).run_id != first, (
        "it did not continue as new: nothing was tested"
    )
    last.let_go()

    assert (await cluster.end(parent)).state is JobState.FAILED
    assert (await cluster.end(early)).state is JobState.KILLED


async def test_a_scheduler_that_continues_as_new_while_it_tells_reasons_goes_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is under way at the end of a run must not begin anything else: the server refuses such
    an end, in each try again.
    """
    monkeypatch.setattr(policies, "CHECK_JOBS_EVERY", timedelta(seconds=1))
    telling, signal_owners = asyncio.Event(), cluster.notifier._signal_owners

    async def hangs(signal: str, items: Sequence[tuple[str, str, Any]]) -> Signalled:
        if signal != "waits":
            return await signal_owners(signal, items)
        telling.set()
        return await asyncio.Future()

    monkeypatch.setattr(cluster.notifier, "_signal_owners", hangs)
    waits = await cluster.submit("waits", resources=some(cpu=8))
    await cluster.until(telling.is_set)
    first = (await cluster.scheduler.describe()).run_id

    async def is_another() -> bool:
        await cluster.users.cluster.pause("to make the history longer")
        await cluster.users.cluster.resume()
        return (await cluster.scheduler.describe()).run_id != first

    await cluster.until(is_another)
    await cluster.join(offers=some(cpu=8))

    assert (await cluster.end(waits)).state is JobState.SUCCEEDED


async def test_a_scheduler_continues_as_new_although_the_signal_of_a_placement_hangs(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its history would grow without bound, and its replay after a kill would take minutes. The
    next run sends the signal again.
    """
    hung: set[str | None] = set()
    signal_owners = cluster.notifier._signal_owners

    async def hangs_in_the_first_run(
        signal: str, items: Sequence[tuple[str, str, Any]]
    ) -> Signalled:
        run_id = activity.info().workflow_run_id
        if hung - {run_id}:
            return await signal_owners(signal, items)
        hung.add(run_id)
        return await asyncio.Future()

    waits = await cluster.submit("waits", resources=some(cpu=8))
    await cluster.waits(waits)
    monkeypatch.setattr(cluster.notifier, "_signal_owners", hangs_in_the_first_run)
    await cluster.join(offers=some(cpu=8))
    await cluster.until(lambda: hung)

    async def is_another() -> bool:
        await cluster.users.cluster.pause("to make the history longer")
        await cluster.users.cluster.resume()
        return (await cluster.scheduler.describe()).run_id not in hung

    await cluster.until(is_another)

    assert (await cluster.end(waits)).state is JobState.SUCCEEDED
