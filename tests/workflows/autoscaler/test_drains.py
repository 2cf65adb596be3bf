"""Slices that are deleted: when they are idle, when their tasks have ended, at a deadline, or
because of a cancellation.
"""

from datetime import timedelta

import pytest
from temporalio.client import WorkflowFailureError

from iris.model.slice import lifecycle
from iris.model.slice.status import SliceState
from iris.model.states import JobState
from tests.builders import some
from tests.fakes.platform.cloud import Verb
from tests.fleet_harness import HOUR, MINUTE, SECOND, FleetCluster
from tests.harness import Held, in_turn, succeeds
from tests.scaling_world import a_cpu_group, a_group

pytestmark = pytest.mark.long

S = SliceState
WHOLE = some(cpu=8)


async def gone(fleet: FleetCluster, within: timedelta = HOUR) -> None:
    """Nothing is left of the slice."""
    await fleet.becomes("s1", S.DELETED, within)

    assert fleet.platform.deleted == ["s1"]
    assert (await fleet.snapshot()).total_hosts == 0


# -- when it is idle
# --------------------------------------------------------------------------------------------------


async def test_an_idle_slice_is_given_back_with_the_reason_of_whoever_wanted_that(
    fleet: FleetCluster,
) -> None:
    """Its hosts are out of the ledger before its machines are deleted."""
    await fleet.ready(a_group())
    await fleet.later(5 * MINUTE)
    await fleet.drain(reason="idle for 5m", idle_since=await fleet.now() - 4 * MINUTE)
    await gone(fleet)

    assert (await fleet.shown()).reason == "idle for 5m"


async def test_a_busy_slice_is_not_given_back_for_being_idle(fleet: FleetCluster) -> None:
    """The autoscaler's picture was seconds old; the scheduler has the last word, and the reason can
    be read.
    """
    await fleet.ready(a_cpu_group())
    tenant = await fleet.tenant(wants=some(cpu=1))
    await fleet.drain(reason="idle for 5m", idle_since=await fleet.now())
    await fleet.comes_true(lambda: _noted(fleet, "not deleted (idle for 5m): host s1 runs task of"))
    other = await fleet.tenant(wants=some(cpu=1))

    assert (await fleet.shown()).state is S.READY
    assert tenant.slices == other.slices == {"s1"}


async def test_a_slice_that_was_busy_a_moment_ago_is_not_given_back_for_being_idle_for_long(
    fleet: FleetCluster,
) -> None:
    """Its next job is on its way; to give it back between two steps of a pipeline would buy it
    twice.
    """
    await fleet.ready(a_cpu_group())
    await fleet.later(5 * MINUTE)
    await fleet.leaves(await fleet.tenant(wants=some(cpu=1)))
    await fleet.drain(reason="idle for 5m", idle_since=await fleet.now() - 5 * MINUTE)
    await fleet.comes_true(lambda: _noted(fleet, "it was not idle until"))

    assert (await fleet.shown()).state is S.READY


async def _noted(fleet: FleetCluster, words: str) -> bool:
    return any(words in step.reason for step in (await fleet.shown()).steps)


# -- when what runs there has ended
# --------------------------------------------------------------------------------------------


async def test_a_draining_slice_takes_nothing_new_and_goes_when_its_last_gang_has_ended(
    fleet: FleetCluster,
) -> None:
    """However long that takes: hours pass, and nothing is stopped."""
    await fleet.ready(a_cpu_group())
    tenants = [await fleet.tenant(wants=some(cpu=1)) for _ in range(2)]
    await fleet.drain(reason="max_slices is 0")
    await fleet.becomes("s1", S.DRAINING)
    late = await fleet.tenant(wants=some(cpu=1))
    await fleet.leaves(tenants[0])
    await fleet.later(3 * HOUR)
    shown = await fleet.shown()
    await fleet.leaves(tenants[1])
    await gone(fleet, within=lifecycle.MAX_DRAIN_CHECK + 15 * SECOND)

    assert shown.state is S.DRAINING
    assert shown.reason == f"max_slices is 0; host s1 runs {tenants[1].request.task}"
    assert late.placement is None
    assert not any(tenant.evicted for tenant in tenants)


async def test_an_idle_slice_that_is_drained_goes_at_once(fleet: FleetCluster) -> None:
    """There is nothing to wait for."""
    await fleet.ready(a_group())
    await fleet.drain()

    await gone(fleet, within=10 * SECOND)


async def test_at_the_deadline_of_a_drain_what_runs_there_is_stopped(fleet: FleetCluster) -> None:
    """The tasks run until the deadline and are evicted with a reason. Then it is deleted."""
    await fleet.ready(a_cpu_group())
    tenant = await fleet.tenant(wants=some(cpu=1))
    await fleet.drain(reason="the cluster is stopped", deadline=await fleet.now() + 10 * MINUTE)
    await fleet.later(10 * MINUTE - SECOND)
    assert tenant.evicted is None
    await gone(fleet, within=MINUTE)

    assert tenant.evicted is not None
    assert "the cluster is stopped" in tenant.evicted


async def test_the_earliest_deadline_of_several_drains_counts(fleet: FleetCluster) -> None:
    """A reload that has no hurry must not give time back to what the operator wants stopped in a
    minute.
    """
    await fleet.ready(a_cpu_group())
    tenant = await fleet.tenant(wants=some(cpu=1))
    await fleet.drain(deadline=await fleet.now() + HOUR)
    await fleet.drain(deadline=await fleet.now() + 5 * MINUTE)
    await fleet.drain(reason="max_slices is 0")
    await fleet.later(5 * MINUTE - SECOND)
    assert tenant.evicted is None

    await gone(fleet, within=MINUTE)


async def test_a_job_that_is_evicted_by_a_drain_starts_again_elsewhere(
    monkeypatch: pytest.MonkeyPatch, fleet: FleetCluster
) -> None:
    """It pays a preemption, not a failure, and its first program is dead before the second
    begins.
    """
    # The clock stands still while a program runs.
    monkeypatch.setattr(lifecycle, "DRAIN_CHECK", SECOND / 5)
    first = Held()
    fleet.programs["cpu"] = in_turn(first, succeeds)
    await fleet.ready(a_cpu_group())
    job = await fleet.submit(resources=WHOLE)
    await fleet.until(lambda: fleet.hosts["s1"].taken)
    await fleet.ready(a_cpu_group(), "s2")
    await fleet.drain(reason="the host is old", deadline=await fleet.now())
    end = await fleet.end(job)
    await gone_but_for_the_other(fleet)

    assert first.cancelled
    assert (end.state, end.tasks[0].attempt, end.tasks[0].preemptions) == (JobState.SUCCEEDED, 2, 1)
    assert [task.attempt for task in fleet.hosts["s2"].taken] == [2]


async def gone_but_for_the_other(fleet: FleetCluster) -> None:
    await fleet.becomes("s1", S.DELETED)

    assert fleet.platform.alive == ["s2"]


async def test_a_job_on_a_slice_that_is_drained_without_a_deadline_runs_to_its_end(
    fleet: FleetCluster,
) -> None:
    """No slice is deleted while a task runs on it."""
    program = Held()
    fleet.programs["cpu"] = program
    await fleet.ready(a_cpu_group())
    job = await fleet.submit(resources=WHOLE)
    await fleet.until(lambda: fleet.hosts["s1"].taken)
    await fleet.drain()
    await fleet.until(lambda: fleet.is_in("s1", S.DRAINING))
    program.let_go()

    assert (await fleet.end(job)).state is JobState.SUCCEEDED
    await gone(fleet)


@pytest.mark.parametrize("state", [S.PROVISIONING, S.BOOTSTRAPPING])
async def test_a_slice_that_is_drained_on_its_way_is_deleted(
    fleet: FleetCluster, state: SliceState
) -> None:
    """No user has to wait for machines that are to be deleted."""
    fleet.platform.partial["tpu"] = 3
    fleet.platform.boot_delay = HOUR if state is S.PROVISIONING else timedelta(0)
    await fleet.make(a_group())
    await fleet.becomes("s1", state)
    await fleet.drain()

    await gone(fleet, within=MINUTE)


@pytest.mark.parametrize("committed", [False, True])
async def test_a_slice_that_is_drained_before_the_platform_has_answered_leaves_nothing(
    fleet: FleetCluster, committed: bool
) -> None:
    """It is unknown whether the platform has created the machines, so the slice asks it to delete
    them in any case.
    """
    if committed:
        fleet.platform.lose_next_reply(Verb.CREATE)
        await fleet.make(a_group())
        await fleet.until(lambda: fleet.platform.created)
        fleet.platform.unreachable["europe-west4-a"] = "backend error"
    else:
        fleet.platform.unreachable["europe-west4-a"] = "backend error"
        await fleet.make(a_group())
    await fleet.later(5 * MINUTE)
    await fleet.drain()
    await fleet.later(5 * MINUTE)
    waiting = await fleet.shown()
    fleet.platform.unreachable.clear()
    await fleet.becomes("s1", S.DELETED)

    assert waiting.state is S.DELETING
    assert fleet.platform.alive == []


async def test_what_is_going_is_deleted_again_and_again_until_it_is_gone(
    fleet: FleetCluster,
) -> None:
    """A yes to a delete is a promise; the slice is done with when the platform says that nothing is
    left.
    """
    fleet.platform.delete_delay = 20 * MINUTE
    handle = await fleet.ready(a_group())
    await fleet.drain()
    await fleet.later(20 * MINUTE - SECOND)
    waiting = await fleet.shown()
    await fleet.becomes("s1", S.DELETED)

    assert waiting.state is S.DELETING
    assert await fleet.shown_end(handle) == "COMPLETED"
    assert fleet.platform.deleted == ["s1"]


async def test_a_delete_whose_reply_is_lost_or_refused_for_now_is_said_again(
    fleet: FleetCluster,
) -> None:
    """Neither is an answer."""
    await fleet.ready(a_group())
    fleet.platform.lose_next_reply(Verb.DELETE, times=2)
    fleet.platform.calls_per_minute = 1
    await fleet.drain()

    await gone(fleet)


# -- in the Web UI
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "state", [S.REQUESTED, S.PROVISIONING, S.BOOTSTRAPPING, S.READY, S.DRAINING, S.DELETING]
)
async def test_a_slice_that_is_cancelled_gives_its_machines_back_before_it_ends(
    fleet: FleetCluster, state: SliceState
) -> None:
    """A workflow that ended first would leave machines without an owner."""
    group = a_cpu_group()
    fleet.platform.delete_delay = 10 * MINUTE
    if state is S.REQUESTED:
        fleet.platform.unreachable["europe-west4-a"] = "backend error"
    elif state is S.PROVISIONING:
        fleet.platform.boot_delay = HOUR
    elif state is S.BOOTSTRAPPING:
        fleet.platform.partial["cpu"] = 0
    handle = await fleet.make(group)
    if state in (S.DRAINING, S.DELETING):
        await fleet.becomes("s1", S.READY)
        if state is S.DRAINING:
            await fleet.tenant(wants=some(cpu=1))
        await fleet.drain()
    await fleet.becomes("s1", state)
    # A cancellation that meets a task or an activity of the workflow stops the server's clock.
    await fleet.later(timedelta(0))
    await fleet.until(lambda: fleet.rests(handle))
    await handle.cancel()
    await fleet.later(5 * MINUTE)
    made = state is not S.REQUESTED
    assert await fleet.shown_end(handle) == "RUNNING"
    assert fleet.platform.alive == (["s1"] if made else [])
    fleet.platform.unreachable.clear()
    await fleet.later(10 * MINUTE)
    with pytest.raises(WorkflowFailureError):
        await fleet.result(handle)

    assert await fleet.shown_end(handle) == "CANCELED"
    assert fleet.platform.alive == []
    assert (await fleet.snapshot()).total_hosts == 0
