"""A real cluster under load, and its simulation from the workload that it exports."""

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from iris.config import load_config
from iris.simulation.engine import cluster_of, simulate
from iris.simulation.measured import measured_world
from iris.simulation.trace import from_lines
from iris.usage.records import SliceUse
from tests.e2e.cluster import Cluster, a_cluster, a_home, eventually

pytestmark = pytest.mark.long

CONFIG = """
name: real
platform: {local: {}}
defaults: {autoscaler: {scale_up_delay: 1s, scale_down_delay: 1h}}
scale_groups:
  cpus: {type: local_vm, max_slices: 2, resources: {cpu: 4, memory: 16g}}
  tpus: {type: local_vm, max_slices: 1, accelerator_variant: v5litepod-16}
"""
JOBS = 300
#: Two placements of the real cluster within this time have no order: messages take as long.
AT_ONCE = 1.0
#: The longest delay between the demand and the request of slices, in seconds.
LATE = 5.0


def lines() -> list[str]:
    """The jobs, one line each: tasks of several durations, gangs, and all bands.

    Two things would be decided by how long a message is on its way, which no workload tells: a job
    that finds free hosts when it arrives, so the second half waits behind the first; and which of
    two sizes gets a place that becomes free in parts, so all tasks have one size. In reality, the
    messages between two tasks on a core take time that the simulation does not count, so the tasks
    take seconds.
    """
    dice = random.Random(32)
    made = []
    for number in range(JOBS):
        band = dice.choice(("production", "interactive")) if number < JOBS // 2 else "batch"
        seconds = dice.choice((1, 2, 4, 8))
        kind = "--tpu v5litepod-16" if number % 15 == 0 else "--cpu 1"
        made.append(f"-n job-{number} --priority {band} {kind} -- sleep {seconds}")
    return made


def run(cluster: Cluster) -> datetime:
    """Runs all jobs: half of them at once, and the others when a third of those has ended. Returns
    a time before the first one.
    """
    begins, jobs = datetime.now(UTC), lines()
    listed = ("jobs", "--state", "succeeded", "--limit", "1000", "--json")
    for some in (jobs[: JOBS // 2], jobs[JOBS // 2 :]):
        file = cluster.home / "jobs"
        file.write_text("\n".join(some))
        cluster.iris("submit", "--batch", str(file), "-d", within=120)
        eventually(lambda: len(cluster.iris(*listed).json) > JOBS // 6, within=300, every=2)
    eventually(lambda: len(cluster.iris(*listed).json) == JOBS, within=600, every=2)
    return begins


def test_a_simulation_of_a_real_run_places_in_the_same_order_at_the_same_times() -> None:
    """An answer about a cluster that does not exist is worth as much as one about this one."""
    with a_home() as home:
        file = home / "cluster.yaml"
        file.write_text(CONFIG)
        with a_cluster("--config", str(file), "--ephemeral", name="real") as cluster:
            begins = run(cluster)
            since = begins.isoformat()
            exported = cluster.iris("usage", "--since", since, "--trace", "-").out
        config = load_config(file)

    trace = from_lines(exported.splitlines(), "-")
    history = simulate(cluster_of(config), trace, measured_world(trace))

    assert len(trace.gangs) == JOBS
    made = [use for use in history.uses if isinstance(use, SliceUse) and use.ready_at]
    assert sorted(use.group for use in made) == sorted(each.group for each in trace.slices)
    # The slices of a busy machine are ready a moment late. All that follows is late by as much.
    late = {
        group: min(each.ready or 0.0 for each in trace.slices if each.group == group)
        - min((use.ready_at - begins).total_seconds() for use in made if use.group == group)
        for group in ("cpus", "tpus")
    }
    assert max(map(abs, late.values())) < LATE
    pairs = [
        (
            gang.at + gang.waited,
            simulated.attempts[0].at + timedelta(seconds=late[simulated.attempts[0].group]),
            gang.waited,
            simulated.waited(begins) + late[simulated.attempts[0].group],
        )
        for gang, simulated in zip(trace.gangs, history.gangs, strict=True)
        if gang.waited is not None
    ]
    wrong = [
        (real, simulated)
        for _, _, real, simulated in pairs
        if abs(real - simulated) > max(1, real / 20)
    ]
    assert wrong == []
    in_order = sorted(pairs)
    swapped = [
        (before, after)
        for before, after in pairwise(in_order)
        if after[0] - before[0] > AT_ONCE and after[1] < before[1]
    ]
    assert swapped == []
