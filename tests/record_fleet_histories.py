"""The scenes of created slices and of the autoscaler that `tests/record_histories.py` records."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowHandle

from iris.model.slice.status import SliceState
from iris.platforms.base import StockOut
from tests.builders import some
from tests.fakes.platform.cloud import Verb
from tests.fleet_harness import EAGER, FleetCluster
from tests.scaling_world import a_cpu_group, a_group

SECOND = timedelta(seconds=1)


async def made_slices(fleet: FleetCluster, keep: Callable[..., Any]) -> None:
    """Slices that were asked for: one that lived and was given back, and what else may become of
    one.
    """

    async def ready(slice_id: str) -> None:
        await fleet.make(a_cpu_group(), slice_id)
        await fleet.until(lambda: fleet.is_in(slice_id, SliceState.READY))

    async def kept(name: str, slice_id: str) -> None:
        await fleet.until(lambda: fleet.is_in(slice_id, SliceState.DELETED))
        await keep(name, fleet.slice_of(slice_id))

    fleet.platform.delete_delay = SECOND / 2
    await ready("idle")
    await fleet.drain("idle", "idle for 5m", idle_since=await fleet.now())
    await kept("slice-made-and-given-back", "idle")

    fleet.platform.fail_next(Verb.CREATE, StockOut("there is no more capacity"))
    await fleet.make(a_cpu_group(), "refused")
    await kept("slice-refused", "refused")

    await ready("preempted")
    await fleet.platform.preempt("preempted")
    await fleet.look("preempted")
    await kept("slice-preempted", "preempted")

    await ready("taken-back")
    tenant = await fleet.tenant(wants=some(cpu=8))
    tenant.lingers = True
    await fleet.platform.preempt("taken-back")
    await fleet.look("taken-back")
    await fleet.until(lambda: tenant.evicted)
    await fleet.leaves(tenant)
    await kept("slice-taken-back-under-a-gang", "taken-back")

    await ready("drained")
    await fleet.tenant(wants=some(cpu=8))
    await fleet.drain("drained", deadline=await fleet.now() + SECOND)
    await kept("slice-drained-at-its-deadline", "drained")

    await ready("cancelled")
    handle = fleet.slice_of("cancelled")
    await handle.cancel()
    await fleet.until(lambda: _ended_as(fleet, handle, "CANCELED"))
    await keep("slice-made-and-cancelled", handle)


async def _ended_as(fleet: FleetCluster, handle: WorkflowHandle[Any, Any], end: str) -> bool:
    return await fleet.shown_end(handle) == end


async def scaling(fleet: FleetCluster, keep: Callable[..., Any]) -> None:
    """An autoscaler that creates slices for waiting gangs, adopts machines, replaces a preempted
    slice, and deletes slices.
    """
    pace = EAGER.model_copy(update={"scale_down_delay": 2 * SECOND})
    groups = a_cpu_group(max_slices=3, pace=pace), a_group(min_slices=1, pace=pace)
    await fleet.scale(*groups, observe_interval=SECOND / 2, query_slices=True)
    tenants = [await fleet.tenant(wants=some(cpu=8)) for _ in range(2)]
    await fleet.until(lambda: all(tenant.placement for tenant in tenants))
    await fleet.until(lambda: fleet.has(3))
    (preempted,), (orphan,) = (tenant.slices for tenant in tenants)
    await fleet.platform.preempt(preempted)
    await fleet.slice_of(orphan).terminate("by mistake")
    await fleet.until(lambda: preempted not in fleet.platform.alive)
    await fleet.until(lambda: _adopted(fleet, orphan))
    await fleet.leaves(tenants[1])
    await fleet.until(lambda: len(fleet.platform.alive) == 1)
    await fleet.configure(*groups[:1])
    await fleet.until(lambda: not fleet.platform.alive)
    await keep("autoscaler-with-groups", fleet.autoscaler)


async def _adopted(fleet: FleetCluster, slice_id: str) -> bool:
    return any(
        action.what == "adopted" and action.slice_id == slice_id
        for action in (await fleet.scaling()).actions
    )
