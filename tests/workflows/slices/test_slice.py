"""A slice that joined: its hosts are offered when all have reported, and removed when one is
lost.
"""

import pytest

from iris.model.slice.status import SliceState
from iris.model.states import JobState
from iris.scheduling.placement.refusals import RefusalCode
from tests.builders import a_host, some
from tests.harness import Cluster, FakeHost, Held, loses_its_host


async def test_a_host_that_reports_is_offered(cluster: Cluster) -> None:
    """Its slice starts by itself, and the first job finds it."""
    host = a_host("h1")
    await cluster.join("h1")
    status = await cluster.slice_status(host)

    assert status.state is SliceState.READY
    assert [view.host for view in (await cluster.snapshot()).hosts] == [host]


async def test_a_report_that_comes_twice_changes_nothing(cluster: Cluster) -> None:
    """Agents repeat what may have been lost; the task that runs there must not notice."""
    runs = Held()
    host = await cluster.join(program=runs)
    job = await cluster.submit()
    await cluster.until(lambda: host.taken)
    await cluster.report(host.host)
    await cluster.report(host.host)
    runs.let_go()

    assert (await cluster.end(job)).state is JobState.SUCCEEDED
    assert [len(host.taken), len((await cluster.snapshot()).hosts)] == [1, 1]


async def test_a_slice_of_two_offers_nothing_until_both_have_reported(cluster: Cluster) -> None:
    """Half a TPU slice cannot compute."""
    first, second = (a_host(name, slice_id="pair") for name in ("w0", "w1"))
    await cluster.report(first, size=2)
    await cluster.until(lambda: _has(cluster, first))

    assert (await cluster.slice_status(first)).state is SliceState.BOOTSTRAPPING
    assert (await cluster.snapshot()).total_hosts == 0
    await cluster.report(second, size=2)
    await cluster.until(lambda: cluster.offers(second))
    assert await cluster.offers(first)


async def _has(cluster: Cluster, host: object) -> bool:
    return host in (await cluster.slice_status(host)).hosts  # type: ignore[arg-type]


async def test_one_lost_host_fails_its_whole_slice(cluster: Cluster) -> None:
    """The other hosts cannot compute without it and must get no new work."""
    pair = [a_host(name, slice_id="pair") for name in ("w0", "w1")]
    for host in pair:
        await cluster.report(host, size=2)
    await cluster.until(lambda: cluster.offers(pair[1]))
    await cluster.lose(pair[0])
    status = await cluster.result(cluster.slice(pair[0]))

    assert status["state"] == SliceState.DELETED
    assert status["reason"] == "host was unplugged"
    assert (await cluster.snapshot()).total_hosts == 0


async def test_the_last_lost_host_ends_the_slice_and_frees_its_resources(cluster: Cluster) -> None:
    """Its workflow has ended, the scheduler no longer has the host, and the next job's reason says
    that there is none.
    """
    runs = Held(then=loses_its_host)
    host = await cluster.join(program=runs)
    job = await cluster.submit(max_retries_preemption=0)
    await cluster.until(lambda: host.taken)
    await cluster.lose(host.host, "host h1 was unplugged")
    await cluster.result(cluster.slice(host.host))
    shown = await cluster.snapshot()

    assert (shown.total_hosts, shown.running) == (0, 0)
    assert await cluster.shown_end(cluster.slice(host.host)) == "COMPLETED"
    runs.let_go()
    await cluster.end(job)
    waiting = await cluster.submit("waiting")
    await cluster.waits(waiting)
    assert (await cluster.users.jobs.explain(waiting)).code == RefusalCode.NO_HOSTS


async def test_a_new_incarnation_ends_what_was_placed_on_the_old_one(cluster: Cluster) -> None:
    """A restarted agent does not know the attempt: its resources are free before the job notices
    the end of the attempt.
    """
    host = await cluster.join(offers=some(cpu=4), program=Held())
    await cluster.submit(resources=some(cpu=4))
    await cluster.until(lambda: host.taken)

    assert (await cluster.free())["cpu"] == 0
    await cluster.join(offers=some(cpu=4), incarnation="second")
    assert (await cluster.free())["cpu"] == 4000


@pytest.mark.parametrize("lost", ["first", "one nobody knows"])
async def test_the_loss_of_an_earlier_incarnation_changes_nothing(
    cluster: Cluster, lost: str
) -> None:
    """It arrives late, after the agent has reported again."""
    old = await cluster.join()
    await cluster.join(incarnation="second")
    now = old.host
    await cluster.lose(a_host(incarnation=lost))
    job = await cluster.submit()

    assert (await cluster.end(job)).state is JobState.SUCCEEDED
    assert (await cluster.slice_status(now)).state is SliceState.READY
    assert await cluster.offers(now)


async def test_a_host_that_comes_back_while_its_slice_ends_is_offered_again(
    cluster: Cluster,
) -> None:
    """Its report arrives at a workflow that is about to complete; it must not be lost with it."""
    host = await cluster.join()
    back = a_host(incarnation="second")
    await cluster.lose(host.host)
    await cluster.report(back)
    await cluster.until(lambda: cluster.offers(back))
    job = await cluster.submit()

    assert (await cluster.end(job)).state is JobState.SUCCEEDED
    assert (await cluster.snapshot()).total_hosts == 1


async def test_a_cancelled_slice_removes_its_hosts(cluster: Cluster) -> None:
    """An operator may remove a machine with Cancel in the Web UI; no job may be placed there
    afterwards.
    """
    host = await cluster.join()
    await cluster.slice(host.host).cancel()
    await cluster.until(lambda: _none_left(cluster))

    await cluster.until(lambda: _is_shown_as_cancelled(cluster, host))


async def _is_shown_as_cancelled(cluster: Cluster, host: FakeHost) -> bool:
    return await cluster.shown_end(cluster.slice(host.host)) == "CANCELED"


async def _none_left(cluster: Cluster) -> bool:
    return (await cluster.snapshot()).total_hosts == 0


async def test_a_lost_incarnation_that_reports_late_is_not_offered_and_begins_anew(
    cluster: Cluster,
) -> None:
    """Its agent was restarted while its slice ended: it used to be READY and out of the ledger for
    ever. Now its slice knows that the incarnation has ended, the agent reads that and begins
    another one, and the host takes work.
    """
    host = await cluster.join()
    await cluster.lose(host.host)
    await cluster.result(cluster.slice(host.host))
    await cluster.report(host.host)
    await cluster.until(lambda: _knows_the_end(cluster, host))

    assert (await cluster.snapshot()).total_hosts == 0
    assert (await cluster.slice_status(host.host)).state is SliceState.BOOTSTRAPPING
    back = await cluster.join(incarnation="second")
    assert (await cluster.slice_status(back.host)).state is SliceState.READY
    assert (await cluster.slice_status(back.host)).ended == ()
    assert (await cluster.end(await cluster.submit())).state is JobState.SUCCEEDED


async def _knows_the_end(cluster: Cluster, host: FakeHost) -> bool:
    return (await cluster.slice_status(host.host)).ended == (("h1", "first"),)
