"""Charts as SVG, drawn without a script and without styles in the page.

The texts of a chart are HTML around the drawing, so that they keep their size when the drawing is
stretched. Each chart has its numbers as a text or a table, too.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup

from iris.dashboard.rendering import clean

#: The width and the height of a drawing in its own units. The page stretches the drawing to the
#: available width.
WIDTH, HEIGHT = 1000.0, 200.0
#: The limit on rows of the table that shows the values of a chart as text.
MOST_ROWS = 24
#: The CSS classes of the first and the second series of a chart. The lines also differ in their
#: dashes.
SERIES_CLASSES = ("first", "second")
#: The width and the height of a drawing of bars, in its own units. The page scales the drawing.
BARS_WIDTH, BARS_HEIGHT = 720, 160
#: The space below the bars for the labels of days, and the space above the bars for the amounts, in
#: the units of the drawing.
BELOW, ABOVE = 18, 16
#: The limit on labels of days, because more labels would overlap.
MOST_LABELS = 10


class Point(NamedTuple):
    at: datetime
    value: float


class Series(NamedTuple):
    """A line of a chart."""

    name: str
    #: The points, in the order of their times.
    points: Sequence[Point]


class Level(NamedTuple):
    """A horizontal line of a chart, such as the amount that a job requested."""

    name: str
    value: float


class Segment(NamedTuple):
    """A period in the bar of an attempt on a time line."""

    #: The phase of the attempt: `waiting`, `set-up` or `run`. It determines the height of the
    #: segment.
    kind: str
    start: datetime
    end: datetime
    title: str


#: The distance from the top and the height of each kind of segment. The whole bar has a height of
#: 20.
_HEIGHTS = {"waiting": (8.0, 4.0), "set-up": (5.0, 10.0), "run": (1.0, 18.0)}


def bar(segments: Sequence[Segment], start: datetime, end: datetime) -> Markup:
    """Returns a bar on a time line from `start` to `end`. Its text stands beside it."""
    span = max((end - start).total_seconds(), 0.001)

    def place(at: datetime) -> float:
        return WIDTH * min(1.0, max(0.0, (at - start).total_seconds() / span))

    parts = Markup("")
    for each in segments:
        top, height = _HEIGHTS[each.kind]
        left, right = place(each.start), place(each.end)
        parts += Markup(
            '<rect class="{}" x="{:.1f}" y="{}" width="{:.1f}" height="{}"><title>{}</title></rect>'
        ).format(each.kind, left, top, max(right - left, 2.0), height, clean(each.title))
    return Markup(
        '<svg class="bar" viewBox="0 0 1000 20" preserveAspectRatio="none" aria-hidden="true">{}'
        "</svg>"
    ).format(parts)


def line_chart(
    title: str,
    series: Sequence[Series],
    levels: Sequence[Level] = (),
    *,
    form: Callable[[float], str] = "{:g}".format,
) -> Markup:
    """Returns a chart of one or two series over time, with its legend and its numbers as a table.

    Args:
        series: their names must differ. Series without points are left out.
        levels: horizontal lines, whose values the legend shows.
        form: formats a value.
    """
    drawn = [each for each in series if each.points]
    if not drawn:
        return Markup(
            '<figure class="chart"><figcaption>{}</figcaption><p class="empty">No numbers yet.</p>'
            "</figure>"
        ).format(clean(title))
    start = min(each.points[0].at for each in drawn)
    end = max(each.points[-1].at for each in drawn)
    top = max(
        *(point.value for each in drawn for point in each.points),
        *(level.value for level in levels),
        0.0,
    )
    top = top * 1.05 or 1.0
    span = max((end - start).total_seconds(), 0.001)

    def x(at: datetime) -> float:
        return WIDTH * (at - start).total_seconds() / span

    def y(value: float) -> float:
        return HEIGHT * (1 - max(0.0, value) / top)

    shapes = [*_lines(drawn, levels, x, y), *_hover(drawn, x, form)]
    return Markup(
        '<figure class="chart"><figcaption>{}</figcaption>{}<div class="plot">'
        '<span class="most">{}</span><svg viewBox="0 0 1000 200" preserveAspectRatio="none"'
        ' role="img" aria-label="{}">{}</svg><span class="least">{}</span>'
        '<span class="start">{}</span><span class="end">{}</span></div>{}</figure>'
    ).format(
        clean(title),
        _legend(drawn, levels, form),
        form(top / 1.05),
        _summary(title, drawn, levels, form),
        Markup("").join(shapes),
        form(0),
        _clock(start),
        _clock(end),
        _table(drawn, form),
    )


def _lines(
    drawn: Sequence[Series],
    levels: Sequence[Level],
    x: Callable[[datetime], float],
    y: Callable[[float], float],
) -> list[Markup]:
    shapes = [
        Markup('<line class="level l{}" x1="0" x2="1000" y1="{:.1f}" y2="{:.1f}"/>').format(
            number, y(level.value), y(level.value)
        )
        for number, level in enumerate(levels)
    ]
    for number, each in enumerate(drawn):
        path = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in each.points)
        shapes.append(
            Markup('<polyline class="{}" points="{}"/>').format(SERIES_CLASSES[number % 2], path)
        )
    return shapes


def _hover(
    drawn: Sequence[Series], x: Callable[[datetime], float], form: Callable[[float], str]
) -> list[Markup]:
    """Returns invisible columns, each with the values of one time as its title."""
    times = sorted({point.at for each in drawn for point in each.points})
    values = [dict(each.points) for each in drawn]
    middles = [0.0, *((x(a) + x(b)) / 2 for a, b in pairwise(times)), WIDTH]
    columns = []
    for number, at in enumerate(times):
        texts = [
            f"{each.name} {form(known[at])}"
            for each, known in zip(drawn, values, strict=True)
            if at in known
        ]
        columns.append(
            Markup(
                '<rect class="hover" x="{:.1f}" y="0" width="{:.1f}" height="200"><title>{}'
                "</title></rect>"
            ).format(
                middles[number],
                max(middles[number + 1] - middles[number], 0.1),
                clean(f"{_clock(at)}: {', '.join(texts)}"),
            )
        )
    return columns


def _legend(
    drawn: Sequence[Series], levels: Sequence[Level], form: Callable[[float], str]
) -> Markup:
    items = [
        Markup('<li class="{}">{}</li>').format(SERIES_CLASSES[number % 2], clean(each.name))
        for number, each in enumerate(drawn)
    ]
    items += [
        Markup('<li class="level l{}">{} {}</li>').format(
            number, clean(level.name), form(level.value)
        )
        for number, level in enumerate(levels)
    ]
    return Markup('<ul class="legend">{}</ul>').format(Markup("").join(items))


def _summary(
    title: str,
    drawn: Sequence[Series],
    levels: Sequence[Level],
    form: Callable[[float], str],
) -> str:
    """Returns the chart as a sentence, for readers who do not see it."""
    parts = [
        f"{each.name} from {form(min(values))} to {form(max(values))}, last {form(values[-1])}"
        for each in drawn
        if (values := [point.value for point in each.points])
    ]
    parts += [f"{level.name} {form(level.value)}" for level in levels]
    return str(clean(f"{title}: {'; '.join(parts)}"))


def _table(drawn: Sequence[Series], form: Callable[[float], str]) -> Markup:
    """Returns the numbers as a table that opens, with at most `MOST_ROWS` times."""
    times = sorted({point.at for each in drawn for point in each.points})
    step = -(-len(times) // MOST_ROWS)
    values = [dict(each.points) for each in drawn]
    head = Markup("").join(
        Markup('<th class="number">{}</th>').format(clean(each.name)) for each in drawn
    )
    rows = Markup("").join(
        Markup("<tr><td>{}</td>{}</tr>").format(
            _clock(at),
            Markup("").join(
                Markup('<td class="number">{}</td>').format(form(known[at]) if at in known else "")
                for known in values
            ),
        )
        for at in times[::-step][::-1]
    )
    return Markup(
        "<details><summary>Numbers</summary><table><thead><tr><th>Time (UTC)</th>{}</tr></thead>"
        "<tbody>{}</tbody></table></details>"
    ).format(head, rows)


def _clock(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%m-%d %H:%M:%S")


class Bar(NamedTuple):
    """One bar of a bar chart."""

    label: str
    amount: float
    #: The amount as text, with its unit.
    text: str


def bar_chart(bars: Sequence[Bar], title: str) -> Markup:
    """Returns a drawing of the bars, the largest as high as the drawing.

    Args:
        title: what the drawing shows, for people who do not see it.
    """
    highest = max((bar.amount for bar in bars), default=0.0) or 1.0
    step = BARS_WIDTH / max(1, len(bars))
    every = -(-len(bars) // MOST_LABELS)
    parts = [
        Markup(
            '<svg class="bars" viewBox="0 0 {} {}" role="img" aria-label="{}">'
            '<line class="axis" x1="0" x2="{}" y1="{}" y2="{}"/>'
        ).format(
            BARS_WIDTH, BARS_HEIGHT, title, BARS_WIDTH, BARS_HEIGHT - BELOW, BARS_HEIGHT - BELOW
        )
    ]
    for index, bar in enumerate(bars):
        height = (BARS_HEIGHT - BELOW - ABOVE) * max(0.0, bar.amount) / highest
        left, top = index * step + step * 0.12, BARS_HEIGHT - BELOW - height
        parts.append(
            Markup(
                '<g><title>{}: {}</title><rect class="used" x="{:.1f}" y="{:.1f}" width="{:.1f}"'
                ' height="{:.1f}"/>'
            ).format(bar.label, bar.text, left, top, step * 0.76, height)
        )
        if index % every == 0:
            middle = index * step + step / 2
            parts.append(
                Markup('<text x="{:.1f}" y="{}">{}</text>').format(
                    middle, BARS_HEIGHT - 4, bar.label
                )
            )
        if len(bars) <= MOST_LABELS and bar.amount > 0:
            parts.append(
                Markup('<text class="amount" x="{:.1f}" y="{:.1f}">{}</text>').format(
                    index * step + step / 2, top - 4, bar.text
                )
            )
        parts.append(Markup("</g>"))
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)
