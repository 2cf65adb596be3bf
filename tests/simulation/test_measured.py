"""The world that the slices of a trace show. The truth of the made traces is known."""

from datetime import UTC, datetime, timedelta

import pytest

from iris.model.slice.provisioning import SliceFault
from iris.simulation.chance import sample, uniform, waiting_time
from iris.simulation.measured import PRIOR_HOURS, measured_world
from iris.simulation.trace import Heading, SliceTrace, Trace
from iris.simulation.world import Machines, World

HOUR, DAY = 3600.0, 24 * 3600.0
MONDAY = datetime(2026, 11, 2, tzinfo=UTC)
DAYS = 28


def a_trace(*slices: SliceTrace, days: float = DAYS) -> Trace:
    ends = MONDAY + timedelta(days=days)
    return Trace.of(Heading(begins=MONDAY, ends=ends), (), slices)


def a_slice(
    requested: float,
    ready: float | None,
    gone: float,
    fault: SliceFault | None = None,
    *,
    group: str = "tpu",
    zone: str = "a",
    number: int = 0,
) -> SliceTrace:
    return SliceTrace(
        id=f"{group}-{zone}-{requested}-{number}",
        group=group,
        zone=zone,
        requested=requested,
        ready=ready,
        gone=gone,
        fault=fault,
    )


def lived(truth: Machines, zone: str, number: int) -> list[SliceTrace]:
    """Slices that live in this world for up to six hours, one after the other."""
    slices, now = [], 0.0
    for each in range(number):
        boot = sample(truth.boot, uniform(1, zone, each, "boot"))
        preempted = waiting_time(truth.preemptions_per_hour, uniform(1, zone, each, "preempted"))
        failed = waiting_time(truth.failures_per_hour, uniform(1, zone, each, "failed"))
        life = min(preempted, failed, 6 * HOUR)
        fault = {preempted: SliceFault.PREEMPTED, failed: SliceFault.HOST_LOST}.get(life)
        slices.append(a_slice(now, now + boot, now + boot + life, fault, zone=zone))
        now += boot + life
    return slices


def test_boot_times_and_rates_come_out_as_they_went_in() -> None:
    """Two zones of one group, with 2,000 slices each."""
    calm = Machines(boot=(60.0, 90.0, 180.0), preemptions_per_hour=0.05, failures_per_hour=0.01)
    wild = Machines(boot=(200.0, 600.0), preemptions_per_hour=0.5, failures_per_hour=0.0)
    world = measured_world(a_trace(*lived(calm, "a", 2000), *lived(wild, "b", 2000)))
    for zone, truth in (("a", calm), ("b", wild)):
        found = world.of("tpu", zone)
        assert len(found.boot) == 11
        for at in (0.0, 0.25, 0.5, 0.75, 1.0):
            assert sample(found.boot, at) == pytest.approx(sample(truth.boot, at), rel=0.03)
        assert found.preemptions_per_hour == pytest.approx(truth.preemptions_per_hour, rel=0.1)
        assert found.failures_per_hour == pytest.approx(truth.failures_per_hour, rel=0.2, abs=5e-4)
    # All zones together lie between them, and so does everything that has no entry.
    for found in (world.of("tpu", "c"), world.of("gpu", "a")):
        assert calm.preemptions_per_hour < found.preemptions_per_hour < wild.preemptions_per_hour
        assert found.boot[0] == pytest.approx(60, rel=0.03)
        assert found.boot[-1] == pytest.approx(600, rel=0.03)


def test_stock_outs_come_out_by_the_hour_of_the_day() -> None:
    """Zone a has none at night and often none in the afternoon; zone b always has some."""
    truth = tuple(0.8 if 12 <= hour < 18 else 0.0 for hour in range(24))
    slices = []
    for period in range(DAYS * 144):
        at = period * 600.0
        out = uniform(3, period) < truth[int(at % DAY // HOUR)]
        fault = SliceFault.STOCK_OUT if out else None
        slices.append(a_slice(at, None if out else at + 60, at + 120, fault))
        slices.append(a_slice(at, at + 60, at + 120, zone="b"))
    world = measured_world(a_trace(*slices))
    found = world.of("tpu", "a").stock_out
    assert [pytest.approx(share, abs=0.1) for share in truth] == list(found)
    assert world.of("tpu", "b").stock_out[0] == pytest.approx(0.0, abs=0.001)


def test_requests_that_are_repeated_during_a_stock_out_count_once() -> None:
    """The autoscaler asks again and again until there is stock."""
    often = [
        a_slice(6 * HOUR + each, None, 7 * HOUR, SliceFault.STOCK_OUT, number=each)
        for each in range(500)
    ]
    once = [
        a_slice(each * DAY + 6 * HOUR, each * DAY + 7 * HOUR, 30 * DAY) for each in range(1, 28)
    ]
    assert measured_world(a_trace(*often, *once)).of("tpu", "a").stock_out[6] < 0.1


def test_few_requests_in_an_hour_say_little_about_it() -> None:
    """One stock-out at three o'clock makes no hour without machines."""
    slices = [a_slice(day * DAY + 12 * HOUR, day * DAY + 13 * HOUR, 30 * DAY) for day in range(28)]
    slices.append(a_slice(3 * HOUR, None, 3 * HOUR + 1, SliceFault.STOCK_OUT))
    shares = measured_world(a_trace(*slices)).of("tpu", "a").stock_out
    assert max(shares) == shares[3] < 0.2
    assert 0 < shares[12] < shares[4] < shares[3]


def test_a_group_with_little_past_has_its_own_boot_times_and_the_rates_of_the_others() -> None:
    """Groups are of different kinds, so one boot says more than those of others; an hour without a
    loss is no proof. The zones of one group are alike.
    """
    truth = Machines(boot=(100.0,), preemptions_per_hour=0.2, failures_per_hour=0.05)
    new = [
        a_slice(at, at + 500, at + 500 + HOUR / 4, group="new", zone=zone)
        for at, zone in enumerate("aaab")
    ]
    slow = a_slice(9, 9 + 900, 9 + 900 + HOUR / 4, group="new", zone="b")
    world = measured_world(a_trace(*lived(truth, "a", 1000), *new, slow))
    others = world.of("other", "a")
    assert others.boot[5] == 100.0
    assert world.of("new", "a").boot == world.of("new", "b").boot == world.machines["new"].boot
    assert (world.machines["new"].boot[0], world.machines["new"].boot[-1]) == (500.0, 900.0)
    part = PRIOR_HOURS / (PRIOR_HOURS + 1.25)
    assert world.machines["new"].preemptions_per_hour == pytest.approx(
        others.preemptions_per_hour * part, abs=1e-5
    )


def test_machines_on_demand_do_not_make_spot_machines_safer() -> None:
    """An entry for everything else is for spot machines, because only they are preempted."""
    truth = Machines(boot=(100.0,), preemptions_per_hour=0.4)
    safe = [a_slice(0, 60, 28 * DAY, group="safe", number=each) for each in range(50)]
    world = measured_world(a_trace(*lived(truth, "a", 1000), *safe))
    assert world.of("another", "a").preemptions_per_hour == pytest.approx(0.4, rel=0.1)
    assert world.of("safe", "a").preemptions_per_hour < 0.001


def test_hours_before_the_trace_do_not_count() -> None:
    """A slice that has lived for a year shows no year in a trace of four weeks."""
    old = a_slice(-365 * DAY, -365 * DAY + 60, 100 * HOUR, SliceFault.HOST_LOST)
    assert measured_world(a_trace(old)).machines["*"].failures_per_hour == 0.01


def test_slices_that_were_never_ready_are_no_losses() -> None:
    """A boot that timed out is not a machine that failed."""
    slices = [a_slice(0, None, HOUR, SliceFault.BOOT_TIMEOUT), a_slice(0, 60, HOUR)]
    assert measured_world(a_trace(*slices)).machines["*"].failures_per_hour == 0


def test_a_trace_without_slices_shows_nothing() -> None:
    """The defaults hold: machines boot in two minutes, and nothing fails."""
    assert measured_world(a_trace()) == World()
