"""The autoscaler grows with what waits and shrinks when it has gone."""

from datetime import timedelta

import pytest

from iris.model.slice.scale_groups import Pace
from iris.model.slice.status import SliceState
from iris.model.states import JobState
from iris.scheduling.placement.refusals import RefusalCode
from tests.builders import CHIPS, some
from tests.fleet_harness import EAGER, HOUR, MINUTE, SECOND, FleetCluster
from tests.scaling_world import a_cpu_group, a_group

S = SliceState


async def test_a_gang_gets_exactly_one_slice_from_nothing_and_it_is_given_back(
    fleet: FleetCluster,
) -> None:
    """The whole point: machines appear when they are needed and vanish when they are not."""
    await fleet.scale(a_group())
    job = await fleet.gang(tasks=4, resources=CHIPS)
    await fleet.comes_true(lambda: fleet.platform.created)
    assert (await fleet.end(job, within=MINUTE)).state is JobState.SUCCEEDED

    await fleet.comes_true(lambda: not fleet.platform.alive)
    assert len(fleet.platform.created) == 1
    ends = [
        action.reason for action in (await fleet.scaling()).actions if action.what == "scale_down"
    ]
    assert ends == ["idle for 5m"]


async def test_a_gang_that_waits_is_told_which_slice_is_on_its_way(fleet: FleetCluster) -> None:
    """Users who wait for minutes see what they wait for."""
    fleet.platform.boot_delay = 4 * MINUTE
    await fleet.scale(a_group())
    job = await fleet.gang(tasks=4, resources=CHIPS)
    await fleet.comes_true(lambda: fleet.platform.created)
    (slice_id,) = fleet.platform.created
    await fleet.comes_true(lambda: _hears_of(fleet, job, slice_id), within=MINUTE)
    refusal = (await fleet.users.jobs.explain(job)).refusal

    assert refusal is not None
    assert refusal.code is RefusalCode.SCALING
    assert slice_id in refusal.scaling
    assert "PROVISIONING" in refusal.scaling
    assert refusal.since is not None
    assert (await fleet.end(job, within=5 * MINUTE)).state is JobState.SUCCEEDED


async def _hears_of(fleet: FleetCluster, job: str, slice_id: str) -> bool:
    return slice_id in (await fleet.users.jobs.explain(job)).message


async def test_two_gangs_get_a_slice_each(fleet: FleetCluster) -> None:
    """They are asked for at once, not one after the other's end."""
    await fleet.scale(a_group(pace=EAGER))
    tenants = [await fleet.tenant_gang() for _ in range(2)]
    await fleet.comes_true(lambda: all(tenant.placement for tenant in tenants), within=MINUTE)

    assert len(tenants[0].slices | tenants[1].slices) == 2
    assert len(fleet.platform.created) == 2


async def test_those_that_fit_on_one_machine_share_it(fleet: FleetCluster) -> None:
    """Eight jobs of a core do not need eight machines of eight."""
    await fleet.scale(a_cpu_group())
    tenants = [await fleet.tenant(wants=some(cpu=1)) for _ in range(8)]
    await fleet.comes_true(lambda: all(tenant.placement for tenant in tenants))
    await fleet.later(5 * MINUTE)

    assert len(fleet.platform.created) == 1


@pytest.mark.long
async def test_min_slices_are_there_without_anybody_who_waits(fleet: FleetCluster) -> None:
    """And they are kept, however long nothing runs."""
    await fleet.scale(a_group(min_slices=2), observe_interval=HOUR / 2)
    await fleet.comes_true(lambda: fleet.has(2))
    await fleet.later(timedelta(hours=12))

    assert len(fleet.platform.created) == 2


@pytest.mark.long
async def test_min_slices_are_restored_whatever_takes_them_away(fleet: FleetCluster) -> None:
    """A slice can be preempted, broken, silent or cancelled, or its machines can vanish: the group
    has its minimum of two again each time.
    """
    await fleet.scale(a_cpu_group(min_slices=2, pace=EAGER))
    await fleet.comes_true(lambda: fleet.has(2))
    for take in ("preempt", "break_", "vanish", "cancel"):
        await fleet.later(11 * MINUTE)  # a life long enough not to pass for churn
        victim = (await fleet.in_state())[0]
        if take == "cancel":
            await fleet.slice_of(victim).cancel()
        else:
            await getattr(fleet.platform, take)(victim)
        await fleet.comes_true(lambda victim=victim: victim not in fleet.platform.alive)
        await fleet.comes_true(lambda: fleet.has(2))

    assert len(fleet.platform.created) == 6
    assert fleet.platform.most_alive["cpu"] <= 3


async def test_a_buffer_is_there_before_anybody_wants_it(fleet: FleetCluster) -> None:
    """The next job starts at once, and the reserve is filled up behind it."""
    await fleet.scale(a_cpu_group(buffer_slices=1, pace=EAGER))
    await fleet.comes_true(lambda: fleet.has(1))
    first = await fleet.tenant(wants=some(cpu=8))
    await fleet.comes_true(lambda: fleet.has(2))
    await fleet.later(10 * MINUTE)

    assert first.placement is not None
    assert len(fleet.platform.created) == 2


@pytest.mark.long
async def test_with_many_waiting_a_group_never_has_more_than_its_most(fleet: FleetCluster) -> None:
    """Money: whatever fails, dies or waits meanwhile."""
    await fleet.scale(a_group(max_slices=3, pace=EAGER))
    tenants = [await fleet.tenant_gang() for _ in range(10)]
    await fleet.comes_true(lambda: fleet.has(3))
    await fleet.later(5 * MINUTE)
    for tenant in tenants:
        await fleet.comes_true(lambda tenant=tenant: tenant.placement)
        await fleet.leaves(tenant)
    await fleet.comes_true(lambda: not fleet.platform.alive)

    assert fleet.platform.most_alive["tpu"] == 3
    assert len(fleet.platform.created) == 3


async def test_slices_on_their_way_are_counted_before_new_ones_are_asked_for(
    fleet: FleetCluster,
) -> None:
    """Evaluated a hundred times while one boots, the same gang must not get a hundred slices."""
    fleet.platform.boot_delay = 4 * MINUTE
    await fleet.scale(a_group(pace=EAGER), evaluation_interval=SECOND)
    tenant = await fleet.tenant_gang()
    for _ in range(8):
        await fleet.later(30 * SECOND)
        await fleet.autoscaler.signal("demand")
    await fleet.comes_true(lambda: tenant.placement)

    assert len(fleet.platform.created) == 1


@pytest.mark.long
async def test_after_a_scale_up_a_group_waits_before_the_next(fleet: FleetCluster) -> None:
    """Demand often comes in a trickle of which the first slice can take it all."""
    await fleet.scale(a_group(pace=Pace(scale_up_delay=3 * MINUTE)))
    await fleet.tenant_gang()
    await fleet.comes_true(lambda: fleet.has(1))
    await fleet.tenant_gang()
    await fleet.later(MINUTE)
    assert len(fleet.platform.created) == 1
    (verdict,) = (await fleet.scaling()).groups
    await fleet.comes_true(lambda: len(fleet.platform.created) == 2)

    first, second = (event.at for event in fleet.platform.audit if event.what == "CREATED")
    # The platform is asked a moment after the decision.
    assert second - first >= 3 * MINUTE - SECOND
    assert verdict.availability == "COOLDOWN"


async def test_what_is_wanted_never_and_nowhere_buys_nothing(fleet: FleetCluster) -> None:
    """A gang of three on slices of four would wait for ever beside machines that cost."""
    await fleet.scale(a_group())
    tenant = await fleet.tenant_gang(tasks=3)
    await fleet.later(10 * MINUTE)

    assert tenant.placement is None
    assert fleet.platform.created == []
    (outlook,) = (await fleet.scaling()).outlooks
    assert not outlook.possible


async def test_idle_slices_go_after_their_delay_and_not_before(fleet: FleetCluster) -> None:
    """Counted from the end of what ran there last."""
    await fleet.scale(a_cpu_group())
    tenant = await fleet.tenant(wants=some(cpu=8))
    await fleet.comes_true(lambda: tenant.placement)
    await fleet.later(20 * MINUTE)
    await fleet.leaves(tenant)
    left_at = await fleet.now()
    await fleet.later(4 * MINUTE)
    assert len(fleet.platform.alive) == 1
    await fleet.comes_true(lambda: not fleet.platform.alive)

    (gone_at,) = (event.at for event in fleet.platform.audit if event.what == "DELETING")
    assert 5 * MINUTE <= gone_at - left_at <= 11 * MINUTE


@pytest.mark.long
async def test_nothing_happens_for_days_in_a_cluster_without_work(fleet: FleetCluster) -> None:
    """No machine comes and goes for nothing."""
    await fleet.scale(a_group(), a_cpu_group(min_slices=1), observe_interval=2 * HOUR)
    await fleet.comes_true(lambda: fleet.has(1))
    for _ in range(6):
        await fleet.later(timedelta(hours=12))

    assert len(fleet.platform.created) == 1
    assert [action.what for action in (await fleet.scaling()).actions] == ["scale_up"]
