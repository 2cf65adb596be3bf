"""When GPUs count as idle: only if every measurement of the whole time says so."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.model.errors import InvalidValue
from iris.model.host.idle_gpus import (
    MAX_GAP,
    IdleReport,
    IdleWatch,
    StopIdle,
    check_stop_idle,
    idle_reason,
    parse_stop_idle,
)
from iris.model.host.resources import parse_device

RULE = StopIdle(after=timedelta(minutes=10), below=5.0)


def watched(*uses: tuple[float, float]) -> IdleWatch:
    """The watch after these measurements: seconds and percent."""
    watch = IdleWatch()
    for at, percent in uses:
        watch = watch.with_use(at, percent, RULE)
    return watch


@given(
    st.lists(
        st.tuples(st.floats(1, 2 * MAX_GAP), st.sampled_from([0.0, 4.9, 5.0, 80.0])), min_size=1
    )
)
def test_gpus_are_idle_only_if_all_measurements_of_the_whole_time_are_below_the_threshold(
    steps: list[tuple[float, float]],
) -> None:
    """A job that computes now and then must not end, nor one that nobody has measured."""
    now, uses = 1_000.0, []
    for step, percent in steps:
        now += step
        uses.append((now, percent))
    begin = len(uses)
    while (
        begin > 0
        and uses[begin - 1][1] < RULE.below
        and (begin == len(uses) or uses[begin][0] - uses[begin - 1][0] <= MAX_GAP)
    ):
        begin -= 1
    idle = begin < len(uses) and now - uses[begin][0] >= RULE.after.total_seconds()

    report = watched(*uses).report(RULE)
    assert (report is not None) == idle
    if report is not None:
        assert report.since == datetime.fromtimestamp(uses[begin][0], UTC)
        assert report.peak_percent == max(percent for _, percent in uses[begin:])


def test_a_clock_that_was_set_back_begins_idleness_anew() -> None:
    """The time before it says nothing about how long the GPUs were idle."""
    uses = [(10_000.0 + 30 * number, 0.0) for number in range(30)]
    assert watched(*uses).report(RULE) is not None
    assert watched(*uses, (5_000.0, 0.0)).report(RULE) is None


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("30m", StopIdle(after=timedelta(minutes=30))),
        ("1h30m:10%", StopIdle(after=timedelta(minutes=90), below=10.0)),
        ("90s:2.5", StopIdle(after=timedelta(seconds=90), below=2.5)),
        ("30m:warn", StopIdle(after=timedelta(minutes=30), only_warns=True)),
        ("2h:1%:warn", StopIdle(after=timedelta(hours=2), below=1.0, only_warns=True)),
    ],
)
def test_a_rule_is_written_as_a_time_with_a_percentage(text: str, rule: StopIdle) -> None:
    """And what Iris prints of it can be typed again."""
    assert parse_stop_idle(text) == rule
    assert parse_stop_idle(str(rule)) == rule


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("", "is not a duration"),
        ("soon", "is not a duration"),
        ("30m:", "has no percentage after the time"),
        ("30m:much", "has no percentage after the time"),
        ("30m:10%:20%", "has no percentage after the time"),
        ("30m:warn:5%", "has no percentage after the time"),
        ("59s", "is too short"),
        (timedelta(seconds=59), "is too short"),
        (timedelta(days=40_000), "is longer than a hundred years"),
        ("30m:0%", "is not a percentage of the use of GPUs"),
        ("30m:101%", "is not a percentage of the use of GPUs"),
    ],
)
def test_another_rule_is_refused(given: str | timedelta, problem: str) -> None:
    """A mistyped one would end a job early, or never."""
    with pytest.raises(InvalidValue, match=problem):
        parse_stop_idle(given)


@pytest.mark.parametrize(
    ("device", "problem"),
    [
        ("cpu", "requests none"),
        ("tpu:v5litepod-16:4", "TPUs is not measured"),
        ("gpu:A100-1g.10gb:1", "whole GPUs"),
    ],
)
def test_a_job_whose_accelerators_are_not_measured_cannot_end_as_idle(
    device: str, problem: str
) -> None:
    """It would run for ever, though its user has asked for the opposite."""
    with pytest.raises(InvalidValue, match=problem):
        check_stop_idle(parse_device(device))
    check_stop_idle(parse_device("gpu:H100:8"))


def test_the_reason_has_the_numbers() -> None:
    """Its reader wants to know whether the threshold or the program is wrong."""
    report = IdleReport(since=datetime(2026, 11, 28, tzinfo=UTC), peak_percent=2.0)
    one, several = idle_reason(RULE, [report]), idle_reason(RULE, [report] * 4)
    for number in ("5%", "10m", "2%"):
        assert number in one
        assert number in several
    assert "4 tasks" in several
