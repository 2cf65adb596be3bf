"""The records that a simulation makes are those of a real cluster. What is measured from them is
what the simulation was given.
"""

import pytest

from iris.model.rules import Rules
from iris.simulation.engine import Cluster, simulate
from iris.simulation.measured import measured_world
from iris.simulation.past import trace_of
from iris.simulation.synthetic import read_synthetic, synthetic_trace
from tests.simulation.worlds import BEGINS, gpu_group, on_slice, tpu_group, trace, world

WORKLOAD = """
jobs: 600
days: 7
set-up: 5s..1m
duration: 10m..4h
mix:
  - gpu: H100x8
    priority: batch|production
    failed: 0.2
  - gpu: H100x2|H100x4
    scheduling-timeout: 30d
"""
CLUSTER = Cluster((gpu_group(max_slices=20, preemptible=True),), Rules())


@pytest.mark.long
def test_a_workload_and_a_world_come_out_as_they_went_in() -> None:
    """Arrivals, shapes, runs and waits of 600 jobs, whose machines are preempted once in four
    hours.
    """
    given = world(boot=[100, 200, 400], preemptions_per_hour=0.25, failures_per_hour=0.05)
    history = simulate(CLUSTER, synthetic_trace(read_synthetic(WORKLOAD)), given, seed=1)
    past = trace_of(history.uses, history.begins, history.stopped)

    waits = {each.trace.id: each.waited(history.stopped) for each in history.gangs}
    assert sum(len(each.attempts) for each in history.gangs) > 1.2 * len(past.gangs)
    gangs = sorted((each.trace for each in history.gangs), key=lambda gang: (gang.at, gang.id))
    for gang, found in zip(gangs, past.gangs, strict=True):
        (run,), (ran,) = gang.runs, found.runs
        assert found.at == pytest.approx(gang.at)
        assert found.waited == pytest.approx(waits[gang.id])
        assert (ran.set_up, ran.seconds) == pytest.approx((run.set_up, run.seconds))
        other = {"id", "job", "user", "at", "waited", "runs"}
        assert found.model_dump(exclude=other) == gang.model_dump(exclude=other)
        assert ran.end is run.end

    found_world = measured_world(past).of("h100", "europe-west4-b")
    assert found_world.preemptions_per_hour == pytest.approx(0.25, rel=0.15)
    assert found_world.failures_per_hour == pytest.approx(0.05, rel=0.4)
    assert [found_world.boot[at] for at in (0, 5, 10)] == pytest.approx([100, 200, 400], rel=0.1)


def test_the_past_of_a_simulation_is_simulated_with_the_same_waits() -> None:
    """Nothing of a gang that decides when it is placed is lost on the way."""
    gangs = [on_slice(number, 600.0 * number, 5000.0) for number in range(20)]
    cluster = Cluster((tpu_group(max_slices=2),), Rules())
    first = simulate(cluster, trace(gangs), world(boot=[100, 300]))
    past = trace_of(first.uses, first.begins, first.stopped, names=True)
    again = simulate(cluster, past, world(boot=[100, 300]))
    waits = [each.waited(first.stopped) for each in first.gangs]
    assert max(waits) > 3600
    assert [each.waited(again.stopped) for each in again.gangs] == pytest.approx(waits, abs=0.01)
    assert first.begins == BEGINS
