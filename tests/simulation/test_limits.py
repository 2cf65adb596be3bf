"""The simulation at the limits of its workloads, worlds and clusters: it ends, loses no gang, and
says nothing that no cluster does.
"""

from datetime import UTC, timedelta, timezone

import pytest
from pydantic import ValidationError

from iris.config.errors import InvalidConfig
from iris.model.job.spec import Band
from iris.model.rules import Rules
from iris.model.slice.provisioning import SliceFault
from iris.model.slice.scale_groups import Pace
from iris.model.slice.scaling import Drain
from iris.model.slice.status import SliceState
from iris.model.states import TaskState
from iris.scheduling.ledger import size
from iris.simulation import engine
from iris.simulation.chance import waiting_time
from iris.simulation.engine import Cluster, simulate
from iris.simulation.history import History
from iris.simulation.trace import LONGEST, GangTrace, Heading, Run, Trace
from iris.simulation.world import read_world
from iris.usage.records import AttemptUse, SliceUse, UseEnd
from tests.simulation.worlds import BEGINS, gang, gpu_group, on_slice, tpu_group, trace, world

_DAY = 86_400.0


def test_gangs_that_have_ended_do_not_fill_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real scheduler measures its ledger again when it continues as new."""
    for name in ("FULL", "NEAR", "STEP"):
        monkeypatch.setattr(size, name, getattr(size, name) // 64)
    jobs = [gang(number, 3.0 * number, 1, 1) for number in range(600)]

    history = simulate(Cluster((gpu_group(),)), trace(jobs), world(boot="1s"))

    assert {each.state for each in history.gangs} == {TaskState.SUCCEEDED}
    assert max(each.waited(history.stopped) for each in history.gangs) < 10


@pytest.mark.parametrize(
    "runs",
    [
        (Run(seconds=5 * _DAY, end=UseEnd.FAILED), Run(seconds=60)),
        (Run(seconds=5 * _DAY, end=UseEnd.FAILED), Run(seconds=5 * _DAY)),
    ],
)
def test_a_gang_that_ran_for_days_after_the_recorded_time_may_try_again(
    runs: tuple[Run, ...],
) -> None:
    """Between two attempts nobody holds hosts for a moment, which is not the end."""
    history = simulate(Cluster((gpu_group(),)), trace([gang(1, 0, 0, runs=runs)]), world())

    assert history.gangs[0].state is TaskState.SUCCEEDED


def test_a_gang_with_a_limit_gives_up_also_long_after_the_recorded_time() -> None:
    """It does not wait for ever, so its end has to be known."""
    jobs = [gang(1, 0, 60, patience=5 * _DAY), gang(2, 0, 60)]

    history = simulate(Cluster((gpu_group(max_slices=0),)), trace(jobs), world())

    assert [each.state for each in history.gangs] == [TaskState.UNSCHEDULABLE, None]
    assert history.gangs[0].ended_at == BEGINS + timedelta(days=5)


def test_a_slice_that_is_deleted_at_the_very_end_has_one_record() -> None:
    """Two would be two machines at the same time, which no group has that may have one."""
    cluster, jobs, assumed = Cluster((gpu_group(),)), [gang(1, 0, 60)], world(boot="1m")
    (whole,) = _slices(simulate(cluster, trace(jobs), assumed))

    until_then = Trace.of(Heading(begins=BEGINS, ends=whole.gone_at), jobs)
    assert _slices(simulate(cluster, until_then, assumed)) == [whole]


def _slices(history: History) -> list[SliceUse]:
    return [use for use in history.uses if isinstance(use, SliceUse)]


def test_a_gang_that_runs_for_years_does_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Samples of the time after the recorded one become fewer."""
    for name in ("SAMPLES", "LATE_SAMPLES"):
        monkeypatch.setattr(engine, name, getattr(engine, name) // 10)
    jobs = trace([gang(1, 0, 20 * _DAY)])

    history = simulate(Cluster((gpu_group(),)), jobs, world())

    assert history.gangs[0].state is TaskState.SUCCEEDED
    assert len(history.samples) < 4.5 * engine.SAMPLES


def test_machines_that_take_all_the_time_of_both_limits_come_up() -> None:
    """The world tells the time of the whole boot. A boot that the limits allow does not fail."""
    pace = Pace(boot_timeout=timedelta(minutes=20), init_timeout=timedelta(minutes=3))
    jobs = trace([gang(1, 0, 600)])

    slow = simulate(Cluster((gpu_group(pace=pace),)), jobs, world(boot="23m"))
    late = simulate(Cluster((gpu_group(pace=pace),)), jobs, world(boot="24m"))

    assert slow.gangs[0].state is TaskState.SUCCEEDED
    assert slow.faults == []
    assert {each.fault for each in late.faults} <= {
        SliceFault.BOOT_TIMEOUT,
        SliceFault.INIT_TIMEOUT,
    }
    assert late.gangs[0].state is None


def test_a_queued_request_waits_for_the_end_of_the_stock_out() -> None:
    """A queued resource is not refused: the platform creates it when it has machines."""
    pace = Pace(boot_timeout=timedelta(hours=10))
    group = tpu_group(queued=True, pace=pace)
    none_at_night = [1.0] * 6 + [0.0] * 18

    history = simulate(
        Cluster((group,)), trace([on_slice(1, 0, 60)]), world(stock_out=none_at_night, boot="2m")
    )

    assert history.faults == []
    assert history.gangs[0].waited(history.stopped) == pytest.approx(6 * 3600 + 120, abs=5)


def test_nothing_runs_on_a_machine_that_has_died() -> None:
    """Jobs are placed there until the loss is noticed. They do not succeed there."""
    cluster = Cluster((gpu_group(max_slices=1, min_slices=1),))
    jobs = trace([gang(number, 7.0 * number, 1) for number in range(500)])

    history = simulate(cluster, jobs, world(failures_per_hour=20, boot="1s", delete="0s"))

    lost = {each.slice_id: each.at for each in history.faults}
    assert len(lost) > 5
    for use in history.uses:
        if isinstance(use, AttemptUse) and use.end is UseEnd.SUCCEEDED:
            (slice_id,) = use.slices
            noticed = lost.get(slice_id)
            assert noticed is None or use.ended_at <= noticed - timedelta(seconds=50)
    assert {each.state for each in history.gangs} == {TaskState.SUCCEEDED}


def test_a_program_that_is_stopped_in_its_set_up_has_not_started() -> None:
    """Its attempt tells when the program started, and a stopped one never does."""
    cluster = Cluster((gpu_group(max_slices=1),), Rules(min_run_time=timedelta(0)))
    low = gang(1, 0, 0, runs=(Run(set_up=1803, seconds=100),), band=Band.BATCH)
    high = gang(2, 1800, 60, band=Band.PRODUCTION)

    history = simulate(cluster, trace([low, high]), world(boot="1s", stop="10s"))

    uses = [use for use in history.uses if isinstance(use, AttemptUse)]
    (stopped,) = [use for use in uses if use.end is UseEnd.PREEMPTED]
    assert stopped.started_at is None
    assert {each.state for each in history.gangs} == {TaskState.SUCCEEDED}


def test_a_gang_that_has_used_up_its_retries_is_submitted_again() -> None:
    """To people, a job that lost its machines too often has failed as well."""
    group = gpu_group(preemptible=True, max_slices=1)
    runs = (Run(seconds=1, end=UseEnd.SET_UP_FAILED),)
    again = {"share": 1, "after": "1s", "times": 1}

    history = simulate(Cluster((group,)), trace([gang(1, 0, 0, runs=runs)]), world(resubmit=again))

    assert [each.state for each in history.gangs] == [TaskState.WORKER_FAILED] * 2


def test_tasks_that_share_a_host_without_others_are_one_request() -> None:
    """A recorded gang on one host may not tell what its hosts had to share."""
    history = simulate(
        Cluster((gpu_group(),)), trace([gang(1, 0, 60, 8, tasks_per_host=4)]), world()
    )

    assert history.gangs[0].state is TaskState.SUCCEEDED
    (use,) = [use for use in history.uses if isinstance(use, AttemptUse)]
    assert use.gpus == 8


@pytest.mark.parametrize("rate", [1e-9, 1e-300, 5e-324])
def test_a_rare_loss_does_not_happen(rate: float) -> None:
    """Times beyond the calendar have no date."""
    assert waiting_time(rate, 0.5) == float("inf")

    history = simulate(
        Cluster((gpu_group(),)), trace([gang(1, 0, 60)]), world(failures_per_hour=rate)
    )

    assert history.gangs[0].state is TaskState.SUCCEEDED


@pytest.mark.parametrize(
    "changes",
    [
        {"tasks": 2},
        {"tasks": 3, "groups": 2, "group_by": "zone"},
        {"patience": -1.0},
        {"patience": float("inf")},
        {"at": float("nan")},
        {"at": LONGEST * 2},
        {"runs": ({"seconds": float("inf")},)},
    ],
)
def test_a_gang_that_no_job_could_be_is_refused(changes: dict[str, object]) -> None:
    """An error in the line of a file helps; one in the middle of a simulation does not."""
    with pytest.raises(ValidationError):
        GangTrace.model_validate(gang(1, 0, 60).model_dump() | changes)


def test_a_heading_has_times_with_a_zone_in_their_order() -> None:
    """Times without a zone cannot be compared with those of the ledger."""
    for begins, ends in (
        (BEGINS.replace(tzinfo=None), BEGINS.replace(tzinfo=None)),
        (BEGINS, BEGINS - timedelta(seconds=1)),
    ):
        with pytest.raises(ValidationError):
            Heading(begins=begins, ends=ends)


@pytest.mark.parametrize(
    "text",
    ["stock_out_lasts: 0", "machines: {'*': {failures_per_hour: .inf}}"],
)
def test_a_world_that_cannot_be_is_refused(text: str) -> None:
    """The message names the line."""
    with pytest.raises(InvalidConfig, match="line 1"):
        read_world(text, "world.yaml")


def test_the_hours_of_a_stock_out_are_those_of_utc() -> None:
    """The trace may be written in another zone."""
    here = timezone(timedelta(hours=5))
    at = BEGINS.astimezone(here)
    jobs = Trace.of(Heading(begins=at, ends=at + timedelta(days=1)), [gang(1, 0, 60)])
    none = [1.0] + [0.0] * 23

    history = simulate(Cluster((gpu_group(),)), jobs, world(stock_out=none))

    assert history.begins.tzinfo is UTC
    assert history.gangs[0].waited(history.stopped) >= 3600


def test_slices_without_jobs_stay_at_their_minimum_and_the_simulation_ends() -> None:
    """An empty workload is the cost of what is kept in reserve."""
    group = gpu_group(min_slices=2, max_slices=3, preemptible=True)

    history = simulate(Cluster((group,)), trace([]), world(preemptions_per_hour=1))

    assert history.stopped == history.ends
    assert sum(isinstance(use, SliceUse) and use.open for use in history.uses) <= 3


def test_a_pool_has_as_many_slices_as_machines_and_is_never_out_of_stock() -> None:
    """Its machines exist already."""
    pool = gpu_group(type="manual_vm", machines=3, max_slices=3, machine_type="", zones=("here",))

    history = simulate(
        Cluster((pool,)), trace([gang(n, 0, 600) for n in range(10)]), world(stock_out=1)
    )

    assert {each.state for each in history.gangs} == {TaskState.SUCCEEDED}
    assert history.faults == []


def test_a_drain_that_waits_for_the_scheduler_is_not_overtaken_by_its_own_deadline() -> None:
    """A slice that waits for an answer handles nothing else, as in its workflow."""
    simulation = engine._Simulation(
        Cluster((gpu_group(min_slices=1),)), trace([]), world(boot="1s"), 0
    )
    slices = simulation._autoscaler.slices

    def drain() -> None:
        (only,) = slices.values()
        only.drain(Drain(slice_id=only.id, reason="maintenance", deadline=BEGINS))

    simulation._events.at(BEGINS + timedelta(hours=1), drain)
    history = simulation.run()

    ended = [use for use in history.uses if isinstance(use, SliceUse) and not use.open]
    assert [use.reason for use in ended] == ["maintenance"]
    assert {each.record.state for each in slices.values()} == {SliceState.READY}
