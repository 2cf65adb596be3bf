"""The series of an attempt's use: bounded for ever, with nothing lost that a reader asks for."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from iris.usage.series import MOST_POINTS, Series, sample
from tests.strategies import examples

MIB = 1024 * 1024
_SAMPLES = st.lists(
    st.tuples(
        st.floats(0.5, 30, allow_nan=False),
        st.floats(0, 6400, allow_nan=False),
        st.integers(0, 2**40),
        st.none() | st.floats(0, 100, allow_nan=False),
    ),
    min_size=1,
    max_size=5 * MOST_POINTS,
)


@given(_SAMPLES)
@settings(max_examples=examples(200))
def test_a_series_never_grows_beyond_its_limit_and_its_peak_and_mean_stay_exact(
    samples: list[tuple[float, float, int, float | None]],
) -> None:
    """A run of a week writes no more than one of an hour, and the advice that is given from the
    peak must not miss one.
    """
    series, now = Series(), 1_700_000_000.0
    for seconds, cpu, memory, gpu in samples:
        series = series.with_sample(now, now + seconds, sample(seconds, cpu, memory, gpu))
        now += seconds
        assert len(series.points) <= MOST_POINTS

    time = sum(seconds for seconds, *_ in samples)
    cpu_use, memory_use = series.whole.cpu_percent, series.whole.memory_bytes
    assert cpu_use is not None
    assert memory_use is not None
    assert cpu_use.peak == max(cpu for _, cpu, _, _ in samples)
    assert memory_use.peak == max(memory for _, _, memory, _ in samples)
    assert cpu_use.mean == pytest.approx(sum(t * cpu for t, cpu, _, _ in samples) / time)
    assert series.seconds == pytest.approx(time)
    with_gpu = [(seconds, gpu) for seconds, _, _, gpu in samples if gpu is not None]
    gpu_use = series.whole.gpu_percent
    assert (gpu_use is None) == (not with_gpu)
    if gpu_use is not None:
        measured = sum(seconds for seconds, _ in with_gpu)
        assert gpu_use.seconds == pytest.approx(measured)
        assert gpu_use.mean == pytest.approx(sum(t * gpu for t, gpu in with_gpu) / measured)

    # The intervals together say the same as the whole.
    of_points = [point.measures.memory_bytes for point in series.points]
    assert max(each.peak for each in of_points if each is not None) == memory_use.peak
    assert sum(each.seconds for each in of_points if each is not None) == pytest.approx(time)
    for one, two in zip(series.points, series.points[1:], strict=False):
        assert one.start < one.end <= two.start


def test_a_day_of_samples_has_intervals_of_one_length_and_fits_into_a_small_object() -> None:
    """One object for each attempt is written again and again, so it has to stay small."""
    series = Series()
    for number in range(24 * 60 * 30):
        at = 1_700_000_000 + 2.0 * number
        series = series.with_sample(
            at, at + 2, sample(2.0, 99.7, 31_234_567_890, 87.5, 61_234_567_890, 8)
        )

    lengths = {round(point.end - point.start) for point in series.points[:-1]}
    assert lengths == {512}
    assert MOST_POINTS // 2 <= len(series.points) <= MOST_POINTS
    assert len(series.model_dump_json()) < 64 * 1024


def test_a_series_is_the_same_after_it_was_stored() -> None:
    """The next agent of the host goes on with it."""
    series = Series().with_sample(10, 12, sample(2.0, 150.0, 3 * MIB))
    assert Series.model_validate_json(series.model_dump_json()) == series


@pytest.mark.parametrize(
    "stat", ["[2.0,NaN,1.0]", "[2.0,1e400,1.0]", "[-1.0,1.0,1.0]", "[1e300,1.0,1.0]", '["a",1,1]']
)
def test_a_series_that_no_agent_wrote_is_refused(stat: str) -> None:
    """A job may write to the store and to its directory. Neither a reader nor an agent, which
    measures other users' programs, too, must end with an error of arithmetic.
    """
    good = Series().with_sample(10, 12, sample(2.0, 150.0, 3 * MIB)).model_dump_json()
    bad = good.replace("[2.0,150.0,150.0]", stat)
    assert bad != good
    with pytest.raises(ValidationError):
        Series.model_validate_json(bad)
