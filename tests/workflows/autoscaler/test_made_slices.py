"""A created slice, from its request to its deletion, on platforms and with agents that fail in
every way.

The rules themselves: `tests/model/slice/test_slice_lifecycle.py`. Here the workflow performs them.
"""

from datetime import timedelta

import pytest

from iris.messages.wire import HostLost
from iris.model.slice import lifecycle
from iris.model.slice.provisioning import TIME_TO_LEAVE, SliceFault
from iris.model.slice.scale_groups import Pace
from iris.model.slice.status import SliceState, SliceStatus
from iris.platforms.base import BadConfig, StockOut
from tests.builders import some
from tests.fakes.platform.cloud import Verb
from tests.fleet_harness import HOUR, MINUTE, SECOND, FleetCluster
from tests.scaling_world import a_cpu_group, a_group

READY, FAILED, DELETED = SliceState.READY, SliceState.FAILED, SliceState.DELETED
PROVISIONING, BOOTSTRAPPING = SliceState.PROVISIONING, SliceState.BOOTSTRAPPING
REGION = "europe-west4"
PACE = Pace()


async def ended(
    fleet: FleetCluster, fault: SliceFault | None, within: timedelta = HOUR
) -> SliceStatus:
    """Returns the status of a deleted slice. Neither the platform nor the scheduler has anything
    left of it.
    """
    shown = await fleet.becomes("s1", DELETED, within)

    assert shown.facts is not None
    assert shown.facts.fault is fault
    assert fleet.platform.alive == []
    assert (await fleet.snapshot()).total_hosts == 0
    return shown


# -- from the request to ready hosts
# -------------------------------------------------------------------------------------------


async def test_a_slice_is_created_and_its_hosts_accept_work(fleet: FleetCluster) -> None:
    """Every step is in the status."""
    await fleet.make(a_group())
    shown = await fleet.becomes("s1", READY)

    assert sorted(host.id for host in shown.hosts) == ["s1-w-0", "s1-w-1", "s1-w-2", "s1-w-3"]
    assert await fleet.offers(*shown.hosts)
    assert [step.state for step in shown.steps] == [
        "REQUESTED",
        "PROVISIONING",
        "BOOTSTRAPPING",
        "READY",
    ]


async def test_a_slice_that_boots_slowly_shows_what_it_waits_for(fleet: FleetCluster) -> None:
    """Minutes pass until the machines exist, and more until all agents have reported."""
    fleet.platform.boot_delay = 3 * MINUTE
    await fleet.make(a_group())
    await fleet.later(MINUTE)
    before = await fleet.shown()
    await fleet.later(2 * MINUTE)
    shown = await fleet.becomes("s1", READY)

    assert before.state is PROVISIONING
    assert "europe-west4-a" in before.reason
    assert shown.facts is not None
    assert shown.facts.ready_at is not None
    assert timedelta() <= shown.facts.ready_at - shown.facts.requested_at - 3 * MINUTE < MINUTE


@pytest.mark.parametrize("fault", [SliceFault.STOCK_OUT, SliceFault.QUOTA, SliceFault.BAD_CONFIG])
async def test_a_slice_that_is_refused_fails_with_the_platform_s_reason(
    fleet: FleetCluster, fault: SliceFault
) -> None:
    """Each needs another reaction: another zone, another group, or a person."""
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


async def test_a_slice_whose_creation_was_not_acknowledged_is_found_again(
    fleet: FleetCluster,
) -> None:
    """The reply was lost after the creation: the second call must not create a second slice."""
    fleet.platform.lose_next_reply(Verb.CREATE, times=3)
    await fleet.make(a_group())
    await fleet.becomes("s1", READY)

    assert fleet.platform.created == ["s1"]


@pytest.mark.long
async def test_a_platform_that_does_not_answer_for_an_hour_has_created_one_slice(
    fleet: FleetCluster,
) -> None:
    """No answer is not a refusal: the request is repeated under the same name for as long as it
    takes.
    """
    fleet.platform.unreachable["europe-west4-a"] = "backend error"
    await fleet.make(a_group())
    for _ in range(6):
        await fleet.later(10 * MINUTE)
    waiting = await fleet.shown()
    fleet.platform.unreachable.clear()
    await fleet.becomes("s1", READY)

    assert waiting.state is SliceState.REQUESTED
    assert fleet.platform.created == ["s1"]


async def test_machines_that_do_not_exist_in_time_are_deleted(fleet: FleetCluster) -> None:
    """The workflow asks the platform first. Machines that it would create later must not exist
    without a workflow.
    """
    fleet.platform.boot_delay = HOUR
    await fleet.make(a_group())
    await fleet.later(PACE.boot_timeout - SECOND)
    assert (await fleet.shown()).state is PROVISIONING
    await ended(fleet, SliceFault.BOOT_TIMEOUT)


async def test_the_reason_has_the_last_console_line_when_agents_do_not_report(
    fleet: FleetCluster,
) -> None:
    """The machines are deleted, with their consoles. The status keeps the other lines."""
    fleet.platform.partial["tpu"] = 0
    fleet.platform.console["tpu"] = "pulling image\nFAILED: no such image\n"
    await fleet.make(a_group())
    shown = await ended(fleet, SliceFault.INIT_TIMEOUT)

    assert shown.reason.endswith("FAILED: no such image")
    assert shown.last_words == "pulling image\nFAILED: no such image\n"


# -- agents
# --------------------------------------------------------------------------------------------------


async def test_an_agent_with_another_token_is_refused_and_shown(fleet: FleetCluster) -> None:
    """Any machine may reach the server; only the requested machines belong to the slice."""
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


async def test_a_restarted_agent_replaces_its_former_incarnation(fleet: FleetCluster) -> None:
    """An upgrade of the agent is no reason to delete four machines."""
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


# -- failures
# --------------------------------------------------------------------------------------------------


async def test_a_lost_host_fails_the_whole_slice(fleet: FleetCluster) -> None:
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
async def test_a_slice_that_the_platform_preempts_is_deleted_too(
    fleet: FleetCluster, what: str, fault: SliceFault, reason: str
) -> None:
    """Its remains cost money and count against the quota until they are deleted."""
    await fleet.ready(a_group())
    await getattr(fleet.platform, what)("s1")
    await fleet.look()
    shown = await ended(fleet, fault)

    assert shown.reason == reason


async def test_machines_that_are_in_repair_for_too_long_are_deleted(fleet: FleetCluster) -> None:
    """Maintenance of a large slice may take hours; another slice is there in minutes."""
    await fleet.ready(a_group())
    fleet.platform.repair("s1")
    await fleet.look()
    await fleet.later(lifecycle.REPAIR_GRACE - MINUTE)
    assert (await fleet.shown()).state is READY
    shown = await ended(fleet, SliceFault.PREEMPTED, within=2 * MINUTE)

    assert any("UNHEALTHY_MAINTENANCE" in step.reason for step in shown.steps)


async def test_machines_that_are_repaired_in_time_are_kept_even_if_no_observation_shows_it(
    fleet: FleetCluster,
) -> None:
    """At the end of the grace the workflow asks the platform, and asks again if the platform does
    not answer.
    """
    await fleet.ready(a_group())
    fleet.platform.repair("s1")
    await fleet.look()
    await fleet.later(5 * MINUTE)
    fleet.platform.repair("s1", begins=False)
    fleet.platform.unreachable["europe-west4-a"] = "backend error"
    await fleet.later(12 * MINUTE)
    fleet.platform.unreachable.clear()
    await fleet.later(2 * MINUTE)
    shown = await fleet.shown()

    assert shown.state is READY
    assert "repaired" in shown.steps[-1].reason


@pytest.mark.long
async def test_a_slice_that_another_client_deletes_has_vanished(fleet: FleetCluster) -> None:
    """For example a person in the cloud's console."""
    await fleet.ready(a_group())
    fleet.platform.delete_delay = 5 * MINUTE
    await fleet.platform.delete_slice("s1", "europe-west4-a")
    await fleet.look()

    await ended(fleet, SliceFault.VANISHED)


async def test_a_slice_that_is_preempted_before_it_is_ready_does_not_wait_for_its_deadline(
    fleet: FleetCluster,
) -> None:
    """Spot machines may be preempted within a minute."""
    fleet.platform.boot_delay = HOUR
    await fleet.make(a_group())
    await fleet.becomes("s1", PROVISIONING)
    await fleet.platform.preempt("s1")
    await fleet.look()

    await ended(fleet, SliceFault.PREEMPTED, within=MINUTE)


async def test_a_slice_that_is_only_missing_in_the_list_is_kept(fleet: FleetCluster) -> None:
    """Lists lag behind: the workflow asks the platform about this slice first."""
    await fleet.ready(a_group())
    await fleet.look(listed=False)
    await fleet.later(MINUTE)
    tenant = await fleet.tenant_gang()

    assert (await fleet.shown()).state is READY
    assert tenant.slices == {"s1"}


async def test_tasks_of_a_lost_slice_free_its_resources(fleet: FleetCluster) -> None:
    """The job's next attempt is placed on another slice at once."""
    await fleet.ready(a_cpu_group(), "s1")
    tenant = await fleet.tenant(wants=some(cpu=8))
    await fleet.ready(a_cpu_group(), "s2")
    await fleet.platform.preempt("s1")
    await fleet.look()
    await fleet.becomes("s1", DELETED)
    again = await fleet.tenant(wants=some(cpu=8))

    assert (tenant.slices, again.slices) == ({"s1"}, {"s2"})


@pytest.mark.parametrize("who", ["the agents", "the platform"])
async def test_the_tasks_of_a_slice_that_is_taken_back_end_before_its_machines_are_deleted(
    fleet: FleetCluster, who: str
) -> None:
    """They have the provider's notice to save what they have, and nothing new begins there
    meanwhile.
    """
    await fleet.ready(a_cpu_group())
    tenant = await fleet.tenant(wants=some(cpu=1))
    tenant.lingers = True
    await taken_back(fleet, who)
    await fleet.becomes("s1", FAILED)
    await fleet.later(20 * SECOND)
    late = await fleet.tenant(wants=some(cpu=1))
    assert (fleet.platform.deleted, late.slices) == ([], set())

    await fleet.leaves(tenant)
    await fleet.becomes("s1", DELETED, within=20 * SECOND)

    assert fleet.platform.deleted == ["s1"]


@pytest.mark.long
async def test_tasks_that_do_not_end_keep_a_slice_that_is_taken_back_for_a_limited_time(
    fleet: FleetCluster,
) -> None:
    """Their machine may be gone already, and a machine that is not gone costs money. They learn when
    it is gone.
    """
    await fleet.ready(a_cpu_group())
    tenant = await fleet.tenant(wants=some(cpu=1))
    tenant.lingers = True
    await taken_back(fleet, "the agents")
    await fleet.becomes("s1", FAILED)
    await fleet.becomes("s1", DELETED, within=TIME_TO_LEAVE + 15 * SECOND)

    assert fleet.platform.deleted == ["s1"]
    assert tenant.evicted == "evicted: host s1 is leaving: preempted"
    assert tenant.dead == {"s1"}


async def taken_back(fleet: FleetCluster, who: str) -> None:
    """The provider takes the slice back; its agents say so, or the platform's list."""
    (host,) = (await fleet.shown()).hosts
    if who == "the agents":
        lost = HostLost(
            host_id=host.id, incarnation=host.incarnation, reason="preempted", left=True
        )
        await fleet.slice(host).signal("host_lost", lost)
    else:
        await fleet.platform.preempt("s1")
        await fleet.look()


async def test_a_refusal_after_a_lost_reply_leaves_nothing_behind(fleet: FleetCluster) -> None:
    """The machines were created, the answer was lost, and the next answer is a refusal: they must
    be deleted all the same.
    """
    fleet.platform.lose_next_reply(Verb.CREATE)
    fleet.platform.boot_delay = HOUR
    handle = await fleet.make(a_group())
    await fleet.until(lambda: fleet.platform.created)
    fleet.platform.fail_next(Verb.CREATE, StockOut("there is no more capacity"))

    await ended(fleet, SliceFault.STOCK_OUT)
    assert await fleet.shown_end(handle) == "COMPLETED"


# -- the record of use
# -------------------------------------------------------------------------------------------


async def test_a_slice_that_never_got_ready_has_a_record_with_its_reason(
    fleet: FleetCluster,
) -> None:
    """Its machines were paid, although nothing ran there."""
    fleet.platform.partial["s1"] = 3
    await fleet.make(a_group())
    shown = await ended(fleet, SliceFault.INIT_TIMEOUT)
    await fleet.until(lambda: fleet.uses.slices)

    use = fleet.uses.slices["s1"]
    assert (use.ready_at, use.reason) == (None, shown.reason)
    assert use.fault is SliceFault.INIT_TIMEOUT
    assert (use.group, use.zone, use.hosts) == ("tpu", "europe-west4-a", 4)
    assert use.gone_at - use.requested_at >= PACE.init_timeout


async def test_machines_are_deleted_while_no_record_can_be_stored(fleet: FleetCluster) -> None:
    """They cost money; a record waits."""
    await fleet.ready(a_group())
    fleet.uses.away = True
    await fleet.drain()
    await ended(fleet, None)
    await fleet.result(fleet.slice_of("s1"))
    assert not fleet.uses.stored
    fleet.uses.away = False
    await fleet.later(MINUTE)

    use = fleet.uses.slices["s1"]
    assert use.ready_at is not None
    assert use.reason == "not wanted"
