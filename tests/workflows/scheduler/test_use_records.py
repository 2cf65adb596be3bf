"""The records of use: made for each attempt and slice, stored in batches, and lost in no outage of
the store.
"""

from datetime import timedelta

import pytest

from iris.messages.scheduler import Totals, Uses, UsesPage
from iris.model.host.constraints import parse_constraint
from iris.model.states import JobState
from iris.scheduling.ledger import ended_uses
from iris.usage.records import Asked, AttemptUse, DroppedUses, UseEnd
from iris.workflows import policies
from iris.workflows.scheduler import scheduler
from tests.builders import some
from tests.harness import (
    Cluster,
    Held,
    ask,
    cannot_be_set_up,
    fails,
    in_turn,
    is_not_taken,
    is_preempted,
    succeeds,
)

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
BATCH = policies.STORE_USES_AFTER


async def test_each_attempt_has_a_record_that_says_what_its_time_was_good_for(
    cluster: Cluster,
) -> None:
    """Also the attempts that Iris repeats without a word."""
    program = in_turn(is_not_taken, cannot_be_set_up, is_preempted, fails, succeeds)
    await cluster.join(offers=some(cpu=4), program=program)
    job = await cluster.submit(max_retries_failure=1, tags={"team": "speech"})
    assert (await cluster.end(job, within=10 * MINUTE)).state is JobState.SUCCEEDED
    await cluster.later(BATCH)

    attempts = cluster.uses.attempts
    assert [attempts[f"{job}:0@{number}"].end for number in range(1, 6)] == [
        UseEnd.NEVER_STARTED,
        UseEnd.SET_UP_FAILED,
        UseEnd.PREEMPTED,
        UseEnd.FAILED,
        UseEnd.SUCCEEDED,
    ]
    last = attempts[f"{job}:0@5"]
    assert (last.job, last.tags, last.host_share) == (job, {"team": "speech"}, 0.25)
    assert last.started_at is not None
    assert last.placed_at <= last.started_at <= last.ended_at
    assert len(cluster.uses.stored) == 5


async def test_a_record_says_what_was_asked_for_and_when(cluster: Cluster) -> None:
    """A simulation of the same workload needs it: the wait, and on which hosts the gang fits."""
    cpu = some(cpu=1, disk=2)
    job = await cluster.submit(
        resources=cpu,
        constraints=(parse_constraint("!spot"), parse_constraint("fast=true", preferred=True)),
        scheduling_timeout=HOUR,
    )
    await cluster.waits(job)
    await cluster.later(MINUTE)
    await cluster.join(offers=some(cpu=4, disk=10), program=succeeds)
    await cluster.end(job, within=10 * MINUTE)
    await cluster.later(BATCH)

    use = cluster.uses.attempts[f"{job}:0@1"]
    assert use.asked is not None
    assert use.placed_at - use.asked.at >= MINUTE
    assert use.asked == Asked(
        at=use.asked.at, constraints=("spot absent", "?fast = true"), scheduling_timeout=HOUR
    )
    assert use.disk_bytes == cpu.disk_bytes


async def test_a_job_that_is_cancelled_and_one_that_never_ran(cluster: Cluster) -> None:
    """What was cancelled has a record that says so, and what never had a host has none."""
    program = Held()
    host = await cluster.join(offers=some(cpu=1), program=program)
    running = await cluster.submit("running")
    await cluster.until(lambda: host.taken)
    waiting = await cluster.submit("waiting")
    await cluster.waits(waiting)
    assert await _not_stored(cluster) == [(running, UseEnd.OPEN)]
    await cluster.cancel(waiting)
    await cluster.end(waiting)
    await cluster.cancel(running)
    await cluster.end(running)
    assert await _not_stored(cluster) == [(running, UseEnd.CANCELLED)]
    await cluster.later(BATCH)

    assert await _not_stored(cluster) == []
    assert {use.job: use.end for use in cluster.uses.attempts.values()} == {
        running: UseEnd.CANCELLED
    }


async def _not_stored(cluster: Cluster) -> list[tuple[str, UseEnd]]:
    """The attempts that the scheduler tells of while the store does not have them."""
    page = UsesPage(at=await cluster.now())
    uses = (await ask(cluster.scheduler, "uses", Uses, page)).uses
    return [(use.job, use.end) for use in uses if isinstance(use, AttemptUse)]


@pytest.mark.long
async def test_a_store_that_is_away_for_an_hour_delays_no_job_and_loses_no_record(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler keeps the records meanwhile, also from run to run."""
    await cluster.join()
    first = (await cluster.scheduler.describe()).run_id
    cluster.uses.away = True
    jobs = []
    for number in range(12):
        jobs.append(await cluster.submit(f"job-{number}"))
        assert (await cluster.end(jobs[-1])).state is JobState.SUCCEEDED
        await cluster.later(5 * MINUTE)
        if number == 6:
            with monkeypatch.context() as limits:
                limits.setattr(scheduler, "MAX_REPLAY", 0)
                jobs.append(await cluster.submit("over-the-limit"))
                await cluster.end(jobs[-1])
                await cluster.until(lambda: _is_another_run(cluster, first))
    assert (await ask(cluster.scheduler, "totals", Totals)).unstored_uses == len(jobs)
    assert not cluster.uses.stored
    cluster.uses.away = False
    await cluster.later(MINUTE)

    assert sorted(use.job for use in cluster.uses.attempts.values()) == sorted(jobs)
    assert (await ask(cluster.scheduler, "totals", Totals)).unstored_uses == 0


async def _is_another_run(cluster: Cluster, first: str | None) -> bool:
    return (await cluster.scheduler.describe()).run_id != first


async def test_records_that_are_too_many_for_the_scheduler_are_counted(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader has to know that the sums are too small."""
    monkeypatch.setattr(ended_uses, "MOST_WAITING", 2)
    await cluster.join()
    cluster.uses.away = True
    first = await cluster.submit("first")
    await cluster.end(first)
    await cluster.later(BATCH)  # it is being stored, and so it is not among those that wait
    for number in range(5):
        await cluster.end(await cluster.submit(f"job-{number}"))
    assert (await ask(cluster.scheduler, "totals", Totals)).dropped_uses == 3
    cluster.uses.away = False
    await cluster.later(MINUTE + BATCH)

    dropped = [use for use in cluster.uses.stored if isinstance(use, DroppedUses)]
    assert [each.count for each in dropped] == [3]
    assert sorted(use.job.rpartition("/")[2] for use in cluster.uses.attempts.values()) == [
        "first",
        "job-3",
        "job-4",
    ]


async def test_a_scheduler_of_a_cluster_that_is_not_used_adds_no_event(cluster: Cluster) -> None:
    """Records cost events when there are records, and only then."""
    await cluster.join()
    await cluster.end(await cluster.submit())
    await cluster.later(3 * MINUTE)
    events = (await cluster.scheduler.describe()).history_length
    await cluster.later(HOUR)
    assert (await cluster.scheduler.describe()).history_length == events


async def test_machines_that_join_twice_have_a_record_for_each_time(cluster: Cluster) -> None:
    """They come back under the same name, with another agent."""
    for incarnation in ("first", "second"):
        host = await cluster.join(offers=some(cpu=4), incarnation=incarnation)
        await cluster.lose(host.host)
        await cluster.until(lambda: cluster.uses.slices)
        await cluster.result(cluster.slice(host.host))
    await cluster.until(lambda: len(cluster.uses.slices) == 2)
    lives = cluster.uses.slices.values()
    assert {use.id.partition("/")[0] for use in lives} == {host.host.slice_id}
    assert [(use.group, use.hosts, use.cpu_millis) for use in lives] == [("", 1, 4_000)] * 2
    assert all(use.ready_at and use.ready_at <= use.gone_at for use in lives)
