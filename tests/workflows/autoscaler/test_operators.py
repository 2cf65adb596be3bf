"""The autoscaler and the people who run the cluster: pause, resume, another configuration, the end
of it all.
"""

import pytest

from iris.messages.autoscaler import CloseDown, PauseScaling
from iris.messages.scheduler import Pause, Resume
from iris.model.slice import lifecycle
from iris.model.slice.status import SliceState
from tests.builders import some
from tests.fleet_harness import EAGER, HOUR, MINUTE, SECOND, FleetCluster
from tests.fleet_played import Tenant
from tests.scaling_world import a_cpu_group, a_group

pytestmark = pytest.mark.long

S = SliceState
WHOLE = some(cpu=8)


@pytest.fixture(autouse=True)
def _looks_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """An autoscaler that closes down says so twice, a second apart; a look that is due just then
    wedges the server.
    """
    monkeypatch.setattr(lifecycle, "DRAIN_CHECK", 3 * SECOND)


async def tenants_on(fleet: FleetCluster, count: int) -> list[Tenant]:
    """So many machines with something to do each."""
    tenants = [await fleet.tenant(wants=WHOLE) for _ in range(count)]
    await fleet.comes_true(lambda: all(tenant.placement for tenant in tenants))
    return tenants


# -- pause
# --------------------------------------------------------------------------------------------------


async def test_a_paused_autoscaler_neither_asks_nor_gives_back(fleet: FleetCluster) -> None:
    """Whatever waits and however idle it is; and the status says that it is paused, and why."""
    await fleet.scale(a_cpu_group(pace=EAGER))
    (tenant,) = await tenants_on(fleet, 1)
    await fleet.autoscaler.signal("pause", PauseScaling(reason="the quota is being raised"))
    waits = [await fleet.tenant(wants=WHOLE) for _ in range(2)]
    await fleet.later(HOUR / 3)
    assert not any(each.placement for each in waits)
    await fleet.leaves(tenant)
    # What is there is used all the same.
    await fleet.comes_true(lambda: waits[0].placement, within=MINUTE)
    for each in waits:
        await fleet.leaves(each)
    await fleet.later(HOUR / 3)
    status = await fleet.scaling()
    assert (len(fleet.platform.created), len(fleet.platform.alive)) == (1, 1)
    assert status.paused == "the quota is being raised"
    await fleet.autoscaler.signal("resume")
    await fleet.comes_true(lambda: not fleet.platform.alive)

    assert (await fleet.scaling()).paused is None


async def test_what_waited_during_a_pause_is_served_after_it(fleet: FleetCluster) -> None:
    """The gangs do not have to send their requests again."""
    await fleet.scale(a_cpu_group(pace=EAGER))
    await fleet.autoscaler.signal("pause", PauseScaling())
    tenants = [await fleet.tenant(wants=WHOLE) for _ in range(2)]
    await fleet.later(HOUR / 3)
    assert fleet.platform.created == []
    await fleet.autoscaler.signal("resume")
    await fleet.comes_true(lambda: all(tenant.placement for tenant in tenants), within=MINUTE)

    assert len(fleet.platform.created) == 2


async def test_nothing_is_bought_for_a_group_that_takes_no_work(fleet: FleetCluster) -> None:
    """Its hosts would stand beside those that wait; when it takes work again, they are served."""
    await fleet.scale(a_cpu_group(min_slices=1, pace=EAGER))
    await fleet.comes_true(lambda: fleet.has(1))
    await fleet.tells(Pause(reason="new image", group="cpu"))
    tenants = [await fleet.tenant(wants=WHOLE) for _ in range(2)]
    await fleet.later(HOUR / 3)
    assert len(fleet.platform.created) == 1
    assert not any(tenant.placement for tenant in tenants)
    await fleet.tells(Resume(group="cpu"))
    await fleet.comes_true(lambda: all(tenant.placement for tenant in tenants), within=MINUTE)

    assert len(fleet.platform.created) == 2


async def test_those_who_waited_while_the_cluster_was_paused_get_machines_as_soon_as_it_goes_on(
    fleet: FleetCluster,
) -> None:
    """Nothing else happens in a quiet cluster that would wake the autoscaler."""
    await fleet.scale(a_cpu_group(pace=EAGER))
    await fleet.tells(Pause(reason="a new image"))
    tenant = await fleet.tenant(wants=WHOLE)
    await fleet.later(HOUR / 3)
    assert fleet.platform.created == []
    await fleet.tells(Resume())

    await fleet.comes_true(lambda: tenant.placement, within=MINUTE)


async def test_work_goes_to_the_next_group_while_one_takes_none(fleet: FleetCluster) -> None:
    """An operator who pauses a group does not mean to pause the users."""
    await fleet.scale(
        a_cpu_group("first", priority=1, pace=EAGER), a_cpu_group("second", priority=2, pace=EAGER)
    )
    await fleet.until(lambda: _is_paused(fleet, "first"))
    tenant = await fleet.tenant(wants=WHOLE)
    await fleet.comes_true(lambda: tenant.placement)

    assert [event.group for event in fleet.platform.audit if event.what == "CREATED"] == ["second"]


async def _is_paused(fleet: FleetCluster, group: str) -> bool:
    """The scheduler refuses to pause a group of which it has not been told yet."""
    return not (await fleet.tells(Pause(group=group))).problem


# -- another configuration
# --------------------------------------------------------------------------------------------------


async def test_a_smaller_most_gives_back_the_idle_first_and_lets_the_busy_run(
    fleet: FleetCluster,
) -> None:
    """A reload must not stop running tasks."""
    await fleet.scale(a_cpu_group(max_slices=4, pace=EAGER))
    tenants = await tenants_on(fleet, 4)
    for tenant in tenants[2:]:
        await fleet.leaves(tenant)
    idle = tenants[2].slices | tenants[3].slices
    await fleet.configure(a_cpu_group(max_slices=1, pace=EAGER))
    await fleet.comes_true(lambda: not idle & set(fleet.platform.alive), within=MINUTE)
    await fleet.later(HOUR / 3)
    assert len(await fleet.in_state(S.READY)) == 1
    assert len(await fleet.in_state(S.DRAINING)) == 1
    assert not any(tenant.evicted for tenant in tenants)
    for tenant in tenants[:2]:
        await fleet.leaves(tenant)

    await fleet.comes_true(lambda: not fleet.platform.alive)


async def test_a_larger_most_serves_those_who_wait_at_once(fleet: FleetCluster) -> None:
    """Within the evaluation, not at some later event."""
    await fleet.scale(a_cpu_group(max_slices=1, pace=EAGER))
    await tenants_on(fleet, 1)
    waits = await fleet.tenant(wants=WHOLE)
    await fleet.later(10 * MINUTE)
    assert waits.placement is None
    await fleet.configure(a_cpu_group(max_slices=2, pace=EAGER))

    await fleet.comes_true(lambda: waits.placement, within=30 * SECOND)


async def test_a_group_that_is_no_longer_in_the_configuration_is_given_back(
    fleet: FleetCluster,
) -> None:
    """Its idle slices at once, those that work when they have ended."""
    await fleet.scale(a_cpu_group("old", pace=EAGER), a_group())
    tenants = await tenants_on(fleet, 2)
    await fleet.leaves(tenants[0])
    await fleet.configure(a_group())
    await fleet.comes_true(lambda: len(fleet.platform.alive) == 1, within=MINUTE)
    await fleet.later(HOUR / 3)
    assert tenants[1].slices == set(fleet.platform.alive)
    assert tenants[1].evicted is None
    await fleet.leaves(tenants[1])

    await fleet.comes_true(lambda: not fleet.platform.alive)


async def test_slices_on_their_way_of_a_group_that_has_gone_are_given_back_too(
    fleet: FleetCluster,
) -> None:
    """They would boot for an hour, and no gang waits for them any more."""
    fleet.platform.boot_delay = HOUR
    await fleet.scale(a_cpu_group(min_slices=2, pace=EAGER))
    await fleet.comes_true(lambda: fleet.has(2, S.PROVISIONING))
    await fleet.configure(a_group())

    await fleet.comes_true(lambda: not fleet.platform.alive, within=MINUTE)


# -- the end
# --------------------------------------------------------------------------------------------------


async def test_a_cluster_that_is_closed_down_gives_everything_back_and_makes_no_more(
    fleet: FleetCluster,
) -> None:
    """Min slices and waiting gangs included: `iris cluster stop` must not race with its own
    autoscaler.
    """
    fleet.platform.boot_delays["slow"] = HOUR
    await fleet.scale(a_cpu_group(min_slices=2, pace=EAGER), a_group("slow", min_slices=1))
    tenants = await tenants_on(fleet, 3)
    await fleet.comes_true(lambda: fleet.has(1, S.PROVISIONING))
    await fleet.autoscaler.signal(
        "close_down", CloseDown(reason="the cluster is stopped", deadline=await fleet.now())
    )
    await fleet.comes_true(lambda: not fleet.platform.alive, within=5 * MINUTE)
    made = len(fleet.platform.created)
    await fleet.tenant(wants=WHOLE)
    await fleet.later(HOUR / 3)

    assert len(fleet.platform.created) == made
    assert all(tenant.evicted and "the cluster is stopped" in tenant.evicted for tenant in tenants)
    assert (await fleet.scaling()).closing == "the cluster is stopped"


async def test_closing_down_with_a_deadline_lets_work_run_until_then(fleet: FleetCluster) -> None:
    """Ten minutes to write a checkpoint; an idle slice does not wait for them."""
    await fleet.scale(a_cpu_group(pace=EAGER))
    tenants = await tenants_on(fleet, 3)
    await fleet.leaves(tenants[0])
    await fleet.autoscaler.signal(
        "close_down", CloseDown(reason="stop", deadline=await fleet.now() + 10 * MINUTE)
    )
    await fleet.later(MINUTE)
    assert len(fleet.platform.alive) == 2
    await fleet.leaves(tenants[1])
    await fleet.later(8 * MINUTE)
    assert fleet.platform.alive == list(tenants[2].slices)
    assert tenants[2].evicted is None

    await fleet.comes_true(lambda: not fleet.platform.alive, within=3 * MINUTE)


async def test_a_new_configuration_opens_a_cluster_that_was_closed_down(
    fleet: FleetCluster,
) -> None:
    """`iris cluster start` after a stop finds the same autoscaler."""
    group = a_cpu_group(min_slices=1, pace=EAGER)
    await fleet.scale(group)
    await fleet.comes_true(lambda: fleet.has(1))
    await fleet.autoscaler.signal(
        "close_down", CloseDown(reason="stop", deadline=await fleet.now())
    )
    await fleet.comes_true(lambda: not fleet.platform.alive)
    await fleet.configure(group)
    await fleet.comes_true(lambda: fleet.has(1), within=MINUTE)

    assert (await fleet.scaling()).closing is None
