"""The simulation of a cluster: what must hold in every run, and small clusters whose course is
known.
"""

from collections import defaultdict
from datetime import timedelta

import pytest
from hypothesis import given, settings

from iris.model.job.spec import Band
from iris.model.slice.provisioning import SliceFault
from iris.model.slice.scale_groups import Pace
from iris.model.states import TaskState
from iris.scheduling.placement.refusals import RefusalCode
from iris.simulation.engine import Cluster, simulate
from iris.simulation.history import History
from iris.simulation.slices import NOTICED_AFTER
from iris.simulation.trace import GangTrace, Run
from iris.simulation.world import World
from iris.usage.records import AttemptUse, SliceUse, UseEnd
from tests.simulation.worlds import (
    BEGINS,
    clusters,
    gang,
    gangs,
    gpu_group,
    on_slice,
    tpu_group,
    trace,
    world,
    worlds,
)
from tests.strategies import examples

_MINUTE = timedelta(minutes=1)


@given(clusters(), gangs(), worlds())
@settings(max_examples=examples(40), deadline=None)
def test_no_machine_is_given_twice_and_every_gang_ends_at_most_once(
    cluster: Cluster, some: list[GangTrace], assumed: World
) -> None:
    """A simulation that gives more than there is would promise what no cluster keeps."""
    history = simulate(cluster, trace(some), assumed, seed=1)

    _check_that_attempts_fit(history)
    assert [each.at for each in history.samples] == sorted(each.at for each in history.samples)
    arrived = [each for each in history.gangs if not each.resubmitted]
    assert sorted(each.trace.id for each in arrived) == sorted(each.id for each in some)
    for each in history.gangs:
        assert (each.state is None) == (each.ended_at is None)
        assert each.attempts or each.state is not TaskState.SUCCEEDED
        times = [each.asked_at, *(attempt.at for attempt in each.attempts), each.ended_at]
        known = [time for time in times if time is not None]
        assert known == sorted(known)
    most = {group.name: group.max_slices for group in cluster.groups}
    _check_that_limits_hold(history, most)


def _check_that_attempts_fit(history: History) -> None:
    """Compares the records of attempts with those of slices. Neither is made from the other."""
    slices = {use.id: use for use in history.uses if isinstance(use, SliceUse)}
    changes = defaultdict(list)
    for use in history.uses:
        if isinstance(use, AttemptUse):
            (slice_id,) = use.slices
            here = slices[slice_id]
            assert here.ready_at is not None
            assert here.ready_at <= use.placed_at
            assert use.ended_at <= here.gone_at
            amounts = (use.cpu_millis, use.gpus, use.tpu_chips)
            changes[slice_id] += [(use.placed_at, 1, amounts), (use.ended_at, 0, amounts)]
    for slice_id, of_slice in changes.items():
        here = slices[slice_id]
        held = [0, 0, 0]
        for _, begins, amounts in sorted(of_slice):
            held = [
                all_ + (1 if begins else -1) * one for all_, one in zip(held, amounts, strict=True)
            ]
            limits = (here.cpu_millis, here.gpus, here.tpu_chips)
            assert all(one <= limit for one, limit in zip(held, limits, strict=True))


def _check_that_limits_hold(history: History, most: dict[str, int]) -> None:
    changes = defaultdict(list)
    for use in history.uses:
        if isinstance(use, SliceUse):
            changes[use.group] += [(use.requested_at, 1, 1), (use.gone_at, 0, -1)]
    for group, of_group in changes.items():
        there = 0
        for _, _, change in sorted(of_group):
            there += change
            assert there <= most[group]


@given(clusters(), gangs(), worlds())
@settings(max_examples=examples(15), deadline=None)
def test_the_same_arguments_give_the_same_history(
    cluster: Cluster, some: list[GangTrace], assumed: World
) -> None:
    """Answers that change from run to run could not be compared."""
    first, second = (simulate(cluster, trace(some), assumed, seed=7) for _ in range(2))

    assert repr(first) == repr(second)


def test_a_gang_waits_for_the_boot_of_its_slice_and_runs_for_its_time() -> None:
    """The smallest cluster: one request, one slice, one job, and the slice goes when it is idle."""
    cluster = Cluster((gpu_group(),))
    runs = (Run(set_up=20, seconds=600),)

    history = simulate(cluster, trace([gang(1, 60, 0, runs=runs)]), world(boot="2m", delete="30s"))

    (only,) = history.gangs
    assert only.state is TaskState.SUCCEEDED
    assert only.waited(history.stopped) == pytest.approx(120, abs=3)
    attempt, machine = sorted(history.uses, key=lambda use: use.kind)
    assert isinstance(attempt, AttemptUse)
    assert isinstance(machine, SliceUse)
    assert attempt.ended_at - attempt.placed_at == timedelta(seconds=620)
    assert attempt.end is UseEnd.SUCCEEDED
    idle = machine.gone_at - attempt.ended_at
    assert idle == pytest.approx(Pace().scale_down_delay + timedelta(seconds=30), abs=5 * _SECOND)


_SECOND = timedelta(seconds=1)


def test_jobs_queue_when_the_group_is_at_its_maximum() -> None:
    """One machine runs one job after the other: the second one waits for the first."""
    cluster = Cluster((gpu_group(max_slices=1),))

    history = simulate(cluster, trace([gang(1, 0, 3600), gang(2, 0, 3600)]), world(boot="1m"))

    first, second = history.gangs
    assert second.attempts[0].at - first.attempts[0].at == timedelta(hours=1)
    assert second.reasons
    assert {each.code for each in second.reasons} <= {RefusalCode.BUSY, RefusalCode.QUEUED}


def test_a_second_machine_shortens_the_wait_to_its_boot() -> None:
    """The question for which the simulation exists: would one more slice help?"""
    jobs = [gang(1, 0, 3600), gang(2, 0, 3600)]

    def longest(most: int) -> float:
        cluster = Cluster((gpu_group(max_slices=most),))
        history = simulate(cluster, trace(jobs), world(boot="1m"))
        return max(each.waited(history.stopped) for each in history.gangs)

    assert longest(1) == pytest.approx(3660, abs=5)
    # The group waits for a minute between two scale-ups.
    assert longest(2) == pytest.approx(60, abs=65)


def test_a_gang_of_a_higher_band_evicts_one_of_a_lower_band_which_runs_again() -> None:
    """Evictions follow the scheduler's rules, and cost the evicted its work."""
    cluster = Cluster((gpu_group(max_slices=1),))
    low = gang(1, 0, 3600, band=Band.BATCH)
    high = gang(2, 1800, 600, band=Band.PRODUCTION)

    history = simulate(cluster, trace([low, high]), world(boot="1m", stop="5s"))

    evicted, winner = history.gangs
    assert evicted.evictions == 1
    assert len(evicted.attempts) == 2
    assert winner.waited(history.stopped) == pytest.approx(5, abs=1)
    assert evicted.state is winner.state is TaskState.SUCCEEDED
    ends = [use.end for use in history.uses if isinstance(use, AttemptUse)]
    assert sorted(ends) == [UseEnd.PREEMPTED, UseEnd.SUCCEEDED, UseEnd.SUCCEEDED]


@pytest.mark.parametrize(("every", "again"), [(0, 3600), (600, 600)])
def test_a_checkpoint_saves_the_work_of_an_evicted_gang(every: int, again: int) -> None:
    """Spot machines are cheap only for jobs that keep what they did."""
    cluster = Cluster((gpu_group(max_slices=1),))
    low = gang(1, 0, 3600, band=Band.BATCH)
    high = gang(2, 3300, 60, band=Band.PRODUCTION)

    history = simulate(
        cluster, trace([low, high]), world(boot="1s", checkpoint_every=every, stop=0)
    )

    first, second = (
        (use.ended_at - use.placed_at).total_seconds()
        for use in history.uses
        if isinstance(use, AttemptUse) and use.band is Band.BATCH
    )
    assert first == pytest.approx(3300, abs=5)
    assert second == again


def test_a_preempted_slice_is_replaced_and_its_gang_runs_again() -> None:
    """The loss of a slice takes the path of a real one: slice, scheduler, gang, new slice."""
    cluster = Cluster((tpu_group(preemptible=True),))
    jobs = [on_slice(number, 600 * number, 7200) for number in range(4)]

    history = simulate(cluster, trace(jobs), world(boot="2m", preemptions_per_hour=0.5), seed=3)

    assert [fault.fault for fault in history.faults].count(SliceFault.PREEMPTED) >= 1
    assert sum(each.losses for each in history.gangs) >= 1
    assert all(each.state is TaskState.SUCCEEDED for each in history.gangs)
    lost = [use for use in history.uses if isinstance(use, SliceUse) and "preempted" in use.reason]
    assert lost


def test_a_host_that_dies_loses_its_gang_only_when_that_is_noticed() -> None:
    """A dead host holds its gang until it counts as lost: nobody knows it before."""
    cluster = Cluster((gpu_group(),))

    history = simulate(
        cluster, trace([gang(1, 0, 36_000)]), world(boot="1m", failures_per_hour=0.3), seed=1
    )

    (only,) = history.gangs
    assert only.losses >= 1
    assert only.state is TaskState.SUCCEEDED
    assert {fault.fault for fault in history.faults} == {SliceFault.HOST_LOST}


@pytest.mark.parametrize(("delete", "silent"), [("10m", 75), ("5s", 55)])
def test_a_gang_on_a_dead_host_ends_with_its_heartbeats_or_with_its_machine(
    delete: str, silent: int
) -> None:
    """A real attempt ends after 75 s without a heartbeat, however long the deletion of its slice
    takes, and before that if its machine is gone. A second slice waits for it.
    """
    cluster = Cluster((gpu_group(buffer_slices=1),))
    assumed = world(boot="1m", failures_per_hour=0.3, delete=delete)

    history = simulate(cluster, trace([gang(1, 0, 36_000)]), assumed, seed=1)

    first, second, *_ = history.gangs[0].attempts
    (noticed,) = (each.at for each in history.faults if each.slice_id in first.slices)
    assert (second.at - (noticed - NOTICED_AFTER)).total_seconds() == silent


def test_a_zone_without_stock_makes_the_next_zone_serve_the_demand() -> None:
    """Zones are tried in their order, and a stock-out is remembered, as in the real autoscaler."""
    group = gpu_group(zones=("europe-west4-b", "us-east5-a"))
    assumed = World.model_validate(
        {
            "machines": {
                "h100@europe-west4-b": {"boot": "1m", "stock_out": 1},
                "h100@us-east5-a": {"boot": "1m"},
            }
        }
    )

    history = simulate(Cluster((group,)), trace([gang(1, 0, 600)]), assumed)

    made = {use.zone for use in history.uses if isinstance(use, SliceUse) and use.ready_at}
    assert made == {"us-east5-a"}
    assert {fault.fault for fault in history.faults} == {SliceFault.STOCK_OUT}


def test_a_gang_that_waits_too_long_is_unschedulable_and_one_that_nothing_serves_never_ends() -> (
    None
):
    """Both are answers: the first gave up, and the second waits for ever."""
    cluster = Cluster((gpu_group(max_slices=0),))

    history = simulate(cluster, trace([gang(1, 0, 60, patience=1800), gang(2, 0, 60)]), world())

    gave_up, waits = history.gangs
    assert gave_up.state is TaskState.UNSCHEDULABLE
    assert gave_up.ended_at == BEGINS + 30 * _MINUTE
    assert waits.state is None
    assert waits.reasons


def test_a_failed_attempt_is_followed_by_the_next_one_of_the_trace() -> None:
    """The retries of the past are those of the program, so they come again."""
    runs = (Run(seconds=60, end=UseEnd.FAILED), Run(seconds=120))

    history = simulate(Cluster((gpu_group(),)), trace([gang(1, 0, 0, runs=runs)]), world())

    (only,) = history.gangs
    assert only.state is TaskState.SUCCEEDED
    ends = [use.end for use in history.uses if isinstance(use, AttemptUse)]
    assert ends == [UseEnd.FAILED, UseEnd.SUCCEEDED]


def test_people_submit_a_failed_job_again_only_if_the_world_says_so() -> None:
    """They would make a cluster busier that fails more."""
    runs = (Run(seconds=60, end=UseEnd.FAILED),)
    jobs = trace([gang(1, 0, 0, runs=runs)])

    once = simulate(Cluster((gpu_group(),)), jobs, world())
    again = {"share": 1, "after": "10m", "times": 2}
    three = simulate(Cluster((gpu_group(),)), jobs, world(resubmit=again))

    assert len(once.gangs) == 1
    assert [each.resubmitted for each in three.gangs] == [0, 1, 2]
