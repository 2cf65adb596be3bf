"""Hosts of ready slices that the scheduler's ledger does not have: operators see them, and the
slices offer them again.
"""

import pytest

from iris.cli.show.autoscaler import problems
from iris.messages.scheduler import SchedulerStart
from iris.messages.wire import HostLost
from iris.model.slice.status import SliceState
from tests.fleet_harness import EAGER, MINUTE, FleetCluster
from tests.scaling_world import a_cpu_group

pytestmark = pytest.mark.long

S = SliceState


async def _hosts(fleet: FleetCluster, count: int) -> bool:
    return (await fleet.snapshot()).total_hosts == count


async def _alarms(fleet: FleetCluster) -> list[str]:
    return [each.host_id for each in (await fleet.scaling()).missing]


async def test_a_ready_slice_that_the_ledger_lacks_is_offered_again(fleet: FleetCluster) -> None:
    """Its slice says READY and its agents are well, so no other mechanism looks at it: it would
    wait for work for ever.
    """
    await fleet.scale(a_cpu_group(min_slices=1, pace=EAGER))
    await fleet.comes_true(lambda: _hosts(fleet, 1))
    await fleet.terminate(fleet.scheduler)
    await fleet.start_scheduler(SchedulerStart(cluster=fleet.name))

    await fleet.comes_true(lambda: _hosts(fleet, 1), within=10 * MINUTE)
    await fleet.comes_true(lambda: _is_well(fleet), within=10 * MINUTE)
    assert len(fleet.platform.created) == 1


async def _is_well(fleet: FleetCluster) -> bool:
    return not await _alarms(fleet)


async def test_operators_see_a_host_of_an_ended_incarnation_until_its_agent_begins_a_new_one(
    fleet: FleetCluster,
) -> None:
    """The scheduler never takes that incarnation again. The slice names it for its agent; an agent
    that does not read that is the operators' to restart.
    """
    await fleet.scale(a_cpu_group(min_slices=1, pace=EAGER))
    await fleet.comes_true(lambda: _hosts(fleet, 1))
    (slice_id,) = fleet.platform.created
    (host,) = (await fleet.shown(slice_id)).hosts
    await fleet.deliver(
        HostLost(host_id=host.id, incarnation=host.incarnation, reason="by mistake")
    )

    await fleet.comes_true(lambda: _alarms(fleet), within=10 * MINUTE)
    await fleet.later(10 * MINUTE)
    status, shown = await fleet.scaling(), await fleet.shown(slice_id)
    (problem,) = problems(status)
    assert host.id in problem
    assert problem.endswith(f"iris slice delete {slice_id}")
    assert shown.ended == ((host.id, host.incarnation),)
    assert shown.state is S.READY
    assert len(shown.steps) < 10  # the repeated offers do not displace the slice's history

    fleet.incarnations[slice_id] = "second"
    await fleet.comes_true(lambda: _hosts(fleet, 1), within=10 * MINUTE)
    await fleet.comes_true(lambda: _is_well(fleet), within=10 * MINUTE)
