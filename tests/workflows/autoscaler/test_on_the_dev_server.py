"""What the time-skipping server cannot show of slices and the autoscaler: histories that continue
as new, and real lists.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
from temporalio.client import WorkflowFailureError, WorkflowHandle

from iris.messages.autoscaler import CloseDown
from iris.model.slice import lifecycle
from iris.model.slice.status import SliceState
from iris.workflows import policies
from tests.builders import some
from tests.fleet_harness import EAGER, HOUR, SECOND, FleetCluster
from tests.fleet_played import TenantNotifier
from tests.harness import dev_server_cluster
from tests.scaling_world import A, a_cpu_group

pytestmark = pytest.mark.long

S = SliceState
#: Long for a history here; 4,096 events by default.
LONG = 60
WHOLE = some(cpu=8)
QUICK = EAGER.model_copy(update={"scale_down_delay": 2 * SECOND})


@pytest.fixture
async def fleet(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FleetCluster]:
    """On a server that finds a history long after sixty events, with shorter times: here they pass
    as they do.
    """
    for name in ("DELETE_CHECK", "MAX_DELETE_CHECK", "EVALUATE_EVERY"):
        monkeypatch.setattr(policies, name, SECOND / 10)
    for name in ("DRAIN_CHECK", "MAX_DRAIN_CHECK"):
        monkeypatch.setattr(lifecycle, name, SECOND / 10)
    settings = f"limit.historyCount.suggestContinueAsNew={LONG}"
    async with dev_server_cluster(settings, kind=FleetCluster, notifier=TenantNotifier) as fleet:
        yield fleet
        await fleet.audit()


async def grow_old(
    fleet: FleetCluster, handle: WorkflowHandle[None, None], signal: str = "report"
) -> None:
    """The workflow gets signals until its history is another one."""
    before = (await handle.describe()).run_id

    async def another() -> bool:
        await handle.signal(signal)
        return (await handle.describe()).run_id != before

    await fleet.until(another)


async def ready(fleet: FleetCluster) -> WorkflowHandle[None, None]:
    handle = fleet.slice_of("s1")
    await fleet.make(a_cpu_group())
    await fleet.until(lambda: fleet.is_in("s1", S.READY))
    return handle


async def test_a_slice_that_continues_as_new_while_it_is_ready_is_as_it_was(
    fleet: FleetCluster,
) -> None:
    """Its hosts, its age, its steps; and what ends it ends it."""
    handle = await ready(fleet)
    before = await fleet.shown()
    await grow_old(fleet, handle)
    after = await fleet.shown()
    await fleet.lose(after.hosts[0])
    await fleet.until(lambda: fleet.is_in("s1", S.DELETED))

    assert after == before
    assert fleet.platform.alive == []
    assert (await fleet.snapshot()).total_hosts == 0


async def test_what_is_said_to_a_slice_while_it_continues_as_new_is_heard(
    fleet: FleetCluster,
) -> None:
    """An agent that restarts says so once."""
    handle = await ready(fleet)
    for life in range(20):
        fleet.incarnations["s1"] = f"life {life}"
        await asyncio.gather(*(handle.signal("report") for _ in range(4)), fleet.wake())

    await fleet.until(lambda: _lives(fleet, "life 19"))
    assert (await fleet.shown()).state is S.READY


async def _lives(fleet: FleetCluster, life: str) -> bool:
    return [view.host.incarnation for view in (await fleet.snapshot()).hosts] == [life]


async def test_a_slice_that_continues_as_new_while_it_drains_goes_on_draining(
    fleet: FleetCluster,
) -> None:
    """It takes nothing new, and keeps its deadline and its reason."""
    handle = await ready(fleet)
    tenant = await fleet.tenant(wants=WHOLE)
    await fleet.drain(reason="max_slices is 0", deadline=await fleet.now() + 20 * SECOND)
    await fleet.until(lambda: fleet.is_in("s1", S.DRAINING))
    await grow_old(fleet, handle)
    shown = await fleet.shown()
    assert shown.state is S.DRAINING
    assert shown.reason.startswith("max_slices is 0")
    assert tenant.evicted is None
    await fleet.until(lambda: fleet.is_in("s1", S.DELETED))

    assert tenant.evicted is not None
    assert fleet.platform.alive == []


async def test_a_slice_that_continues_as_new_while_it_is_deleted_deletes_on(
    fleet: FleetCluster,
) -> None:
    """Some take hours to go; the fault that began it is still known at the end."""
    fleet.platform.delete_delay = 10 * SECOND
    handle = await ready(fleet)
    first = (await handle.describe()).run_id
    await fleet.lose((await fleet.shown()).hosts[0], "the agent died")
    await fleet.until(lambda: fleet.is_in("s1", S.DELETED))
    shown = await fleet.shown()

    assert (await handle.describe()).run_id != first, (
        "it did not continue as new: nothing was tested"
    )
    assert (shown.reason, shown.facts and shown.facts.fault) == ("the agent died", "HOST_LOST")
    assert fleet.platform.alive == []


async def test_a_cancelled_slice_does_not_continue_as_new_and_so_ends_as_cancelled(
    fleet: FleetCluster,
) -> None:
    """The Web UI's own colours mean what they say, however long the platform takes; another run
    would know of no cancellation.
    """
    fleet.platform.delete_delay = 10 * SECOND
    handle = await ready(fleet)
    first = (await handle.describe()).run_id
    await handle.cancel()
    await fleet.until(lambda: fleet.is_in("s1", S.DELETED))
    with pytest.raises(WorkflowFailureError):
        await fleet.result(handle)

    assert (await handle.describe()).run_id == first
    assert fleet.platform.alive == []
    assert await fleet.shown_end(handle) == "CANCELED"


async def test_an_autoscaler_that_continues_as_new_all_the_time_loses_no_slice_and_buys_none_twice(
    fleet: FleetCluster,
) -> None:
    """Some fifty slices come and go with their gangs, over a dozen runs of it."""
    await fleet.scale(
        a_cpu_group(max_slices=6, pace=QUICK),
        observe_interval=SECOND / 5,
        evaluation_interval=SECOND / 10,
    )
    first = (await fleet.autoscaler.describe()).run_id
    for _ in range(3):
        tenants = [await fleet.tenant(wants=WHOLE) for _ in range(6)]
        await fleet.until(lambda tenants=tenants: all(tenant.placement for tenant in tenants))
        for tenant in tenants:
            await fleet.leaves(tenant)
        await fleet.until(lambda: not fleet.platform.alive)

    assert (await fleet.autoscaler.describe()).run_id != first, (
        "it did not continue as new: nothing was tested"
    )
    assert len(fleet.platform.created) == 18
    assert fleet.platform.most_alive["cpu"] == 6


async def test_an_autoscaler_that_continues_as_new_while_it_closes_down_keeps_the_deadline(
    fleet: FleetCluster,
) -> None:
    """Tasks that have an hour to write a checkpoint keep that hour."""
    await fleet.scale(a_cpu_group(pace=QUICK), observe_interval=SECOND / 5)
    tenant = await fleet.tenant(wants=WHOLE)
    await fleet.until(lambda: tenant.placement)
    deadline = await fleet.now() + HOUR
    await fleet.autoscaler.signal(
        "close_down", CloseDown(reason="the cluster is stopped", deadline=deadline)
    )
    await fleet.until(lambda: fleet.has(1, S.DRAINING))
    for _ in range(2):
        await grow_old(fleet, fleet.autoscaler, "demand")
    await asyncio.sleep(1)

    assert tenant.evicted is None
    await fleet.leaves(tenant)
    await fleet.until(lambda: not fleet.platform.alive)


async def test_a_slice_whose_workflow_was_terminated_before_it_had_machines_is_forgotten(
    fleet: FleetCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are no machines to adopt and no agents that report. A gang waits, and the group may
    have one slice, so the autoscaler has to create another.
    """
    monkeypatch.setattr(policies, "CENSUS_EVERY", 3)
    monkeypatch.setattr(policies, "LIST_LAG", SECOND)
    fleet.platform.unreachable[A] = "backend error"
    await fleet.scale(a_cpu_group(max_slices=1, pace=QUICK), observe_interval=SECOND / 2)
    tenant = await fleet.tenant(wants=WHOLE)
    await fleet.until(lambda: fleet.has(1, S.REQUESTED))
    (slice_id,) = await fleet.in_state(S.REQUESTED)
    await fleet.slice_of(slice_id).terminate("by mistake")
    fleet.platform.unreachable.clear()
    await fleet.until(lambda: tenant.placement)

    assert slice_id not in tenant.slices


async def test_a_terminated_autoscaler_s_successor_finds_all_slices_in_temporal_s_own_list(
    fleet: FleetCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that end after their parent has gone included: nothing is left over, nothing is bought
    twice.
    """
    monkeypatch.setattr(fleet.lister, "list_workflows", fleet.client.list_workflows)
    group = a_cpu_group(max_slices=4, pace=QUICK)
    await fleet.scale(group, observe_interval=SECOND)
    tenants = [await fleet.tenant(wants=WHOLE) for _ in range(3)]
    await fleet.until(lambda: all(tenant.placement for tenant in tenants))
    await fleet.autoscaler.terminate("by mistake")
    await fleet.leaves(tenants[0])
    await asyncio.sleep(1)  # lists lag behind by moments
    await fleet.scale(group, query_slices=True, observe_interval=SECOND)
    await fleet.until(lambda: len(fleet.platform.alive) == 2)
    assert {slice_id for tenant in tenants[1:] for slice_id in tenant.slices} == set(
        fleet.platform.alive
    )
    for tenant in tenants[1:]:
        await fleet.leaves(tenant)
    await fleet.until(lambda: not fleet.platform.alive)

    assert len(fleet.platform.created) == 3
