from tests.workflows.test_scaling_anything import *
from tests.fleet_harness import *
import tests.workflows.test_scaling_anything as m
old=Play.go_on
async def go_on(self):
    fleet=self.fleet
    import time
    t=time.monotonic()
    try:
        await old(self)
        print("tick", self.tick, time.monotonic()-t, len(fleet.fleet.looks))
    except TimeoutError:
        print("tick", self.tick, await fleet.now())
        for h in (fleet.autoscaler, fleet.scheduler, *(fleet.slice_of(x) for x in fleet.platform.created)):
            d=(await h.describe()).raw_description
            print(h.id, d.workflow_execution_info.status, d.pending_activities, d.pending_workflow_task)
            ev=[e async for e in h.fetch_history_events()]
            for e in ev[-14:]:
                print("   ", e.event_id, e.event_type, e.event_time.ToDatetime())
        for e in fleet.platform.audit[-30:]: print(e)
        raise
Play.go_on=go_on
oh=Play.happens
async def happens(self,e):
    print(self.tick, await self.fleet.now(), e); await oh(self,e)
Play.happens=happens
from iris.workflows import policies
async def test_q():
    raw="""tick=19, kind='gang', number=5, ticks=4
tick=0, kind='orphan', number=5, ticks=4
tick=1, kind='gang', number=3, ticks=3
tick=12, kind='gang', number=4, ticks=3
tick=18, kind='orphan', number=4, ticks=1
tick=0, kind='whole', number=5, ticks=2
tick=1, kind='slow', number=4, ticks=2
tick=9, kind='gang', number=1, ticks=5
tick=6, kind='lost', number=0, ticks=2
tick=1, kind='stock_out', number=0, ticks=3
tick=19, kind='core', number=4, ticks=2
tick=17, kind='vanish', number=5, ticks=1
tick=12, kind='whole', number=0, ticks=5
tick=14, kind='whole', number=2, ticks=5
tick=9, kind='outage', number=3, ticks=1
tick=17, kind='slow', number=3, ticks=1
tick=17, kind='gang', number=0, ticks=5
tick=8, kind='stock_out', number=5, ticks=2
tick=0, kind='preempt', number=1, ticks=3
tick=10, kind='core', number=4, ticks=2
tick=0, kind='gang', number=5, ticks=1
tick=5, kind='whole', number=1, ticks=3
tick=4, kind='whole', number=4, ticks=4
tick=1, kind='break_', number=1, ticks=2
tick=0, kind='orphan', number=3, ticks=1
tick=19, kind='break_', number=3, ticks=1
tick=1, kind='lost', number=2, ticks=4
tick=19, kind='orphan', number=2, ticks=2
tick=14, kind='orphan', number=4, ticks=2
tick=17, kind='core', number=3, ticks=5"""
    events=[eval(f"Event({l})") for l in raw.splitlines()]
    await test_after_hours_of_demand_and_faults_all_are_served_and_nothing_is_left.hypothesis.inner_test(events)
