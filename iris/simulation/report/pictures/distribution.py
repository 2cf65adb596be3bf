"""Draws waits as cumulative distributions."""

import math
from bisect import bisect_right
from collections.abc import Sequence

from iris.simulation.history import History
from iris.simulation.report.forms import seconds
from iris.simulation.report.pictures.drawing import (
    LEFT,
    PLOT,
    RIGHT,
    WIDTH,
    Drawing,
    Line,
    Text,
    line,
    path,
    text,
)
from iris.simulation.report.quantiles import quantile

_TOP, _BOTTOM, _HEIGHT = 62.0, 262.0, 286.0
#: The CSS classes of the lines of the first and the second configuration. The second line is also
#: dashed.
_KINDS = ("first", "second")
#: The waits that the axis labels, in seconds.
_TICKS = (1, 10, 60, 600, 3600, 6 * 3600, 86_400, 7 * 86_400, 28 * 86_400)


def distribution(simulated: Sequence[tuple[str, History]]) -> Drawing:
    """Returns the part of the gangs that waited at most a time, for one or two simulations. The
    waits are on a logarithmic scale, and those up to a second are at its begin.

    Args:
        simulated: the names of the configurations, and what happened; the one of interest first.
    """
    waits = [
        (name, sorted(gang.waited(history.stopped) for gang in history.gangs))
        for name, history in simulated
    ]
    longest = max((each[-1] for _, each in waits if each), default=1.0)
    top = max(10.0, longest) * 1.05
    parts = [text(LEFT, 16, "part of the gangs that had hosts within a time"), *_grid(top)]
    for number, (name, each) in enumerate(waits):
        kind = _KINDS[number % 2]
        y = 33.0 + 15 * number
        parts.append(line(LEFT, y - 4, LEFT + 26, y - 4, f"line {kind}"))
        parts.append(text(LEFT + 33, y, _described(name, each), "small"))
        if each:
            parts.append(path(_places(each, top), kind))
    described = "; ".join(_described(name, each) for name, each in waits)
    return Drawing(
        height=_HEIGHT, described=f"Waits as distributions. {described}", shapes=tuple(parts)
    )


def _described(name: str, waits: Sequence[float]) -> str:
    if not waits:
        return f"{name}: no gangs"
    half, most = seconds(quantile(waits, 0.5)), seconds(quantile(waits, 0.9))
    return f"{name}: half within {half}, 90 % within {most}, all within {seconds(waits[-1])}"


def _grid(top: float) -> list[Text | Line]:
    parts: list[Text | Line] = []
    for percent in (0, 25, 50, 75, 100):
        y = _y(percent / 100)
        parts.append(line(LEFT, y, WIDTH - RIGHT, y, "grid" if percent else "axis"))
        parts.append(text(LEFT - 6, y + 4, f"{percent}%", "small end"))
    for each in _TICKS:
        if each <= top:
            x = LEFT + PLOT * math.log(each) / math.log(top)
            parts.append(line(x, _TOP, x, _BOTTOM, "grid"))
            parts.append(text(x, _BOTTOM + 14, seconds(each), "small middle"))
    return parts


def _y(part: float) -> float:
    return _BOTTOM - (_BOTTOM - _TOP) * part


def _places(waits: Sequence[float], top: float) -> list[tuple[float, float]]:
    """Returns the line: for each column, the part of the gangs that waited at most its time."""
    places: list[tuple[float, float]] = []
    for column in range(PLOT + 1):
        part = bisect_right(waits, top ** (column / PLOT)) / len(waits)
        if len(places) > 1 and places[-1][1] == places[-2][1] == _y(part):
            places.pop()
        places.append((LEFT + column, _y(part)))
    return places
