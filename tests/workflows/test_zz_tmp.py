from tests.workflows.test_scaling_anything import *
from tests.fleet_harness import *
import json
async def test_q():
    async with time_skipping_cluster(FleetCluster, TenantCouriers) as fleet:
        fleet.hosts_work = False
        await fleet.scale(*GROUPS, observe_interval=MINUTE)
        play = Play(fleet)
        t = await fleet.tenant(wants=some(cpu=1))
        for i in range(13): await fleet.later(TICK)
        await fleet.leaves(t)
        print(fleet.platform.alive)
        for i in range(3): await fleet.later(TICK)
        print(fleet.platform.alive, await fleet.scaling())
        await fleet.terminate(fleet.autoscaler)
        await fleet.scale(*GROUPS, gather=True, observe_interval=MINUTE)
        try:
            await fleet.later(TICK)
        except TimeoutError:
            for h in (fleet.autoscaler, fleet.scheduler, *(fleet.slice_of(x) for x in fleet.platform.created)):
                d=(await h.describe()).raw_description
                print(h.id, d.workflow_execution_info.status, d.pending_activities, d.pending_workflow_task, d.workflow_execution_info.start_time)
                async for e in h.fetch_history_events():
                    print("   ", e.event_id, e.event_type, e.event_time.ToDatetime())
            raise
