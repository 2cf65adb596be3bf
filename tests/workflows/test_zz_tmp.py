from tests.workflows.test_scaling_anything import *
import tests.workflows.test_scaling_anything as m
inner = test_after_hours_of_demand_and_faults_all_are_served_and_nothing_is_left.hypothesis.inner_test
del test_after_hours_of_demand_and_faults_all_are_served_and_nothing_is_left
@settings(max_examples=40, deadline=None, derandomize=False, database=None, phases=[Phase.generate])
@given(st.lists(EVENTS, min_size=15, max_size=45))
async def test_q(events):
    await inner(events)
