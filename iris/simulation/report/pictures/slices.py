"""Draws the slices of each scale group as bars: when they were requested, ready and gone, how much
of them gangs held, and which of them were lost.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from iris.simulation.history import History, Refused
from iris.simulation.report.forms import count, percent
from iris.simulation.report.pictures.drawing import (
    LEFT,
    PLOT,
    RIGHT,
    WIDTH,
    Drawing,
    Group,
    Line,
    Rect,
    Shape,
    Span,
    Text,
    area,
    cross,
    legend,
    line,
    rect,
    text,
)
from iris.usage.records import AttemptUse, SliceUse

#: The height of a bar, and the height of a row including the gap below the bar.
_BAR, _ROW = 9.0, 11.0
#: The limit on rows for each scale group.
_MOST_ROWS = 40


class _Held(NamedTuple):
    """The share of a slice that one attempt held, and when."""

    begin: datetime
    end: datetime
    #: The held share of all hosts of the slice, from 0 to 1.
    part: float


def slices(history: History, span: Span, title: str = "") -> Drawing:
    """Returns the bars of all slices, by scale group.

    Args:
        span: the time to show.
        title: the name of the configuration; empty for none.
    """
    uses = [each for each in history.uses if isinstance(each, SliceUse)]
    held = _held_parts(history, {each.id: max(1, each.hosts) for each in uses})
    kinds = [("boot", "not ready yet"), ("ready", "ready"), ("held", "held by gangs")]
    begin = 34.0 if title else 18.0
    parts: list[Shape] = [*legend(kinds, begin), *_lost_legend(begin)]
    if title:
        parts.append(text(LEFT, 16, title))
    top = begin + 14
    for group in history.groups:
        own = [each for each in uses if each.group == group]
        faults = [each for each in history.faults if each.group == group]
        drawn, top = _group(group, own, faults, held, span, top)
        parts += drawn
    made = sum(each.ready_at is not None for each in uses)
    described = f"{title or 'Slices over time'}: {made:,} slices in {len(history.groups)} groups"
    return Drawing(height=top + 4, described=described, shapes=tuple(parts))


def _lost_legend(y: float) -> tuple[Text | Line, ...]:
    x = LEFT + 310
    return (
        cross(x, y - 4, "lost"),
        text(x + 9, y, "lost", "small"),
        line(x + 50, y - 9, x + 50, y + 1, "lost"),
        text(x + 58, y, "failed request", "small"),
    )


def _held_parts(history: History, hosts: dict[str, int]) -> dict[str, list[_Held]]:
    """Returns what attempts held of each slice: an equal part of each of their slices."""
    held: dict[str, list[_Held]] = defaultdict(list)
    for use in history.uses:
        if isinstance(use, AttemptUse):
            for each in use.slices:
                part = use.host_share / len(use.slices) / hosts.get(each, 1)
                held[each].append(_Held(use.placed_at, use.ended_at, part))
    return held


def _group(
    name: str,
    uses: Sequence[SliceUse],
    faults: Sequence[Refused],
    held: dict[str, list[_Held]],
    span: Span,
    top: float,
) -> tuple[list[Shape], float]:
    """Returns the part of a scale group, and where it ends."""
    bars = sorted(
        (each for each in uses if each.ready_at is not None or each.open),
        key=lambda each: (each.requested_at, each.id),
    )
    rows = _rows(bars)
    hidden = sum(row >= _MOST_ROWS for row in rows)
    ready = {each.id: each for each in bars}
    lost = {each.slice_id for each in faults if each.slice_id in ready}
    refused = [each for each in faults if each.slice_id not in ready]
    title = f"{name}: {len(bars):,} slices"
    title += f", {len(refused):,} failed requests" if refused else ""
    title += f" ({hidden:,} slices are not shown)" if hidden else ""
    parts: list[Shape] = [text(LEFT, top + 12, title)]
    upper = top + 20
    lower = upper + _ROW * max(1, min(_MOST_ROWS, 1 + max(rows, default=0)))
    parts += span.axis(upper, lower)
    parts.append(line(LEFT, lower, WIDTH - RIGHT, lower, "axis"))
    for each in refused:
        parts.append(line(span.x(each.at), upper - 5, span.x(each.at), upper + 1, "lost"))
    for use, row in zip(bars, rows, strict=True):
        if row < _MOST_ROWS:
            y = upper + _ROW * row + 1
            parts.append(_bar(use, held.get(use.id, ()), use.id in lost, span, y))
    return parts, lower + 30


def _rows(uses: Iterable[SliceUse]) -> list[int]:
    """Returns a row for each slice, so that no two slices of a row overlap: the first free one.

    Args:
        uses: in the order of their requests.
    """
    found: list[int] = []
    free: list[int] = []
    busy: list[tuple[datetime, int]] = []
    for use in uses:
        while busy and busy[0][0] <= use.requested_at:
            heapq.heappush(free, heapq.heappop(busy)[1])
        row = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (use.gone_at, row))
        found.append(row)
    return found


def _bar(use: SliceUse, held: Sequence[_Held], is_lost: bool, span: Span, y: float) -> Group:
    requested, gone = span.x(use.requested_at), span.x(use.gone_at)
    ready = gone if use.ready_at is None else span.x(use.ready_at)
    parts: list[Rect | Line] = [rect(requested, y, max(0.5, ready - requested), _BAR, "boot")]
    parts.append(rect(ready, y, max(0.5, gone - ready), _BAR, "ready"))
    first, columns = _columns(held, span)
    if columns:
        tops = [y + _BAR * (1 - min(1.0, each)) for each in columns]
        parts.append(area(tops, [y + _BAR] * len(tops), "held", LEFT + first))
    if is_lost:
        parts.append(cross(gone, y + _BAR / 2, "lost"))
    return Group(title=_told(use, held, is_lost), shapes=tuple(parts))


def _columns(held: Sequence[_Held], span: Span) -> tuple[int, list[float]]:
    """Returns the first column in which a slice was held, and the mean held part of it and of the
    following ones.
    """
    if not held:
        return 0, []
    first = min(PLOT - 1, int(min(span.column(each.begin) for each in held)))
    last = min(PLOT - 1, int(max(span.column(each.end) for each in held)))
    parts = [0.0] * (last - first + 1)
    for each in held:
        begin, end = span.column(each.begin), span.column(each.end)
        for column in range(int(begin), min(last, int(end)) + 1):
            overlap = min(end, column + 1) - max(begin, column)
            parts[column - first] += each.part * max(0.0, overlap)
    return first, parts


def _told(use: SliceUse, held: Sequence[_Held], is_lost: bool) -> str:
    """Returns the bar as a text."""
    if use.ready_at is None:
        return f"{use.id}: requested {use.requested_at:%m-%d %H:%M}, not ready yet"
    ready = (use.gone_at - use.ready_at).total_seconds()
    used = sum((each.end - each.begin).total_seconds() * each.part for each in held)
    end = "lost" if is_lost else "still there" if use.open else "gone"
    return (
        f"{use.id} in {use.zone}: requested {use.requested_at:%m-%d %H:%M}, ready"
        f" {use.ready_at:%m-%d %H:%M}, {end} {use.gone_at:%m-%d %H:%M};"
        f" {count(len(held))} attempts held {percent(min(1.0, used / ready)) if ready else '0%'}"
    )
