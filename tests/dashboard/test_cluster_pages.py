"""The pages about the cluster, rendered from made values: an empty, a busy and a broken cluster."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from iris.client.jobs.rows import JobRow
from iris.client.operate.worker_reports import AgentReport
from iris.messages.autoscaler import AutoscalerStatus, ScalingSettings
from iris.model.host.hosts import ClosedBy, Closure
from iris.model.job.spec import Band
from iris.model.slice.scaling import Action, Availability, GroupStatus, StockedOut
from iris.model.slice.status import SliceState, SliceStatus, SliceStep
from iris.model.states import JobState
from iris.scheduling.ledger.ledger import Ledger
from tests.builders import a_gang, a_host, a_request, a_slice, at, some
from tests.dashboard.made_cluster import MadeReader, a_fleet_of, get
from tests.scaling_world import a_group, a_slice_of

PAGES = ("/", "/queue", "/queue?held=yes", "/fleet", "/fleet?view=table", "/autoscaler", "/more")


def a_status(**changes: Any) -> AutoscalerStatus:
    """A group with a slice on its way, which the platform cannot create in one zone."""
    group = a_group("tpus")
    now = datetime.now(UTC)
    coming = a_slice_of(group, "tpus-new", SliceState.PROVISIONING, changed_at=now)
    settings: dict[str, Any] = {
        "settings": ScalingSettings(groups=(group,)),
        "groups": (
            GroupStatus(
                group="tpus",
                availability=Availability.BACKOFF,
                why="out of stock in europe-west4-a",
                until=now + timedelta(minutes=1),
                counts={SliceState.PROVISIONING: 1},
                demand=3,
                target=4,
            ),
        ),
        "slices": (coming,),
        "actions": (
            Action(at=now, group="tpus", what="scale_up", slice_id="tpus-new", reason="for ada/x"),
        ),
        "stocked_out": (
            StockedOut(
                zone="europe-west4-a",
                kind="tpu_vm:v5litepod-16:on-demand",
                until=now + timedelta(minutes=1),
                at=now,
            ),
        ),
        "evaluated_at": now,
    }
    return AutoscalerStatus(**settings | changes)


@pytest.mark.parametrize("address", PAGES)
async def test_an_empty_cluster_has_all_pages(address: str) -> None:
    """A new user looks here first, before there is anything to show."""
    answer = await get(MadeReader(), address)

    assert answer.status == 200
    assert 'class="empty"' in answer.text
    assert "notice bad" not in answer.text


async def test_the_overview_of_a_busy_cluster_answers_what_is_used_and_by_whom() -> None:
    """Free chips, used chips, the queue with its reasons, users, and slices on their way."""
    ledger = a_fleet_of(slices=4, busy=3, waiting=9)
    failure = JobRow(
        id="eve/bad",
        state=JobState.FAILED,
        user="eve",
        submitted_at=at(0),
        command="x",
        reason="exited with code 3: ValueError: <b>no</b>\nsecond line",
    )
    page = (await get(MadeReader(ledger, a_status(), failures=[failure]), "/")).text

    assert "0 <span>of 64 chips free" in page
    assert 'href="/queue?band=interactive"' in page
    assert "the suitable hosts are in use" in page
    assert 'href="/jobs?user=user0&amp;state=live"' in page
    assert 'href="/slices/tpus-new"' in page
    assert "for ada/x" in page
    assert "ValueError: &lt;b&gt;no&lt;/b&gt;" in page
    assert "second line" not in page


async def test_the_overview_names_each_problem_with_a_link_and_a_remedy() -> None:
    """The first question of an operator is whether anything is wrong."""
    ledger = a_fleet_of(slices=2)
    ledger.close("tpus-00000000-1", Closure(by=ClosedBy.QUARANTINE, reason="3 attempts failed"))
    ledger.pause("upgrade")
    ledger.ask(a_request("big", some(cpu=4000), user="eve", band=Band.BATCH))
    now = datetime.now(UTC)
    lost = AgentReport(now - timedelta(seconds=40), now - timedelta(hours=1))
    page = (
        await get(MadeReader(ledger, a_status(), reports={("tpus-00000001-2", "first"): lost}), "/")
    ).text

    assert '<section class="notice bad"' in page
    assert 'href="/hosts/tpus-00000000-1"' in page
    assert "iris host uncordon tpus-00000000-1" in page
    assert "iris cluster resume" in page
    assert 'href="/hosts/tpus-00000001-2"' in page
    assert "out of stock in europe-west4-a" in page
    assert "Nothing is wrong" not in page


SOURCES = ("snapshot", "totals", "holdings", "autoscaler", "hosts", "reports", "jobs", "usage")


@pytest.mark.parametrize("silent", SOURCES)
async def test_the_overview_stands_if_one_source_does_not_answer(silent: str) -> None:
    """The rest of the page is needed most when something is broken."""
    ledger = a_fleet_of(slices=2, busy=1, waiting=3)
    answer = await get(MadeReader(ledger, a_status(), silent=[silent]), "/")

    assert answer.status == 200
    present = {
        "holdings": "chips free",
        "totals": "the suitable hosts are in use",
        "autoscaler": "/slices/tpus-new",
        "jobs": "No job has failed lately",
        "usage": "for all machines",
    }
    assert {name for name, text in present.items() if text not in answer.text} == (
        {silent} & {*present}
    )
    if silent not in ("hosts", "reports"):  # the autoscaler finds lost hosts as well
        assert f"{silent} are away" in answer.text


async def test_the_overview_tells_that_the_whole_control_plane_is_silent() -> None:
    """Every part says so, and the first line names the cause."""
    answer = await get(MadeReader(silent=SOURCES), "/")

    assert answer.status == 200
    assert "the scheduler does not answer" in answer.text
    assert "the autoscaler does not answer" in answer.text
    assert "iris debug health" in answer.text


async def test_the_queue_shows_places_reasons_and_whose_turn_it_is() -> None:
    """A reason that several gangs share is written out once on a page."""
    ledger = a_fleet_of(slices=1, busy=1, waiting=12)
    page = (await get(MadeReader(ledger), "/queue")).text

    assert re.search(r'<td class="number">12</td><td><a href="/jobs/user\d/wait-\d+">', page)
    assert page.count("as place 1<") == 11
    assert page.count("needs 4 free hosts in one slice") == 1
    assert "16 accelerators" in page  # what user0, who has the last turn, holds


async def test_ten_thousand_waiting_gangs_are_paged() -> None:
    """The page stays small, and the last page can be reached."""
    reader = MadeReader(a_fleet_of(slices=10, busy=10, waiting=10_000))
    first, last = await get(reader, "/queue"), await get(reader, "/queue?page=100")

    assert "1 to 100 of 10,000" in first.text
    assert 'rel="next" href="/queue?page=2"' in first.text
    assert "9,901 to 10,000 of 10,000" in last.text
    assert 'rel="next"' not in last.text
    assert first.bytes < 20_000


async def test_an_unknown_priority_in_the_address_is_refused() -> None:
    """Not silently shown as the whole queue."""
    assert (await get(MadeReader(), "/queue?band=urgent")).status == 400


async def test_a_thousand_hosts_fit_on_one_page_of_the_grid() -> None:
    """Each is a link that tells its state in words; the page has less than 150 kB on the wire."""
    ledger = a_fleet_of(slices=250, busy=200)
    ledger.close("tpus-00000000-1", Closure(by=ClosedBy.CORDON, reason="<i>fan</i>"))
    answer = await get(MadeReader(ledger, a_status()), "/fleet")

    assert answer.text.count('href="/hosts/') == 1000
    assert answer.bytes < 150_000
    assert len(answer.text) < 400_000
    assert (
        'aria-label="tpus-00000000-1: CORDONED; cordoned: &lt;i&gt;fan&lt;/i&gt;; 4 of 4 chips'
    ) in answer.text
    assert "BUSY <b>799</b>" in answer.text
    assert "FREE <b>200</b>" in answer.text


async def test_the_filters_of_the_fleet_are_in_the_address() -> None:
    """A view can be sent to a colleague."""
    ledger = a_fleet_of(slices=20, busy=10)
    ledger.hosts_up([a_host("alone")])
    ledger.close("tpus-00000003-0", Closure(by=ClosedBy.DRAIN))
    reader = MadeReader(ledger)

    async def hosts(query: str) -> int:
        return (await get(reader, f"/fleet?{query}")).text.count('href="/hosts/')

    assert await hosts("") == 81
    assert await hosts("group=tpus") == 80
    assert await hosts("group=-") == 1
    assert await hosts("state=DRAINED") == 1
    assert await hosts("state=FREE&group=tpus&view=table") == 40
    assert await hosts("text=train-7") == 4
    assert await hosts("text=00000011&view=table") == 4
    assert await hosts("text=nothing") == 0


async def test_the_table_of_hosts_is_sorted_and_paged_on_the_server() -> None:
    """The most used hosts first; each page has a hundred."""
    reader = MadeReader(a_fleet_of(slices=50, busy=10))
    first = (await get(reader, "/fleet?view=table&sort=-used")).text
    second = (await get(reader, "/fleet?view=table&sort=-used&page=2")).text

    assert first.index("tpus-00000009-0") < first.index("tpus-0000000a-0")
    assert 'aria-sort="descending"' in first
    assert "101 to 200 of 200 hosts" in second
    assert 'rel="prev" href="/fleet?view=table&amp;sort=-used&amp;page=1"' in second


async def test_the_grid_has_the_hosts_that_have_not_joined() -> None:
    """A slice that is being created is a part of the fleet that costs money already."""
    page = (await get(MadeReader(a_fleet_of(slices=20), a_status()), "/fleet")).text

    assert page.count('class="c none"') == 4
    assert "PROVISIONING" in page


async def test_a_host_shows_its_load_its_tasks_and_the_log_of_its_agent() -> None:
    """Control codes of the log have no effect, and its text is no HTML."""
    ledger, now = a_fleet_of(slices=1, busy=1), datetime.now(UTC)
    report = AgentReport(now, now - timedelta(hours=1), cpu=0.42, memory=0.17)
    reader = MadeReader(ledger, reports={("tpus-00000000-0", "first"): report})
    page = (await get(reader, "/hosts/tpus-00000000-0")).text
    found = (await get(reader, "/hosts/tpus-00000000-0?text=READY")).text

    assert "42 % of its CPU, 17 % of its memory" in page
    assert 'href="/jobs/user0/train-0"' in page
    assert "the disk is �[31mfull�[0m &lt;script&gt;" in page
    assert "the host is ready" in found
    assert "the disk" not in found


async def test_a_closed_host_tells_the_reason_and_how_to_open_it() -> None:
    """A host with a fault opens by itself, so the command is not named."""
    ledger = Ledger()
    ledger.hosts_up([a_host("h1"), a_host("h2", fault="the disk is full")])
    ledger.close("h1", Closure(by=ClosedBy.CORDON, reason="fan"))

    assert "iris host uncordon h1" in (await get(MadeReader(ledger), "/hosts/h1")).text
    broken = (await get(MadeReader(ledger), "/hosts/h2")).text
    assert "quarantined: the disk is full" in broken
    assert "uncordon" not in broken


async def test_a_host_that_is_gone_still_has_its_log() -> None:
    """That is when somebody wants to read it."""
    answer = await get(MadeReader(), "/hosts/gone")

    assert answer.status == 200
    assert "The scheduler has no such host" in answer.text
    assert "the host is ready" in answer.text


async def test_a_host_stands_without_the_store_or_the_scheduler() -> None:
    """Each part says that its source does not answer."""
    ledger = a_fleet_of(slices=1)
    without_store = await get(MadeReader(ledger, silent=["store"]), "/hosts/tpus-00000000-0")
    without_scheduler = await get(MadeReader(ledger, silent=["hosts"]), "/hosts/tpus-00000000-0")

    assert "store are away" in without_store.text
    assert "No task runs here" in without_store.text
    assert "hosts are away" in without_scheduler.text
    assert "the host is ready" in without_scheduler.text


async def test_a_slice_shows_its_history_and_hosts_that_the_scheduler_does_not_have() -> None:
    """A READY slice whose hosts get no work looks healthy elsewhere."""
    hosts = a_slice("s1")
    ledger = Ledger()
    ledger.hosts_up(hosts[:3])
    status = SliceStatus(
        id="s1",
        state=SliceState.READY,
        reason="every host takes work",
        hosts=tuple(hosts),
        size=4,
        facts=a_slice_of(a_group(), "s1"),
        steps=(
            SliceStep(at=at(0), state=SliceState.REQUESTED, reason="for ada/train"),
            SliceStep(at=at(90), state=SliceState.READY),
        ),
    )
    page = (await get(MadeReader(ledger, slices=[status]), "/slices/s1")).text

    assert "ledger:</strong> s1-3." in page
    assert "1m 30s after the first" in page
    assert page.count('<tr id="host-') == 3
    assert (await get(MadeReader(ledger), "/slices/s9")).status == 404


async def test_the_autoscaler_shows_blocked_zones_with_their_ends() -> None:
    """Why a group does not grow, since when and until when."""
    page = (await get(MadeReader(status=a_status()), "/autoscaler")).text

    assert "<td>europe-west4-a</td><td>v5litepod-16, on-demand</td><td>stock-out</td>" in page
    assert 'id="group-tpus"' in page
    assert "0 to 4" in page
    assert "scale up" in page


async def test_the_pools_have_their_workers_and_a_link() -> None:
    """A pool belongs to a program elsewhere, which may have been forgotten. Without an answer of the
    list, the rest stands.
    """
    pool = JobRow(
        id="ada/pool-1",
        state=JobState.RUNNING,
        user="ada",
        submitted_at=at(0),
        command="8 x pool-worker",
        tasks=8,
    )
    page = (await get(MadeReader(pools=[pool]), "/more")).text
    without = (await get(MadeReader(silent=["pools"]), "/more")).text

    assert 'href="/jobs/ada/pool-1"' in page
    assert '<td class="number">8</td>' in page
    assert "pools are away" in without
    assert "There are no schedules" in without


async def test_a_gang_that_waits_for_a_new_slice_is_no_problem() -> None:
    """An empty cluster that scales from zero is healthy."""
    ledger = Ledger()
    ledger.catalog = type(ledger.catalog)([a_group("tpus")])
    ledger.ask(a_gang("k1", user="ada", task="ada/train"))
    ledger.settle(at(0))
    page = (await get(MadeReader(ledger), "/")).text

    assert "waits for a new slice" in page
    assert "Nothing is wrong" in page
