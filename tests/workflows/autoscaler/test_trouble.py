"""The autoscaler and a platform that has none, may not, does not answer, or takes back what it
gave.
"""

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest

from iris.autoscaling.liveness import Silent
from iris.messages.scheduler import Close
from iris.model.host.hosts import ClosedBy, Closure
from iris.model.slice.scale_groups import Pace
from iris.model.slice.status import SliceState
from iris.model.states import JobState
from tests.builders import CHIPS, some
from tests.fakes.platform.machines import Shortage
from tests.fleet_harness import EAGER, HOUR, MINUTE, FleetCluster
from tests.harness import PATIENCE
from tests.scaling_world import A, B, C, a_cpu_group, a_group

pytestmark = pytest.mark.long

S = SliceState


async def test_a_stock_out_of_70_minutes_in_one_zone_ends_with_the_work_done_in_another(
    fleet: FleetCluster,
) -> None:
    """Zones of Google can have no capacity for hours. Users should not notice that."""
    now = await fleet.now()
    fleet.platform.shortages.append(Shortage(zone=A, since=now, until=now + 70 * MINUTE))
    await fleet.scale(a_group(zones=(A, B)))
    job = await fleet.gang(tasks=4, resources=CHIPS)
    await fleet.comes_true(lambda: fleet.platform.created, within=5 * MINUTE)
    assert (await fleet.end(job, within=MINUTE)).state is JobState.SUCCEEDED

    (made,) = (event for event in fleet.platform.audit if event.what == "CREATED")
    assert made.zone == B


async def test_a_zone_without_stock_is_asked_less_and_less_often_and_used_again_when_it_has_some(
    fleet: FleetCluster,
) -> None:
    """A call a second for 70 minutes would use up the project's quota of calls; and the wait must
    end with the shortage.
    """
    now = await fleet.now()
    fleet.platform.shortages.append(Shortage(zone=A, since=now, until=now + 70 * MINUTE))
    await fleet.scale(a_group(pace=EAGER), observe_interval=10 * MINUTE)
    tenant = await fleet.tenant_gang()
    await fleet.comes_true(lambda: tenant.placement, within=90 * MINUTE, step=5 * MINUTE)
    asked = [event.at for event in fleet.platform.audit if event.what == "NOT_CREATED"]
    gaps = [later - before for before, later in pairwise(asked)]

    assert gaps[0] >= timedelta(seconds=30)
    assert 5 <= len(asked) <= 15
    assert all(gap >= 10 * MINUTE for gap in gaps[5:])


async def test_a_used_up_quota_sends_those_who_wait_to_the_next_group_and_is_left_alone(
    fleet: FleetCluster,
) -> None:
    """Asking again cannot help before something is given back; the next group may be in another
    region.
    """
    fleet.platform.quota["europe-west4"] = 0
    first, second = a_group("near", priority=1), a_group("far", priority=2, zones=(C,))
    await fleet.scale(first, second)
    tenant = await fleet.tenant_gang()
    await fleet.comes_true(lambda: tenant.placement, within=5 * MINUTE)
    waits = [await fleet.tenant_gang() for _ in range(4)]
    await fleet.later(18 * MINUTE)
    refused = [event.at for event in fleet.platform.audit if event.what == "NOT_CREATED"]

    assert {event.group for event in fleet.platform.audit if event.what == "CREATED"} == {"far"}
    assert sum(waiting.placement is not None for waiting in waits) == 3  # as many as `far` may have
    assert all(later - before >= Pace().quota_timeout for before, later in pairwise(refused))
    verdicts = {verdict.group: verdict for verdict in (await fleet.scaling()).groups}
    assert verdicts["near"].availability == "QUOTA_EXCEEDED"


async def test_a_group_whose_slices_do_not_boot_is_asked_less_and_less_often(
    fleet: FleetCluster,
) -> None:
    """A broken image must not cost a slice every five minutes for a whole weekend; one that boots
    ends that.
    """
    fleet.platform.boot_delay = timedelta(days=9)
    pace = Pace(scale_up_delay=timedelta(0), boot_timeout=MINUTE, backoff=MINUTE, max_backoff=HOUR)
    await fleet.scale(a_group(pace=pace), observe_interval=2 * MINUTE)
    tenant = await fleet.tenant_gang()
    for _ in range(4):
        await fleet.later(30 * MINUTE)
    made = [event.at for event in fleet.platform.audit if event.what == "CREATED"]
    gaps = [later - before for before, later in pairwise(made)]
    (verdict,) = (await fleet.scaling()).groups
    fleet.platform.boot_delay = timedelta(0)
    await fleet.comes_true(lambda: tenant.placement, within=2 * HOUR, step=MINUTE)

    assert 4 <= len(made) <= 7
    assert all(later > before for before, later in pairwise(gaps))
    assert verdict.availability == "BACKOFF"
    assert "within 1m" in verdict.why


@pytest.mark.long
async def test_thirty_slices_that_are_preempted_at_once_are_replaced_together(
    fleet: FleetCluster,
) -> None:
    """A storm is when people look at the status: it is answered meanwhile. By one evaluation, if
    the news of all of them comes within a second; on a busy machine it takes a little longer.
    """
    fleet.hosts_work = False
    await fleet.scale(a_cpu_group(min_slices=30, max_slices=30, pace=EAGER))
    await fleet.comes_true(lambda: fleet.has(30))
    await fleet.later(15 * MINUTE)
    before = set(fleet.platform.alive)
    await fleet.platform.preempt(*before)
    asked = asyncio.create_task(_ask_for_ever(fleet))
    await fleet.comes_true(lambda: _all_new(fleet, before))
    asked.cancel()
    ups = {action.at for action in (await fleet.scaling()).actions if action.what == "scale_up"}

    assert len(fleet.platform.created) == 60
    assert len(ups) <= 3


async def _all_new(fleet: FleetCluster, before: set[str]) -> bool:
    there = await fleet.in_state()
    return len(there) == 30 and not before & set(there)


async def _ask_for_ever(fleet: FleetCluster) -> None:
    while True:
        async with asyncio.timeout(PATIENCE.total_seconds()):
            await fleet.scaling()
        await asyncio.sleep(0.02)


async def test_a_zone_that_cannot_be_listed_is_unknown_and_not_empty(fleet: FleetCluster) -> None:
    """A regional outage of the API must not have every slice there replaced."""
    await fleet.scale(a_cpu_group(min_slices=2, pace=EAGER), observe_interval=MINUTE)
    await fleet.comes_true(lambda: fleet.has(2))
    fleet.platform.unreachable[A] = "backend error"
    await fleet.later(HOUR)
    status = await fleet.scaling()
    fleet.platform.unreachable.clear()
    await fleet.later(5 * MINUTE)

    assert status.unreachable == {A: "backend error"}
    assert len(fleet.platform.created) == 2
    assert await fleet.has(2)


async def test_a_preemption_during_an_outage_is_noticed_after_it(fleet: FleetCluster) -> None:
    """What could not be heard is not forgotten."""
    await fleet.scale(a_cpu_group(min_slices=1, pace=EAGER))
    await fleet.comes_true(lambda: fleet.has(1))
    await fleet.later(15 * MINUTE)
    fleet.platform.unreachable[A] = "backend error"
    await fleet.platform.preempt(*fleet.platform.alive)
    await fleet.later(5 * MINUTE)
    fleet.platform.unreachable.clear()
    await fleet.comes_true(lambda: len(fleet.platform.created) == 2)
    await fleet.comes_true(lambda: fleet.has(1))

    assert len(fleet.platform.alive) == 1


async def test_the_slice_of_a_quarantined_host_is_replaced(fleet: FleetCluster) -> None:
    """It takes no more work, so it is a machine that costs and does nothing."""
    await fleet.scale(a_group(min_slices=1, pace=EAGER))
    await fleet.comes_true(lambda: fleet.has(1))
    (broken,) = fleet.platform.alive
    await fleet.later(15 * MINUTE)
    await fleet.tells(
        Close(
            host_id=f"{broken}-w-1",
            closure=Closure(by=ClosedBy.QUARANTINE, reason="3 attempts in a row failed"),
        )
    )
    await fleet.comes_true(lambda: fleet.platform.alive and broken not in fleet.platform.alive)
    await fleet.comes_true(lambda: fleet.has(1))

    assert "quarantined: " in (await fleet.shown(broken)).reason


async def test_what_runs_on_the_slice_of_a_quarantined_host_may_end(fleet: FleetCluster) -> None:
    """Its other hosts are as good as ever."""
    await fleet.scale(a_group(hosts=2, pace=EAGER))
    tenant = await fleet.tenant_gang(tasks=2)
    await fleet.comes_true(lambda: tenant.placement)
    (slice_id,) = tenant.slices
    await fleet.tells(Close(host_id=f"{slice_id}-w-1", closure=Closure(by=ClosedBy.QUARANTINE)))
    await fleet.comes_true(lambda: fleet.has(1, S.DRAINING))
    await fleet.later(30 * MINUTE)
    assert slice_id in fleet.platform.alive
    await fleet.leaves(tenant)
    await fleet.comes_true(lambda: not fleet.platform.alive)

    assert tenant.evicted is None


async def test_a_slice_with_a_silent_host_is_replaced(fleet: FleetCluster) -> None:
    """The machine runs, says the platform; but its agent has not been heard of in two looks, and
    does not answer.
    """
    await fleet.scale(a_group(min_slices=1, pace=EAGER))
    await fleet.comes_true(lambda: fleet.has(1))
    await fleet.later(15 * MINUTE)
    (lost,) = fleet.platform.alive
    silent = Silent(
        host_id=f"{lost}-w-2", slice_id=lost, incarnation="first", age=61, unanswered=True
    )
    fleet.fleet.silent = [(silent,), (silent,)]
    await fleet.comes_true(lambda: lost not in fleet.platform.alive, within=MINUTE)
    await fleet.comes_true(lambda: fleet.has(1))

    assert f"{lost}-w-2" in (await fleet.shown(lost)).reason


async def test_a_rate_limited_platform_gets_everything_done_in_the_end(fleet: FleetCluster) -> None:
    """Ten calls a minute for twenty slices: they come and go late, and none is forgotten."""
    fleet.hosts_work = False
    fleet.platform.calls_per_minute = 10
    await fleet.scale(a_cpu_group(max_slices=20, pace=EAGER), observe_interval=MINUTE)
    tenants = [await fleet.tenant(wants=some(cpu=8)) for _ in range(20)]
    await fleet.comes_true(
        lambda: all(tenant.placement for tenant in tenants), within=2 * HOUR, step=MINUTE
    )
    for tenant in tenants:
        await fleet.leaves(tenant)
    await fleet.comes_true(lambda: not fleet.platform.alive, within=2 * HOUR, step=MINUTE)

    assert len(fleet.platform.created) == 20
