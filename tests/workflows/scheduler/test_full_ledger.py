"""A full ledger: the scheduler refuses requests, and their jobs send them again; and how the size
of the ledger is measured.
"""

from datetime import timedelta

import pytest

from iris.model.states import JobState
from iris.scheduling.ledger import size as ledger_size
from tests.builders import some
from tests.harness import Cluster, Held

MINUTE = timedelta(minutes=1)


async def submit_refused(cluster: Cluster) -> str:
    """Submits a job that the full ledger refuses."""
    job = await cluster.submit()

    async def is_refused() -> bool:
        return "the scheduler's ledger is full" in (await cluster.status(job)).reason

    await cluster.until(is_refused)
    return job


async def test_a_job_that_a_full_ledger_refuses_runs_when_the_ledger_has_space_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user sees why it waits, and need not submit it again."""
    await cluster.join()
    with monkeypatch.context() as full:
        full.setattr(ledger_size, "FULL", 0)
        job = await submit_refused(cluster)
        assert (await cluster.snapshot()).waiting == 0
        assert (await cluster.status(job)).state is JobState.PENDING

    assert (await cluster.end(job, within=MINUTE)).state is JobState.SUCCEEDED
    assert await cluster.nothing_held()


async def test_a_refused_job_that_its_user_holds_and_releases_runs_later(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler gets its request after the release, and nothing while it is held."""
    await cluster.join()
    with monkeypatch.context() as full:
        full.setattr(ledger_size, "FULL", 0)
        job = await submit_refused(cluster)
        await cluster.users.jobs.hold(job)
        await cluster.later(10 * MINUTE)
        events = (await cluster.job(job).describe()).history_length
    await cluster.later(60 * MINUTE)
    assert (await cluster.job(job).describe()).history_length == events < 60
    assert (await cluster.status(job)).state is JobState.HELD
    await cluster.users.jobs.release(job)

    assert (await cluster.end(job)).state is JobState.SUCCEEDED


async def test_a_refused_job_ends_when_its_scheduling_timeout_is_over(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full ledger is one more reason to have no host."""
    monkeypatch.setattr(ledger_size, "FULL", 0)
    job = await cluster.submit(scheduling_timeout=5 * MINUTE)
    status = await cluster.end(job, within=5 * MINUTE)

    assert status.state is JobState.UNSCHEDULABLE
    assert "ledger is full" in status.reason


async def test_a_scheduler_that_measures_its_ledger_loses_no_request_and_no_placement(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It continues as new, at any moment: here after each request and each placement."""
    monkeypatch.setattr(ledger_size, "NEAR", ledger_size.FULL)
    monkeypatch.setattr(ledger_size, "STEP", 1)
    runs = Held()
    host = await cluster.join(offers=some(cpu=1), program=runs)
    first = (await cluster.scheduler.describe()).run_id
    jobs = [await cluster.submit("first")]
    await cluster.until(lambda: host.taken)
    jobs.append(await cluster.submit("second"))
    await cluster.waits(jobs[1])
    runs.let_go()
    for job in jobs:
        assert (await cluster.end(job)).state is JobState.SUCCEEDED

    assert (await cluster.scheduler.describe()).run_id != first, (
        "it did not continue as new: nothing was tested"
    )
    assert await cluster.nothing_held()
