"""A slice that is made: asked for and waited for, whatever the platform and its agents do; and what ends it."""

from datetime import timedelta

import pytest

from iris.model.provisioning import SliceFault
from iris.model.scale_groups import Pace
from iris.model.slices import SliceState, SliceStatus
from iris.platforms.base import BadConfig, StockOut
from iris.platforms.fake.cloud import Verb
from iris.workflows import policies
from tests.builders import some
from tests.fleet_harness import HOUR, MINUTE, SECOND, FleetCluster
from tests.scaling_world import a_cpu_group, a_group

READY, FAILED, DELETED = SliceState.READY, SliceState.FAILED, SliceState.DELETED
PROVISIONING, BOOTSTRAPPING = SliceState.PROVISIONING, SliceState.BOOTSTRAPPING
REGION = "europe-west4"
PACE = Pace()


async def ended(fleet: FleetCluster, fault: SliceFault | None, within: timedelta = HOUR) -> SliceStatus:
    """The slice's last word; nothing is left of it, neither at the platform nor in the scheduler's book."""
    shown = await fleet.becomes("s1", DELETED, within)

    assert shown.facts is not None
    assert shown.facts.fault is fault
    assert fleet.platform.alive == []
    assert (await fleet.snapshot()).total_hosts == 0
    return shown


# -- from the wish to hosts that take work -------------------------------------------------------------------------------------


async def test_a_slice_is_made_and_its_hosts_take_work(fleet: FleetCluster) -> None:
    """The simplest life; and every step of it can be read."""
    await fleet.make(a_group())
    shown = await fleet.becomes("s1", READY)

    assert sorted(host.id for host in shown.hosts) == ["s1-w-0", "s1-w-1", "s1-w-2", "s1-w-3"]
    assert await fleet.offers(*shown.hosts)
    assert [step.state for step in shown.steps] == ["REQUESTED", "PROVISIONING", "BOOTSTRAPPING", "READY"]


async def test_a_slice_that_boots_slowly_shows_what_it_waits_for(fleet: FleetCluster) -> None:
    """Minutes pass between a yes and the machines, and more until all agents are there."""
    fleet.platform.boot_delay = 3 * MINUTE
    await fleet.make(a_group())
    await fleet.later(MINUTE)
    before = await fleet.shown()
    await fleet.later(2 * MINUTE)
    shown = await fleet.becomes("s1", READY)

    assert before.state is PROVISIONING
    assert before.reason == "the platform makes its machines in europe-west4-a"
    assert shown.facts is not None
    assert shown.facts.ready_at is not None
    assert timedelta() <= shown.facts.ready_at - shown.facts.requested_at - 3 * MINUTE < MINUTE


@pytest.mark.parametrize("fault", [SliceFault.STOCK_OUT, SliceFault.QUOTA, SliceFault.BAD_CONFIG])
async def test_a_slice_that_is_refused_fails_with_the_platform_s_reason(fleet: FleetCluster, fault: SliceFault) -> None:
    """Each asks for another answer of the autoscaler: another zone, another group, or a human."""
    if fault is SliceFault.STOCK_OUT:
        fleet.platform.capacity["europe-west4-a", "v5litepod-16"] = 0
    elif fault is SliceFault.QUOTA:
        fleet.platform.quota[REGION] = 0
    else:
        fleet.platform.fail_next(Verb.CREATE, BadConfig("there is no runtime version v9"))
    await fleet.make(a_group())
    shown = await ended(fleet, fault)

    assert shown.reason == next(event.reason for event in fleet.platform.audit).partition(": ")[2]
    assert [step.state for step in shown.steps] == ["REQUESTED", "FAILED", "DELETING", "DELETED"]
    assert fleet.platform.created == []


async def test_a_slice_whose_making_was_not_heard_of_is_found_again(fleet: FleetCluster) -> None:
    """The reply was lost after the deed: the second call must not make a second one."""
    fleet.platform.lose_next_reply(Verb.CREATE, times=3)
    await fleet.make(a_group())
    await fleet.becomes("s1", READY)

    assert fleet.platform.created == ["s1"]


async def test_a_platform_that_is_silent_for_an_hour_and_then_says_yes_has_made_one_slice(fleet: FleetCluster) -> None:
    """No answer is not a no: what was asked is asked again, under the same name, for as long as it takes."""
    fleet.platform.unreachable["europe-west4-a"] = "backend error"
    await fleet.make(a_group())
    for _ in range(6):
        await fleet.later(10 * MINUTE)
    waiting = await fleet.shown()
    fleet.platform.unreachable.clear()
    await fleet.becomes("s1", READY)

    assert waiting.state is SliceState.REQUESTED
    assert fleet.platform.created == ["s1"]


async def test_machines_that_are_not_there_in_time_are_given_back(fleet: FleetCluster) -> None:
    """The platform was asked once more before; what it would make later must not come to life unwatched."""
    fleet.platform.boot_delay = HOUR
    await fleet.make(a_group())
    await fleet.later(PACE.boot_timeout - SECOND)
    assert (await fleet.shown()).state is PROVISIONING
    shown = await ended(fleet, SliceFault.BOOT_TIMEOUT)

    assert shown.reason == "the platform has not made its machines within 5m"


async def test_machines_that_exist_at_the_deadline_are_waited_for(fleet: FleetCluster) -> None:
    """Slow is not failed: nobody looked, and the agents need their time, but the platform has kept its word."""
    fleet.platform.partial["tpu"] = 0
    fleet.platform.boot_delay = PACE.boot_timeout
    await fleet.make(a_group())
    await fleet.later(PACE.boot_timeout + SECOND)

    assert (await fleet.shown()).state is BOOTSTRAPPING


async def test_half_of_the_agents_are_not_enough_and_the_reason_counts_them(fleet: FleetCluster) -> None:
    """Half a TPU slice cannot compute; whoever reads the reason looks for the two that are missing."""
    fleet.platform.partial["tpu"] = 2
    await fleet.make(a_group())
    await fleet.later(PACE.init_timeout - SECOND)
    waiting = await fleet.shown()
    shown = await ended(fleet, SliceFault.INIT_TIMEOUT)

    assert (waiting.state, len(waiting.hosts)) == (BOOTSTRAPPING, 2)
    assert shown.reason == "2 of 4 agents have reported within 10m"


async def test_what_machines_said_last_is_in_the_reason_when_their_agents_do_not_come(fleet: FleetCluster) -> None:
    """They are given back, and nobody can look at them any more. The reason is one line; the others are kept beside it."""
    fleet.platform.partial["tpu"] = 0
    fleet.platform.console["tpu"] = "pulling image\nFAILED: no such image\n"
    await fleet.make(a_group())
    shown = await ended(fleet, SliceFault.INIT_TIMEOUT)

    assert shown.reason == "0 of 4 agents have reported within 10m; the last that its machines said: FAILED: no such image"
    assert shown.last_words == "pulling image\nFAILED: no such image\n"


# -- agents --------------------------------------------------------------------------------------------------------------------


async def test_an_agent_with_another_token_is_refused_and_shown(fleet: FleetCluster) -> None:
    """Anybody may reach the server; only the machines that were asked for are taken for the slice's."""
    fleet.platform.boot_delay = 2 * MINUTE
    await fleet.make(a_group(hosts=2))
    await fleet.comes_true(lambda: fleet.platform.created)
    strangers = a_group(hosts=2).slice_hosts("s1", "europe-west4-a", "of another cluster")
    for host in strangers:
        await fleet.agent_reports(host, "token of another cluster")
    await fleet.comes_true(lambda: _refuses(fleet))
    shown = await fleet.shown()

    assert (shown.state, shown.refused, shown.hosts) == (PROVISIONING, ("s1-w-0", "s1-w-1"), ())
    ready = await fleet.becomes("s1", READY)
    assert {host.incarnation for host in ready.hosts} == {"first"}


async def _refuses(fleet: FleetCluster) -> bool:
    return len((await fleet.shown()).refused) == 2


async def test_an_agent_that_has_restarted_takes_the_place_of_its_former_life(fleet: FleetCluster) -> None:
    """An upgrade of the agent is no reason to give four machines back."""
    await fleet.ready(a_group())
    fleet.incarnations["s1"] = "second"
    await fleet.later(SECOND)
    await fleet.comes_true(lambda: _all_second(fleet))
    shown = await fleet.shown()

    assert shown.state is READY
    assert len(shown.hosts) == 4
    assert fleet.platform.alive == ["s1"]


async def _all_second(fleet: FleetCluster) -> bool:
    return {view.host.incarnation for view in (await fleet.snapshot()).hosts} == {"second"}


# -- what ends it --------------------------------------------------------------------------------------------------------------


async def test_a_lost_host_is_the_end_of_the_whole_slice(fleet: FleetCluster) -> None:
    """The other three cannot compute without it, and cost as much as before."""
    await fleet.ready(a_group())
    host = (await fleet.shown()).hosts[2]
    await fleet.lose(host, "host s1-w-2 has not reported for 31 s")
    shown = await ended(fleet, SliceFault.HOST_LOST)

    assert shown.reason == "host s1-w-2 has not reported for 31 s"
    assert fleet.platform.deleted == ["s1"]


@pytest.mark.parametrize(
    ("what", "fault", "reason"),
    [
        ("preempt", SliceFault.PREEMPTED, "Instance was preempted."),
        ("break_", SliceFault.PLATFORM, "terminated by maintenance"),
        ("vanish", SliceFault.VANISHED, "the platform no longer knows its machines"),
    ],
)
async def test_a_slice_that_the_platform_takes_away_is_given_back_too(
    fleet: FleetCluster, what: str, fault: SliceFault, reason: str
) -> None:
    """What is left of it costs, and counts against the quota, until it is deleted."""
    await fleet.ready(a_group())
    await getattr(fleet.platform, what)("s1")
    await fleet.look()
    shown = await ended(fleet, fault)

    assert shown.reason == reason


@pytest.mark.parametrize("state", [BOOTSTRAPPING, READY, SliceState.DRAINING])
async def test_machines_that_are_in_repair_for_too_long_are_given_back(fleet: FleetCluster, state: SliceState) -> None:
    """Maintenance of a large slice may take hours; another slice is there in minutes."""
    fleet.platform.partial["tpu"] = 3 if state is BOOTSTRAPPING else 4
    await fleet.make(a_group(pace=Pace(init_timeout=HOUR)))
    await fleet.becomes("s1", BOOTSTRAPPING if state is BOOTSTRAPPING else READY)
    if state is SliceState.DRAINING:
        await fleet.tenant_gang()
        await fleet.drain(deadline=await fleet.now() + HOUR)
        await fleet.becomes("s1", state)
    fleet.platform.repair("s1")
    await fleet.look()
    await fleet.later(policies.REPAIR_GRACE - MINUTE)
    assert (await fleet.shown()).state is state
    shown = await ended(fleet, SliceFault.PREEMPTED, within=2 * MINUTE)

    assert shown.reason == "in repair for 15m"
    assert "is given back unless it is whole in 15m: UNHEALTHY_MAINTENANCE" in [step.reason for step in shown.steps]


@pytest.mark.parametrize("heard", [True, False])
async def test_machines_that_are_whole_again_in_time_are_kept(fleet: FleetCluster, heard: bool) -> None:
    """What runs there may not have noticed. If nobody says so the platform is asked; one that does not answer is asked again."""
    await fleet.ready(a_group())
    fleet.platform.repair("s1")
    await fleet.look()
    await fleet.later(5 * MINUTE)
    fleet.platform.repair("s1", begins=False)
    if heard:
        await fleet.look()
    else:
        fleet.platform.unreachable["europe-west4-a"] = "backend error"
    await fleet.later(12 * MINUTE)
    fleet.platform.unreachable.clear()
    await fleet.later(2 * MINUTE)
    shown = await fleet.shown()

    assert shown.state is READY
    assert shown.facts is not None
    assert (shown.facts.repair_until, shown.steps[-1].reason) == (None, "its machines are whole again")
    fleet.platform.repair("s1")
    await fleet.look()
    await fleet.later(14 * MINUTE)
    assert (await fleet.shown()).state is READY


async def test_a_slice_that_somebody_else_deletes_has_vanished(fleet: FleetCluster) -> None:
    """By hand, in the cloud's own console."""
    await fleet.ready(a_group())
    fleet.platform.delete_delay = 5 * MINUTE
    await fleet.platform.delete_slice("s1", "europe-west4-a")
    await fleet.look()

    await ended(fleet, SliceFault.VANISHED)


@pytest.mark.parametrize("state", [PROVISIONING, BOOTSTRAPPING])
async def test_a_slice_that_is_preempted_on_the_way_does_not_wait_for_its_deadline(
    fleet: FleetCluster, state: SliceState
) -> None:
    """It happens to slices that are one minute old."""
    fleet.platform.partial["tpu"] = 3
    fleet.platform.boot_delay = HOUR if state is PROVISIONING else timedelta(0)
    await fleet.make(a_group())
    await fleet.becomes("s1", state)
    await fleet.platform.preempt("s1")
    await fleet.look()

    await ended(fleet, SliceFault.PREEMPTED, within=MINUTE)


async def test_a_slice_that_is_missing_in_the_list_and_still_there_lives_on(fleet: FleetCluster) -> None:
    """Lists lag behind; the platform is asked for this one slice before anything is believed."""
    await fleet.ready(a_group())
    await fleet.look(listed=False)
    await fleet.later(MINUTE)
    tenant = await fleet.tenant_gang()

    assert (await fleet.shown()).state is READY
    assert tenant.slices == {"s1"}


async def test_what_ran_on_a_lost_slice_is_not_held_any_more(fleet: FleetCluster) -> None:
    """Its successor, on another slice, is placed at once."""
    await fleet.ready(a_cpu_group(), "s1")
    tenant = await fleet.tenant(wants=some(cpu=8))
    await fleet.ready(a_cpu_group(), "s2")
    await fleet.platform.preempt("s1")
    await fleet.look()
    await fleet.becomes("s1", DELETED)
    again = await fleet.tenant(wants=some(cpu=8))

    assert (tenant.slices, again.slices) == ({"s1"}, {"s2"})


async def test_a_refusal_after_a_lost_reply_leaves_nothing_behind(fleet: FleetCluster) -> None:
    """The machines were made, the answer got lost, and the next answer is a no: they must not be forgotten for it."""
    fleet.platform.lose_next_reply(Verb.CREATE)
    fleet.platform.boot_delay = HOUR
    handle = await fleet.make(a_group())
    await fleet.until(lambda: fleet.platform.created)
    fleet.platform.fail_next(Verb.CREATE, StockOut("there is no more capacity"))

    await ended(fleet, SliceFault.STOCK_OUT)
    assert await fleet.shown_end(handle) == "COMPLETED"
