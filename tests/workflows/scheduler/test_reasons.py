"""Why a job waits, on its page in Temporal's Web UI: kept true while it waits, for little."""

from datetime import timedelta

import pytest

from iris.model.states import JobState
from iris.scheduling.placement.refusals import RefusalCode
from iris.workflows import policies
from tests.builders import some
from tests.harness import Cluster, Held

MINUTE = timedelta(minutes=1)
#: In the middle between two looks: what a test does then comes before the next.
FIRST_LOOK = 1.5 * MINUTE


@pytest.fixture(autouse=True)
def _looks_every_minute(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """As usual; the harness looks once a year."""
    monkeypatch.setattr(policies, "CHECK_JOBS_EVERY", MINUTE)


async def _says(cluster: Cluster, job: str, text: str) -> bool:
    return text in await cluster.page(cluster.job(job))


def _told(cluster: Cluster) -> list[RefusalCode]:
    return [reason.refusal.code for reason in cluster.notifier.reasons]


def _needed(cluster: Cluster) -> set[int]:
    """The millicores of the shapes that were told a reason."""
    return {reason.refusal.needed["cpu"] for reason in cluster.notifier.reasons}


async def test_the_page_of_a_waiting_job_follows_the_reason(cluster: Cluster) -> None:
    """Without any query, the page is right a minute after the reason has changed."""
    job = await cluster.submit(resources=some(cpu=32))
    await cluster.waits(job)
    assert await _says(cluster, job, "**PENDING** (NO_HOSTS) ")
    await cluster.join("small", offers=some(cpu=4))
    await cluster.later(FIRST_LOOK)
    await cluster.until(lambda: _says(cluster, job, "**PENDING** (TOO_BIG) needs 32 cpu; "))
    await cluster.join("large", offers=some(cpu=32))

    assert (await cluster.end(job)).state is JobState.SUCCEEDED


async def test_a_gang_shows_operators_doings_as_its_reason(cluster: Cluster) -> None:
    """A closed host, then a pause of everything: the user sees whom to ask."""
    await cluster.join_slice("s1")
    await cluster.users.hosts.cordon("s1-w1", "new disk")
    gang = await cluster.gang()
    await cluster.waits(gang)
    await cluster.later(FIRST_LOOK)
    assert await _says(cluster, gang, "cordoned: new disk")
    await cluster.users.cluster.pause("moving house")
    await cluster.later(2 * MINUTE)
    await cluster.until(
        lambda: _says(cluster, gang, "**PENDING** (PAUSED) the cluster is paused: moving house")
    )
    await cluster.users.hosts.uncordon("s1-w1")
    assert await _is_waiting(cluster, 1)
    await cluster.users.cluster.resume()

    assert (await cluster.end(gang)).state is JobState.SUCCEEDED


async def _is_waiting(cluster: Cluster, count: int) -> bool:
    return (await cluster.snapshot()).waiting == count


async def test_a_reason_that_stays_is_told_once(cluster: Cluster) -> None:
    """A queue of a hundred thousand must not cost a hundred thousand signals a minute; numbers
    alone are no news.
    """
    await cluster.join("h0", offers=some(cpu=1))
    jobs = [await cluster.submit(f"j{number}", resources=some(cpu=32)) for number in range(3)]
    for job in jobs:
        await cluster.waits(job)
    await cluster.later(FIRST_LOOK)
    await cluster.join("h1", offers=some(cpu=2))
    await cluster.later(10 * MINUTE)

    assert _told(cluster) == [RefusalCode.TOO_BIG] * len(jobs)
    assert len({reason.key for reason in cluster.notifier.reasons}) == len(jobs)


async def test_the_page_of_a_job_that_waits_for_its_turn_has_its_place_and_when_that_was(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look of the next minute took the place away again that the scheduler's answer had told.
    It costs no message more.
    """
    monkeypatch.setattr(policies, "CHECK_JOBS_EVERY", timedelta(seconds=1))
    runs = Held()
    host = await cluster.join(offers=some(cpu=4), program=runs)
    await cluster.submit("first", resources=some(cpu=4))
    await cluster.until(lambda: host.taken)
    jobs = [await cluster.submit(f"j{number}", resources=some(cpu=4)) for number in range(2)]
    pair = await cluster.submit("pair", replicas=2, resources=some(cpu=3))
    for job in (*jobs, pair):
        await cluster.waits(job)
    # The gangs of one shape are told together. One that comes after that look is not told.
    await cluster.until(lambda: _needed(cluster) == {4000, 3000})

    places = [
        "first in the queue of band interactive",
        "1 request ahead of it in band interactive and above",
    ]
    for job, place in zip(jobs, places, strict=True):
        await cluster.until(lambda job=job, place=place: _says(cluster, job, place))
        assert await _says(
            cluster, job, f" UTC; its present place in the queue: `iris explain {job}`"
        )
    assert await _says(
        cluster, pair, f" UTC; its present place in the queue: `iris explain {pair}`"
    )
    assert await _says(cluster, pair, "**PENDING** (BUSY) ")
    assert set(_told(cluster)) == {RefusalCode.BUSY}
    assert len(_told(cluster)) == len({reason.key for reason in cluster.notifier.reasons})
    runs.let_go()


async def test_a_held_job_shows_who_holds_it_whatever_the_scheduler_thinks(
    cluster: Cluster,
) -> None:
    """It wants nothing, so there is nothing to tell it; not even what comes late."""
    job = await cluster.submit()
    await cluster.waits(job)
    await cluster.later(FIRST_LOOK)
    (late,) = cluster.notifier.reasons
    await cluster.users.jobs.hold(job, "not yet")
    await cluster.until(lambda: _is_waiting(cluster, 0))
    await cluster.job(job).signal("waits", late)
    await cluster.later(3 * MINUTE)

    status = await cluster.status(job)
    assert status.reason.endswith(": not yet")
    assert status.tasks[0].reason == status.reason
    assert len(cluster.notifier.reasons) == 1


async def test_a_reason_that_comes_late_changes_nothing_of_a_job_that_runs(
    cluster: Cluster,
) -> None:
    """It was true when it was sent; the page of a running job says where it runs."""
    job = await cluster.submit()
    await cluster.waits(job)
    await cluster.later(FIRST_LOOK)
    (late,) = cluster.notifier.reasons
    runs = Held()
    host = await cluster.join(program=runs)
    await cluster.until(lambda: host.taken)
    await cluster.job(job).signal("waits", late)
    runs.let_go()
    status = await cluster.end(job)

    assert (status.state, status.reason) == (JobState.SUCCEEDED, "")
    assert "no host" not in await cluster.page(cluster.job(job))


async def test_reasons_that_could_not_be_told_are_told_at_the_next_look(cluster: Cluster) -> None:
    """And the looks go on: they also find what terminated jobs still hold."""
    job = await cluster.submit(resources=some(cpu=32))
    await cluster.waits(job)
    await cluster.later(FIRST_LOOK)
    await cluster.join("small", offers=some(cpu=4))
    cluster.notifier.away = True
    await cluster.later(2 * MINUTE)
    assert RefusalCode.TOO_BIG in _told(cluster)
    assert await _says(cluster, job, "**PENDING** (NO_HOSTS) ")
    cluster.notifier.away = False
    await cluster.later(2 * MINUTE)

    await cluster.until(lambda: _says(cluster, job, "**PENDING** (TOO_BIG) needs 32 cpu; "))
