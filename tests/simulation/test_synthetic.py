"""A workload from a short description."""

import re
from collections import Counter
from datetime import timedelta
from pathlib import Path
from statistics import fmean

import pytest

from iris.model.errors import InvalidValue
from iris.model.host.constraints import SCALE_GROUP, TPU_NAME
from iris.model.host.resources import Device, DeviceKind
from iris.model.job.spec import Band
from iris.simulation.synthetic import read_synthetic, synthetic_trace
from iris.simulation.trace import GangTrace, Trace, to_lines
from iris.usage.records import UseEnd

DAY = 24 * 3600.0


def made(text: str) -> Trace:
    return synthetic_trace(read_synthetic(text))


def lengths(gangs: tuple[GangTrace, ...]) -> list[float]:
    return [gang.runs[0].seconds for gang in gangs]


def test_one_line_describes_a_workload() -> None:
    """As many jobs as asked for, in this time, with each of the values."""
    trace = made("jobs=2000,days=7,users=20,gpu=1|2|4|8,duration=30m..8h,priority=batch|production")
    assert (len(trace.gangs), trace.seconds) == (2000, 7 * DAY)
    assert all(0 <= gang.at < 7 * DAY for gang in trace.gangs)
    assert {gang.user for gang in trace.gangs} == {f"user-{number}" for number in range(1, 21)}
    gpus = Counter(gang.resources.device_count for gang in trace.gangs)
    assert sorted(gpus) == [1, 2, 4, 8]
    assert min(gpus.values()) > 400
    assert {gang.band for gang in trace.gangs} == {Band.BATCH, Band.PRODUCTION}
    assert min(lengths(trace.gangs)) >= 1800
    assert max(lengths(trace.gangs)) <= 8 * 3600
    short = sum(each < 2 * 3600 for each in lengths(trace.gangs))
    assert short == pytest.approx(1000, rel=0.1)  # 30m to 2h is half of 30m to 8h by the logarithm


def test_the_same_description_gives_the_same_bytes_and_another_seed_others() -> None:
    """Two simulations of it can be compared."""
    one, same, other = (list(to_lines(made(f"jobs=50,seed={seed}"))) for seed in (1, 1, 2))
    assert one == same != other


@pytest.mark.parametrize(
    ("text", "jobs", "days"),
    [
        ("rate=12/h", 12 * 24 * 7, 7),
        ("rate=288/d,days=2", 576, 2),
        ("jobs=1000", 1000, 7),
        ("jobs=48,rate=1/h", 48, 2),
        ("jobs=48,rate=1/h,days=1", 24, 1),  # the days end first
        ("jobs=24,rate=0.1/m,days=1", 24, 24 / 144),  # the jobs do
    ],
)
def test_number_rate_and_days_follow_from_each_other(text: str, jobs: int, days: float) -> None:
    """Whatever a user knows is enough. With all three, the first limit counts."""
    trace = made(text)
    assert len(trace.gangs) == jobs
    assert trace.seconds == pytest.approx(days * DAY)


def test_arrivals_are_as_frequent_by_night_as_told() -> None:
    """In the afternoon, 1.6 times as many as on average, and 0.4 times in the small hours."""
    hours = Counter(int(gang.at % DAY // 3600) for gang in made("jobs=12000,day-night=0.75").gangs)
    mean = 500 / (1 - 0.75 / 2)
    assert hours[13] + hours[14] == pytest.approx(2 * mean, rel=0.1)
    assert hours[1] + hours[2] == pytest.approx(2 * mean * 0.25, rel=0.15)
    even = Counter(int(gang.at % DAY // 3600) for gang in made("jobs=12000").gangs)
    assert min(even.values()) > 400
    assert max(even.values()) < 600


def test_a_mix_has_kinds_of_jobs_with_their_shares() -> None:
    """Keys outside of the mix hold for every kind without an own value."""
    trace = made(
        """
        jobs: 4000
        users: 3
        duration: 1h
        mix:
          - share: 3
            gpu: [0, H100x8]
            priority: batch
            failed: 0.25
            set-up: 30s
          - tpu: v5litepod-16
            duration: 2h|4h
            user: eve
            scheduling-timeout: 1d
            constraint: ["zone in (a, b)", "?fast = true"]
        """
    )
    slices = [gang for gang in trace.gangs if gang.group_by == TPU_NAME]
    others = [gang for gang in trace.gangs if gang.group_by is None]
    assert len(slices) + len(others) == 4000
    assert len(slices) == pytest.approx(1000, rel=0.1)

    chips = Device(kind=DeviceKind.TPU, variant="v5litepod-16", count=4)
    assert {(gang.tasks, gang.resources.device) for gang in slices} == {(4, chips)}
    assert {gang.user for gang in slices} == {"eve"}
    assert {gang.patience for gang in slices} == {DAY}
    assert {gang.constraints for gang in slices} == {("zone in (a, b)", "?fast = true")}
    assert set(lengths(tuple(slices))) == {7200, 14400}

    eight = Device(kind=DeviceKind.GPU, variant="H100", count=8)
    assert {gang.resources.device for gang in others} == {None, eight}
    assert {(gang.band, gang.runs[0].set_up, gang.runs[0].seconds) for gang in others} == {
        (Band.BATCH, 30, 3600)
    }
    failed = fmean(gang.runs[0].end is UseEnd.FAILED for gang in others)
    assert failed == pytest.approx(0.25, abs=0.04)


def test_a_gang_of_several_hosts_shares_an_attribute() -> None:
    """Without another attribute, its hosts are of one scale group."""
    gangs = made("jobs=100,hosts=1|2,gpu=H100x8,cpu=16,memory=64g").gangs
    assert {(gang.tasks, gang.group_by) for gang in gangs} == {(1, None), (2, SCALE_GROUP)}
    assert {(each.resources.cpu_millis, each.resources.memory_bytes) for each in gangs} == {
        (16_000, 64 * 2**30)
    }
    assert made("jobs=1,hosts=2,gang-by=rack").gangs[0].group_by == "rack"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("gpu=1", ("jobs=1000", "rate=12/h")),
        ("jobs=1,duraton=1h", ("duraton", "duration")),
        ("jobs=1,wait", ("wait", "KEY=VALUE")),
        ("jobs=many", ("jobs", "many")),
        ("jobs=0", ("jobs", "'0'")),
        ("rate=12", ("rate", "12/h")),
        ("rate=0/h", ("rate", "0/h")),
        ("rate=1/m,days=3000", ("4,320,000 jobs",)),
        ("rate=1e305/d,days=3660", ("inf jobs",)),
        ("jobs=1,duration=8h..30m", ("duration", "8h..30m")),
        ("jobs=1,duration=0s..30m", ("duration", "0s..30m")),
        ("jobs=1,duration=long", ("duration", "long", "30s")),
        ("jobs=1,priority=high", ("priority", "high", "production")),
        ("jobs=1,day-night=2", ("day-night", "2")),
        ("jobs=1,gpu=Z9000", ("gpu", "Z9000")),
        ("jobs=1,hosts=2,gpu=8", ("gpu", "8", "H100x8")),
        ("jobs=1,tpu=v5litepod-16,hosts=2", ("tpu", "hosts")),
        ("jobs=1,user=a b", ("user", "a b")),
        ("jobs=1,constraint=a b", ("constraint", "a b")),
        ("jobs: 1\nmix: [{gpu: 1}, {duration: x}]", ("mix.1.duration", "x")),
        ("jobs: 1\nmix: [{jobs: 1}]", ("mix.0.jobs",)),
        ("jobs: 1\nmix: 3", ("mix", "3")),
        ("jobs: [", ("line 1", "YAML")),
        ("- jobs", ("mapping",)),
    ],
)
def test_a_wrong_description_is_refused_with_the_key_the_value_and_the_remedy(
    text: str, named: tuple[str, ...]
) -> None:
    """It is written by hand."""
    with pytest.raises(InvalidValue) as refused:
        read_synthetic(text)
    for each in named:
        assert each in str(refused.value)


def test_the_descriptions_in_the_documentation_are_right() -> None:
    """They are copied first."""
    text = (Path(__file__).parents[2] / "docs" / "workloads.md").read_text()
    line, mix = re.findall(r"```(?:text|yaml)\n(.*?)```", text, re.DOTALL)
    assert len(made(line).gangs) == 1000
    assert len(made(mix).gangs) == 12 * 24 * 7


def test_a_timeout_is_a_duration() -> None:
    """As in iris submit."""
    (kind,) = read_synthetic("jobs=1,scheduling_timeout=90m").kinds
    assert kind.scheduling_timeout == timedelta(minutes=90)
