"""The autoscaler: who is silent twice is lost."""

from datetime import timedelta

from iris.liveness import LOOK_AGAIN, LOOK_EVERY
from iris.slices import SliceState
from tests.builders import a_host, a_silent
from tests.harness import Cluster

SILENT = (a_silent("h1"),)


async def test_one_silent_look_is_no_verdict(cluster: Cluster) -> None:
    """The list of workers is empty for some seconds after the server restarts: the whole fleet would be lost."""
    host = await cluster.join()
    cluster.watch.sees(SILENT, (), SILENT, ())
    await cluster.start_autoscaler()
    await cluster.later(timedelta(minutes=2))

    assert cluster.watch.looks > 4
    assert (await cluster.slice_status(host.host)).state is SliceState.READY
    assert await cluster.offers(host.host)


async def test_a_host_that_is_silent_twice_is_lost_within_seconds_of_the_first_look(cluster: Cluster) -> None:
    """Its slice is told, and the reason says what was seen."""
    host = await cluster.join()
    cluster.watch.sees(SILENT, (a_silent("h1", age=31.0),))
    await cluster.start_autoscaler()
    await cluster.later(LOOK_AGAIN + timedelta(seconds=1))
    status = await cluster.result(cluster.slice(host.host))

    assert status["state"] == SliceState.DELETED
    assert status["reason"] == "host h1 has not reported for 31 s"
    assert (await cluster.snapshot()).total_hosts == 0


async def test_a_suspect_of_the_previous_run_has_no_second_chance(cluster: Cluster) -> None:
    """Continuing as new happens at any time; a host that falls silent just then is lost no later than others."""
    host = await cluster.join()
    cluster.watch.sees(SILENT)
    await cluster.start_autoscaler(*SILENT)
    status = await cluster.result(cluster.slice(host.host))

    assert status["state"] == SliceState.DELETED


async def test_a_quiet_fleet_is_looked_at_every_fifteen_seconds(cluster: Cluster) -> None:
    """Each look costs events: oftener would fill the history of an idle cluster."""
    await cluster.start_autoscaler()
    await cluster.later(timedelta(minutes=5))

    assert timedelta(minutes=5) // LOOK_EVERY <= cluster.watch.looks <= timedelta(minutes=5) // LOOK_EVERY + 1


async def test_the_silence_of_a_former_incarnation_ends_nothing(cluster: Cluster) -> None:
    """It was seen before the agent came back; the slice knows better."""
    await cluster.join()
    await cluster.join(incarnation="second")
    cluster.watch.sees(SILENT, SILENT)
    await cluster.start_autoscaler()
    await cluster.later(timedelta(minutes=1))

    assert await cluster.offers(a_host(incarnation="second"))


async def test_a_lost_host_whose_slice_is_gone_is_told_to_the_scheduler_itself(cluster: Cluster) -> None:
    """Somebody terminated the slice's workflow: nobody else would ever take the host out of the book."""
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
    """Between two looks somebody may wonder what it waits for."""
    await cluster.join()
    cluster.watch.sees(SILENT)
    autoscaler = await cluster.start_autoscaler()
    await cluster.until(lambda: cluster.watch.looks)
    await cluster.until(lambda: cluster.page(autoscaler))
    page = await cluster.page(autoscaler)

    assert "host h1 no longer reports to the server; looked at again" in page
    await cluster.later(LOOK_AGAIN + timedelta(seconds=1))
    assert "All of them report." in await cluster.page(autoscaler)
