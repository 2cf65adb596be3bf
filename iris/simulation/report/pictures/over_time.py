"""Draws the queue and the use of the hosts over time."""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from iris.model.job.spec import Band
from iris.simulation.history import History, Sample
from iris.simulation.report.pictures.drawing import (
    LEFT,
    PLOT,
    Drawing,
    Shape,
    Span,
    area,
    legend,
    levels,
    text,
)

_PANEL = 120.0
#: The space above a panel, for its title and its legend, and the space below it, for the times.
_ABOVE, _BELOW = 42.0, 26.0


class _Columns(NamedTuple):
    """The values of one simulation, with one value for each column of the plot."""

    name: str
    #: For each band, the largest number of waiting gangs in each column.
    waiting: tuple[tuple[float, ...], ...]
    #: The mean number of ready hosts in each column.
    ready: tuple[float, ...]
    #: The mean number of hosts that gangs hold in each column.
    held: tuple[float, ...]


def over_time(simulated: Sequence[tuple[str, History]]) -> Drawing:
    """Returns two panels for each simulation: the waiting gangs by band, and the hosts. All have
    the same scales.

    Args:
        simulated: the names of the configurations, and what happened.
    """
    span = span_of(simulated)
    found = [_columns(name, history, span) for name, history in simulated]
    most_waiting = max(max(map(sum, zip(*each.waiting, strict=True))) for each in found)
    most_hosts = max(max(*each.ready, *each.held) for each in found)
    parts: list[Shape] = []
    top = 0.0
    for each in found:
        before = f"{each.name}: " if len(found) > 1 else ""
        parts += _queue(each, f"{before}waiting gangs", most_waiting, span, top)
        top += _ABOVE + _PANEL + _BELOW
        parts += _hosts(each, f"{before}hosts", most_hosts, span, top)
        top += _ABOVE + _PANEL + _BELOW
    peaks = "; ".join(
        f"{each.name}: at most {max(map(sum, zip(*each.waiting, strict=True))):,.0f} gangs waited,"
        f" at most {max(each.ready):,.0f} hosts were ready"
        for each in found
    )
    return Drawing(height=top, described=f"Queue and use over time. {peaks}", shapes=tuple(parts))


def span_of(simulated: Sequence[tuple[str, History]]) -> Span:
    """Returns the time of all simulations."""
    begin = min(history.begins for _, history in simulated)
    return Span(begin, max(history.stopped for _, history in simulated))


def _columns(name: str, history: History, span: Span) -> _Columns:
    samples = history.samples

    def waiting_in(band: int) -> tuple[float, ...]:
        return _values(samples, span, lambda each: each.waiting[band], max)

    waiting = tuple(map(waiting_in, range(len(Band))))
    ready = _values(samples, span, lambda each: sum(each.ready), _mean)
    held = _values(samples, span, lambda each: sum(each.held), _mean)
    return _Columns(name, waiting, ready, held)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _values(
    samples: Sequence[Sample],
    span: Span,
    value: Callable[[Sample], float],
    joined: Callable[[Sequence[float]], float],
) -> tuple[float, ...]:
    """Returns a value for each column: that of its samples, or of the last one before it."""
    found: dict[int, list[float]] = {}
    for each in samples:
        found.setdefault(min(PLOT - 1, int(span.column(each.at))), []).append(value(each))
    last = max(found, default=-1)
    columns: list[float] = []
    for column in range(PLOT):
        if column in found:
            columns.append(joined(found[column]))
        else:
            columns.append(columns[-1] if columns and column <= last else 0.0)
    return tuple(columns)


def _queue(each: _Columns, title: str, most: float, span: Span, top: float) -> Iterator[Shape]:
    yield text(LEFT, top + 16, title)
    yield from legend([(band.value, band.value) for band in Band], top + 34)
    upper, lower = top + _ABOVE, top + _ABOVE + _PANEL
    lines, high = levels(most, upper, lower)
    yield from (*span.axis(upper, lower), *lines)
    nothing: Sequence[float] = [0.0] * PLOT
    stacked = list(accumulate(each.waiting, _sums, initial=nothing))
    for band, (under, over) in zip(Band, pairwise(stacked), strict=True):
        tops, bottoms = (_places(values, high, upper, lower) for values in (over, under))
        yield area(tops, bottoms, band.value)


def _hosts(each: _Columns, title: str, most: float, span: Span, top: float) -> Iterator[Shape]:
    yield text(LEFT, top + 16, title)
    yield from legend([("held", "held by gangs"), ("ready", "ready")], top + 34)
    upper, lower = top + _ABOVE, top + _ABOVE + _PANEL
    lines, high = levels(most, upper, lower)
    yield from (*span.axis(upper, lower), *lines)
    ground = [lower] * PLOT
    yield area(_places(each.ready, high, upper, lower), ground, "ready")
    yield area(_places(each.held, high, upper, lower), ground, "held")


def _sums(one: Sequence[float], other: Sequence[float]) -> Sequence[float]:
    return [a + b for a, b in zip(one, other, strict=True)]


def _places(values: Sequence[float], high: float, upper: float, lower: float) -> list[float]:
    return [lower - (lower - upper) * min(1.0, value / high) for value in values]
