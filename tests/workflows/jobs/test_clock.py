"""No decision depends on the clock of a workflow that wakes: a replay may give it another time.

When a query is the first to wake a workflow on a new worker, what happened meanwhile is delivered
with the time before it, and in a replay with the time after it. In an update the time is the same.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from iris.client.connect.plugin import IrisPlugin
from iris.model.job.spec import Band
from iris.model.slice.status import SliceState
from iris.model.states import JobState
from tests.builders import some
from tests.fleet_harness import MINUTE, FleetCluster
from tests.harness import WORKFLOWS, Cluster, Held, by_job, in_turn, succeeds
from tests.scaling_world import a_cpu_group


def a_clock(wrong_by: timedelta) -> Callable[[], datetime]:
    """The clock of workflows, wrong except in updates."""
    right = workflow.now
    return lambda: right() if workflow.current_update_info() is not None else right() + wrong_by


async def test_decisions_after_a_wake_are_the_same_whatever_the_clock_says(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A victim is evicted when its time is up, and a gang that waited too long gives up."""
    victim, whole = Held(), some(cpu=1)
    host = await cluster.join(offers=whole, program=by_job({"batch": in_turn(victim, succeeds)}))
    await cluster.rules(min_run_time=timedelta(seconds=4))  # after the other gave up
    batch = await cluster.submit("batch", resources=whole, band=Band.BATCH)
    await cluster.until(lambda: host.taken)
    impatient = await cluster.submit(
        "impatient", resources=whole, band=Band.BATCH, scheduling_timeout=timedelta(seconds=1)
    )
    production = await cluster.submit("production", resources=whole, band=Band.PRODUCTION)
    assert (await cluster.end(impatient)).state is JobState.UNSCHEDULABLE
    for job in (production, batch):
        assert (await cluster.end(job)).state is JobState.SUCCEEDED
    workflows = [cluster.scheduler, *(cluster.job(job) for job in (batch, impatient, production))]
    histories = [await each.fetch_history() for each in workflows]

    await replay(histories, monkeypatch)


async def test_a_slice_that_is_drained_takes_the_time_from_the_schedulers_answer(
    fleet: FleetCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the evicted tasks have had their time decides whether the slice is deleted now or
    asks again.
    """
    await fleet.ready(a_cpu_group())
    await fleet.tenant(wants=some(cpu=1))
    await fleet.drain(deadline=await fleet.now() + MINUTE)
    await fleet.later(5 * MINUTE)
    await fleet.becomes("s1", SliceState.DELETED)

    await replay([await fleet.slice_of("s1").fetch_history()], monkeypatch)


async def replay(histories: list[WorkflowHistory], monkeypatch: pytest.MonkeyPatch) -> None:
    """Replays the histories with clocks that are wrong.

    Raises:
        WorkflowNondeterminismError: a decision differs.
    """
    for wrong_by in (-10 * MINUTE, 10 * MINUTE):
        with monkeypatch.context() as changed:
            changed.setattr(workflow, "now", a_clock(wrong_by))
            for history in histories:
                await Replayer(workflows=list(WORKFLOWS), plugins=[IrisPlugin()]).replay_workflow(
                    history
                )
