"""The autoscaler grows with what waits and shrinks when it has gone."""

from datetime import timedelta

from iris.scale_groups import Pace
from iris.slices import SliceState
from iris.states import JobState
from tests.builders import CHIPS, some
from tests.fleet_harness import HOUR, MINUTE, SECOND, FleetCluster
from tests.harness import Held
from tests.scaling_world import a_cpu_group, a_group

READY = SliceState.READY
#: Grows at once, as often as it likes.
EAGER = Pace(scale_up_delay=timedelta(0), scale_ups_per_minute=1000, scale_downs_per_minute=1000)


async def test_a_gang_gets_exactly_one_slice_from_nothing_and_it_is_given_back(fleet: FleetCluster) -> None:
    """The whole point: machines appear when they are needed and vanish when they are not."""
    await fleet.scale(a_group())
    job = await fleet.gang(tasks=4, resources=CHIPS)
    await fleet.comes_true(lambda: fleet.platform.created)
    assert (await fleet.end(job, within=MINUTE)).state is JobState.SUCCEEDED

    await fleet.comes_true(lambda: not fleet.platform.alive)
    assert len(fleet.platform.created) == 1
    ends = [action.reason for action in (await fleet.scaling()).actions if action.what == "scale_down"]
    assert ends == ["idle for 5m"]


async def test_min_slices_are_there_without_anybody_who_waits(fleet: FleetCluster) -> None:
    """And they are kept, however long nothing runs."""
    await fleet.scale(a_group(min_slices=2), observe_interval=10 * MINUTE)
    await fleet.comes_true(lambda: fleet.has(2))
    await fleet.later(timedelta(days=1))

    assert len(fleet.platform.created) == 2


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
