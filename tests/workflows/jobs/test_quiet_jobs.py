"""The checks of a job that runs for long add next to nothing to the scheduler's history."""

from datetime import timedelta

import pytest

from iris.activities.control import notifier
from iris.workflows import policies
from tests.builders import some
from tests.harness import Cluster, Held, dev_server_cluster

SECOND = timedelta(seconds=1)


@pytest.mark.long
async def test_a_job_that_runs_is_checked_again_and_again_without_an_event_and_its_end_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten events a minute made 700 an hour of the page of a scheduler whose only job trains for a
    week.
    """
    monkeypatch.setattr(policies, "CHECK_JOBS_EVERY", SECOND / 5)
    monkeypatch.setattr(notifier, "LEFT_TO_HOSTS", SECOND / 5)
    async with dev_server_cluster() as cluster:
        host = await cluster.join(offers=some(cpu=1), program=Held())
        job = await cluster.submit(resources=some(cpu=1))
        await cluster.until(lambda: host.taken)

        await cluster.until(lambda: _checked(cluster, 2))
        before = (await cluster.scheduler.describe()).history_length
        await cluster.until(lambda: _checked(cluster, 7))
        assert (await cluster.scheduler.describe()).history_length == before

        await cluster.job(job).terminate()
        await cluster.until(cluster.nothing_held)


async def _checked(cluster: Cluster, times: int) -> bool:
    """Whether both checks have been made so often."""
    pending = (await cluster.scheduler.describe()).raw_description.pending_activities
    return len(pending) == 2 and all(each.attempt > times for each in pending)
