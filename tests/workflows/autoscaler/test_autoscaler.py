"""The autoscaler: who is silent twice, and does not answer, is lost."""

import re
from datetime import timedelta

from iris.autoscaling.liveness import OBSERVE_INTERVAL, PING_AFTER, SECOND_OBSERVATION_DELAY
from iris.model.slice.status import SliceState
from tests.builders import a_host, a_silent
from tests.harness import Cluster

SILENT = (a_silent("h1", age=50.0, unanswered=True),)
#: Not for long enough to be asked.
OVERDUE = (a_silent("h1", age=30.0, unanswered=False),)


async def test_one_silent_look_is_no_verdict(cluster: Cluster) -> None:
    """The list of workers is empty for some seconds after the server restarts: the whole fleet
    would be lost.
    """
    host = await cluster.join()
    cluster.watch.sees(SILENT, (), SILENT, ())
    await cluster.start_autoscaler()
    await cluster.later(timedelta(minutes=2))

    assert cluster.watch.looks > 4
    assert (await cluster.slice_status(host.host)).state is SliceState.READY
    assert await cluster.offers(host.host)


async def test_a_host_that_was_not_asked_is_not_lost_however_often_it_is_silent(
    cluster: Cluster,
) -> None:
    """Its agent may be on its way back to programs that run: an agent that was away for 19 s used
    to cost its slice.
    """
    host = await cluster.join()
    cluster.watch.sees(OVERDUE, OVERDUE, OVERDUE, ())
    await cluster.start_autoscaler()
    await cluster.later(timedelta(minutes=2))

    assert cluster.watch.looks > 4
    assert (await cluster.slice_status(host.host)).state is SliceState.READY
    assert await cluster.offers(host.host)


async def test_a_suspect_is_looked_at_again_when_it_is_to_be_asked(cluster: Cluster) -> None:
    """The second observation comes before the regular one: dead hosts must be out of the ledger
    when their jobs try again.
    """
    host = await cluster.join()
    cluster.watch.sees((a_silent("h1", age=43.0, unanswered=False),), SILENT)
    await cluster.start_autoscaler()
    await cluster.later(PING_AFTER - timedelta(seconds=43))
    status = await cluster.result(cluster.slice(host.host))

    assert "50 s" in status["reason"]


async def test_a_host_that_is_silent_twice_is_lost_within_seconds_of_the_first_look(
    cluster: Cluster,
) -> None:
    """The autoscaler signals the loss to the host's slice, with a reason that describes the
    silence.
    """
    host = await cluster.join()
    cluster.watch.sees(SILENT, (a_silent("h1", age=61.0, unanswered=True),))
    await cluster.start_autoscaler()
    await cluster.later(SECOND_OBSERVATION_DELAY + timedelta(seconds=1))
    status = await cluster.result(cluster.slice(host.host))

    assert status["state"] == SliceState.DELETED
    assert "61 s" in status["reason"]
    assert (await cluster.snapshot()).total_hosts == 0


async def test_a_suspect_of_the_previous_run_has_no_second_chance(cluster: Cluster) -> None:
    """Continuing as new happens at any time; a host that falls silent just then is lost no later
    than others.
    """
    host = await cluster.join()
    cluster.watch.sees(SILENT)
    await cluster.start_autoscaler(*SILENT)
    status = await cluster.result(cluster.slice(host.host))

    assert status["state"] == SliceState.DELETED


async def test_a_quiet_fleet_is_looked_at_every_fifteen_seconds(cluster: Cluster) -> None:
    """Each look asks the server and the platform, whose rates are limited."""
    await cluster.start_autoscaler()
    await cluster.later(timedelta(minutes=5))

    assert (
        timedelta(minutes=5) // OBSERVE_INTERVAL
        <= cluster.watch.looks
        <= timedelta(minutes=5) // OBSERVE_INTERVAL + 1
    )


async def test_the_silence_of_a_former_incarnation_ends_nothing(cluster: Cluster) -> None:
    """It was seen before the agent came back; the slice knows better."""
    await cluster.join()
    await cluster.join(incarnation="second")
    cluster.watch.sees(SILENT, SILENT)
    await cluster.start_autoscaler()
    await cluster.later(timedelta(minutes=1))

    assert await cluster.offers(a_host(incarnation="second"))


async def test_a_lost_host_whose_slice_is_gone_is_told_to_the_scheduler_itself(
    cluster: Cluster,
) -> None:
    """The slice's workflow was terminated, so it cannot remove the host from the ledger."""
    host = await cluster.join()
    await cluster.slice(host.host).terminate()
    cluster.watch.sees(SILENT, SILENT)
    await cluster.start_autoscaler()
    await cluster.later(timedelta(minutes=1))
    await cluster.until(lambda: _is_empty(cluster))

    assert await cluster.shown_end(cluster.autoscaler) == "RUNNING"


async def _is_empty(cluster: Cluster) -> bool:
    return (await cluster.snapshot()).total_hosts == 0


async def test_the_page_of_the_autoscaler_names_its_suspects(cluster: Cluster) -> None:
    """Users can see between two observations why a host is not given up yet."""
    await cluster.join()
    cluster.watch.sees(SILENT)
    autoscaler = await cluster.start_autoscaler()
    await cluster.until(lambda: cluster.watch.looks)
    await cluster.until(lambda: cluster.page(autoscaler))
    page = await cluster.page(autoscaler)

    assert re.search("host h1 .* 50 s .*; checked again soon", page)
    await cluster.later(SECOND_OBSERVATION_DELAY + timedelta(seconds=1))
    assert "All hosts report." in await cluster.page(autoscaler)


async def test_hosts_that_fall_silent_together_are_not_given_up_and_the_page_says_so(
    cluster: Cluster,
) -> None:
    """The service is the likely cause; when it is well again, two observations have to agree as
    always.
    """
    host = await cluster.join()
    cluster.watch.sees(SILENT)
    cluster.watch.holds(12, looks=3)
    cluster.watch.sees(SILENT)
    autoscaler = await cluster.start_autoscaler()
    await cluster.later(SECOND_OBSERVATION_DELAY + timedelta(seconds=1))

    assert "12 hosts are silent" in await cluster.page(autoscaler)
    await cluster.later(timedelta(minutes=2))
    assert cluster.watch.looks > 6
    assert await cluster.offers(host.host)
