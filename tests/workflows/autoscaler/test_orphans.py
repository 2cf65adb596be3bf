"""Machines without a workflow, workflows without an autoscaler, planners without a memory: nothing
leaks, nothing doubles.
"""

from datetime import timedelta

import pytest

from iris.messages.scheduler import SchedulerStart
from iris.model.slice.provisioning import SliceRequest
from iris.model.slice.scale_groups import ScaleGroup
from iris.model.slice.status import SliceState
from iris.model.states import JobState
from tests.builders import some
from tests.fleet_harness import EAGER, HOUR, MINUTE, SECOND, FleetCluster
from tests.harness import Held
from tests.scaling_world import A, a_cpu_group, a_group

pytestmark = pytest.mark.long

S = SliceState
WHOLE = some(cpu=8)


def machines(
    group: ScaleGroup, slice_id: str = "found-1", cluster: str = "trial", token: str = "its token"
) -> SliceRequest:
    """A request whose machines exist without a workflow."""
    return SliceRequest(slice_id=slice_id, cluster=cluster, zone=A, token=token, group=group)


# -- machines without a workflow
# -----------------------------------------------------------------------------------------------


async def test_machines_whose_workflow_was_terminated_are_adopted_and_work_goes_on(
    fleet: FleetCluster,
) -> None:
    """A termination in the Web UI must not leak machines, and must not end a long training run."""
    await fleet.scale(a_group(pace=EAGER))
    tenant = await fleet.tenant_gang()
    await fleet.comes_true(lambda: tenant.placement)
    (slice_id,) = tenant.slices
    await fleet.comes_true(lambda: fleet.has(1))
    await fleet.terminate(fleet.slice_of(slice_id))
    await fleet.comes_true(lambda: _adopted(fleet, slice_id))
    shown = await fleet.becomes(slice_id, S.READY)
    await fleet.later(HOUR)

    assert tenant.evicted is None
    assert (await fleet.snapshot()).running == 1
    assert await fleet.offers(*shown.hosts)
    assert fleet.platform.created == [slice_id]
    await fleet.leaves(tenant)
    await fleet.comes_true(lambda: not fleet.platform.alive)


async def _adopted(fleet: FleetCluster, slice_id: str) -> bool:
    actions = (await fleet.scaling()).actions
    return any((action.what, action.slice_id) == ("adopted", slice_id) for action in actions)


async def test_a_job_notices_nothing_of_its_slice_s_new_workflow(fleet: FleetCluster) -> None:
    """The agents keep their incarnations, and the program runs to its end once."""
    program = Held()
    fleet.programs["cpu"] = program
    await fleet.scale(a_cpu_group(pace=EAGER), observe_interval=SECOND / 2)
    job = await fleet.submit(resources=WHOLE)
    await fleet.comes_true(lambda: fleet.hosts)
    (slice_id,) = fleet.platform.created
    await fleet.until(lambda: fleet.hosts[slice_id].taken)
    await fleet.until(lambda: fleet.has(1))
    await fleet.terminate(fleet.slice_of(slice_id))
    await fleet.until(lambda: _adopted(fleet, slice_id))
    await fleet.until(lambda: fleet.has(1))
    program.let_go()
    end = await fleet.end(job)

    assert (end.state, end.tasks[0].attempt) == (JobState.SUCCEEDED, 1)
    assert len(fleet.hosts[slice_id].taken) == 1


async def test_a_slice_has_a_record_of_use_although_its_workflow_was_terminated(
    fleet: FleetCluster,
) -> None:
    """Its machines vanish before anybody can look after them, so no workflow reports its life."""
    await fleet.scale(a_cpu_group(pace=EAGER, min_slices=1))
    await fleet.comes_true(lambda: fleet.has(1))
    (slice_id,) = fleet.platform.created
    await fleet.terminate(fleet.slice_of(slice_id))
    await fleet.platform.vanish(slice_id)
    # The autoscaler compares its slices with the list of workflows, an hour later at most.
    await fleet.comes_true(lambda: slice_id in fleet.uses.slices, within=2 * HOUR)

    use = fleet.uses.slices[slice_id]
    assert (use.group, use.hosts, use.cpu_millis, use.machine) == ("cpu", 1, 8_000, "n2-standard-8")
    assert use.ready_at is not None


async def test_machines_whose_workflow_was_terminated_while_they_were_deleted_are_deleted(
    fleet: FleetCluster,
) -> None:
    """The platform lists them as being deleted, so no workflow is needed for them."""
    fleet.platform.delete_delay = 10 * MINUTE
    await fleet.scale(a_cpu_group(pace=EAGER))
    tenant = await fleet.tenant(wants=WHOLE)
    await fleet.comes_true(lambda: tenant.placement)
    await fleet.leaves(tenant)
    await fleet.comes_true(lambda: fleet.has(1, S.DELETING))
    (slice_id,) = fleet.platform.alive
    await fleet.terminate(fleet.slice_of(slice_id))
    await fleet.comes_true(lambda: not fleet.platform.alive)
    await fleet.comes_true(lambda: fleet.has(0, *S))

    assert fleet.platform.created == [slice_id]


async def test_machines_of_a_group_that_nobody_knows_are_deleted(fleet: FleetCluster) -> None:
    """Left over from a configuration of last month: they have our label, and cost. Not before their
    agents have had the time to say that they are there: something may run on them.
    """
    await fleet.scale(a_group())
    await fleet.platform.plant(machines(a_cpu_group("former")))
    await fleet.later(20 * SECOND)
    assert fleet.platform.alive == ["found-1"]  # one look is no verdict

    await fleet.comes_true(lambda: not fleet.platform.alive, within=20 * MINUTE)


async def test_machines_without_a_token_are_deleted(fleet: FleetCluster) -> None:
    """Whether an agent that reports is theirs could not be told."""
    await fleet.scale(a_group())
    await fleet.platform.plant(machines(a_group(), token=""))

    await fleet.comes_true(lambda: not fleet.platform.alive, within=5 * MINUTE)


async def test_machines_of_a_known_group_are_taken_in(fleet: FleetCluster) -> None:
    """The machines exist, belong to this cluster, and a gang waits."""
    await fleet.platform.plant(machines(a_group()))
    await fleet.scale(a_group(min_slices=1))
    await fleet.comes_true(lambda: _adopted(fleet, "found-1"))
    await fleet.becomes("found-1", S.READY)
    tenant = await fleet.tenant_gang()

    await fleet.comes_true(lambda: tenant.placement)


async def test_machines_that_are_marked_manual_or_of_another_cluster_are_never_touched(
    fleet: FleetCluster,
) -> None:
    """A colleague's machine that was deleted by a robot is the end of trust in it."""
    await fleet.scale(a_group(), observe_interval=5 * MINUTE)
    await fleet.platform.plant(machines(a_cpu_group("former"), "mine"), manual=True)
    await fleet.platform.plant(machines(a_cpu_group("former"), "theirs", cluster="another"))
    await fleet.later(timedelta(hours=3))

    assert fleet.platform.alive == ["mine", "theirs"]
    assert (await fleet.scaling()).unowned == ()


async def test_machines_that_are_listed_late_belong_to_their_slice(fleet: FleetCluster) -> None:
    """A list that lags behind the create must not make an orphan of what it shows at last, nor a
    loss before.
    """
    fleet.platform.list_lag = 3 * MINUTE
    await fleet.scale(a_group())
    tenant = await fleet.tenant_gang()
    await fleet.comes_true(lambda: tenant.placement)
    await fleet.later(4 * MINUTE)

    assert not any(action.what == "adopted" for action in (await fleet.scaling()).actions)
    assert (await fleet.snapshot()).running == 1


# -- planners that begin anew
# --------------------------------------------------------------------------------------------------


async def test_an_autoscaler_that_was_terminated_is_followed_by_one_that_knows_all_slices(
    fleet: FleetCluster,
) -> None:
    """None is leaked, none is bought twice; the idle delay of those that are idle goes on."""
    group = a_cpu_group(min_slices=1, pace=EAGER)
    await fleet.scale(group)
    await fleet.comes_true(lambda: fleet.has(1))
    tenants = [await fleet.tenant(wants=WHOLE) for _ in range(3)]
    await fleet.comes_true(lambda: all(tenant.placement for tenant in tenants))
    await fleet.comes_true(lambda: fleet.has(3))
    before = sorted(fleet.platform.alive)
    await fleet.terminate(fleet.autoscaler)
    await fleet.later(MINUTE)
    await fleet.scale(group, query_slices=True)
    await fleet.comes_true(lambda: fleet.has(3), within=MINUTE)
    await fleet.later(20 * MINUTE)
    assert sorted(fleet.platform.alive) == before
    for tenant in tenants:
        await fleet.leaves(tenant)
    await fleet.comes_true(lambda: len(fleet.platform.alive) == 1)

    assert len(fleet.platform.created) == 3


async def test_slices_go_on_while_there_is_no_autoscaler(fleet: FleetCluster) -> None:
    """One that was asked for before boots, and takes work, and is known to the next autoscaler as
    what it has become.
    """
    fleet.platform.boot_delay = 3 * MINUTE
    group = a_cpu_group(pace=EAGER)
    await fleet.scale(group)
    tenant = await fleet.tenant(wants=WHOLE)
    await fleet.comes_true(lambda: fleet.has(1, S.PROVISIONING))
    await fleet.terminate(fleet.autoscaler)
    await fleet.later(3 * MINUTE + SECOND)
    await fleet.comes_true(lambda: tenant.placement, within=MINUTE)
    await fleet.scale(group, query_slices=True)
    await fleet.comes_true(lambda: fleet.has(1))

    assert len(fleet.platform.created) == 1


async def test_a_scheduler_that_was_terminated_is_followed_by_one_that_knows_all_hosts(
    fleet: FleetCluster,
) -> None:
    """The slices are as they were: none is taken for idle while the roll is called, none for
    lost.
    """
    group = a_cpu_group(min_slices=2, pace=EAGER)
    await fleet.scale(group)
    await fleet.comes_true(lambda: fleet.has(2))
    await fleet.terminate(fleet.scheduler)
    await fleet.start_scheduler(SchedulerStart(cluster=fleet.name, recover=True))
    await fleet.comes_true(lambda: _hosts(fleet, 2), within=MINUTE)
    await fleet.later(20 * MINUTE)

    assert await fleet.has(2)
    assert len(fleet.platform.created) == 2


async def _hosts(fleet: FleetCluster, count: int) -> bool:
    return (await fleet.snapshot()).total_hosts == count
