"""The resource use of one attempt over time: a series of intervals that never has more than
`MOST_POINTS` of them, however long the attempt runs.

Agents add a sample every few seconds. When the series is full, neighbouring intervals are merged,
and each later interval is twice as long. An interval keeps the mean and the peak of its samples, so
no merge loses a peak, and the mean and the peak over the whole time stay exact.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, NamedTuple

from pydantic import Field

from iris.model.frozen import Frozen

#: The limit on intervals of a series. It is even, so that the intervals of a full series can be
#: merged in pairs.
MOST_POINTS = 200
#: A time or a duration in seconds. The range is checked, because a job may have written the series.
_Seconds = Annotated[float, Field(ge=0, le=1e10)]
_Amount = Annotated[float, Field(ge=0, le=2**63)]
#: The length of the first intervals of a series, in seconds. It is the usual time between two
#: samples of an agent.
FIRST_STEP = 2.0


class Stat(NamedTuple):
    """The mean and the peak of one measure over some time."""

    #: The time for which the measure is known, in seconds. It is less than the length of the
    #: interval if the agent did not run during a part of it.
    seconds: _Seconds
    mean: _Amount
    peak: _Amount

    def joined(self, other: "Stat") -> "Stat":
        """Returns the values over the time of both."""
        seconds = self.seconds + other.seconds
        if not seconds:
            return self
        mean = (self.mean * self.seconds + other.mean * other.seconds) / seconds
        return Stat(seconds, mean, max(self.peak, other.peak))


class Measures(NamedTuple):
    """The values of all measures over some time. A measure is None if it was not measured: for
    example, the GPU measures of a task without GPUs.
    """

    #: The use of cores, in percent of one core.
    cpu_percent: Stat | None = None
    memory_bytes: Stat | None = None
    #: The time in which a GPU computed, in percent, as the mean over the task's GPUs.
    gpu_percent: Stat | None = None
    #: The used GPU memory, as the sum over the task's GPUs, in bytes.
    gpu_memory_bytes: Stat | None = None
    #: The number of the task's GPUs that compute, or that hold memory of the program.
    gpus_in_use: Stat | None = None

    def joined(self, other: "Measures") -> "Measures":
        """Returns the values over the time of both."""
        return Measures(*map(_joined, self, other))


class Point(NamedTuple):
    """One interval of a series."""

    #: The beginning of the interval, in seconds since 1970.
    start: _Seconds
    #: The end of the interval, in seconds since 1970.
    end: _Seconds
    measures: Measures

    def joined(self, later: "Point") -> "Point":
        """Returns the interval that covers both."""
        return Point(self.start, later.end, self.measures.joined(later.measures))


class Series(Frozen):
    """The resource use of an attempt over time."""

    #: The length of a full interval, in seconds. When an interval has this length, the next sample
    #: begins a new interval.
    step: _Seconds = FIRST_STEP
    #: The intervals, in ascending order of time.
    points: tuple[Point, ...] = ()
    #: The values over the whole time of the series.
    whole: Measures = Measures()
    #: The total memory of all GPUs of the task, in bytes; None if it is not known.
    gpu_memory_total: Annotated[int, Field(ge=0, le=2**63)] | None = None

    @property
    def seconds(self) -> float:
        """The measured time, in seconds."""
        return self.whole.memory_bytes.seconds if self.whole.memory_bytes is not None else 0.0

    def with_sample(self, start: float, end: float, sample: Measures) -> "Series":
        """Returns the series with the values that were measured between two times, in seconds since
        1970. The times of the samples must ascend.
        """
        new, points, step = Point(start, end, sample), self.points, self.step
        if points and points[-1].end - points[-1].start < step:
            points = (*points[:-1], points[-1].joined(new))
        else:
            points = (*points, new)
        if len(points) > MOST_POINTS:
            points, step = _thinned(points), 2 * step
        changes = {"points": points, "step": step, "whole": self.whole.joined(sample)}
        return self.model_copy(update=changes)


def sample(
    seconds: float,
    cpu_percent: float,
    memory_bytes: int,
    gpu_percent: float | None = None,
    gpu_memory_bytes: int | None = None,
    gpus_in_use: int | None = None,
) -> Measures:
    """Returns values that were measured once for some seconds."""
    values = (cpu_percent, memory_bytes, gpu_percent, gpu_memory_bytes, gpus_in_use)
    return Measures(
        *(None if value is None else Stat(seconds, float(value), float(value)) for value in values)
    )


def _joined(one: Stat | None, other: Stat | None) -> Stat | None:
    if one is None or other is None:
        return one or other
    return one.joined(other)


def _thinned(points: Sequence[Point]) -> tuple[Point, ...]:
    """Returns half as many intervals, each of two neighbours. An odd last one stays as it is."""
    pairs = [one.joined(two) for one, two in list(pairwise(points))[::2]]
    return (*pairs, *points[2 * len(pairs) :])
