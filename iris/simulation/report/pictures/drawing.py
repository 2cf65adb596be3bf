"""The parts of all pictures: texts, axes, areas and the frame of an SVG drawing.

A picture is a value of shapes, which can be stored and read again. Its SVG has no script and
nothing from outside, follows the reader's choice of a light or a dark theme, and has its content as
a text for people who do not see it.
"""

import html
import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, Field

from iris.model.frozen import Frozen

#: The width of a picture in its own units, which are pixels at full size.
WIDTH = 720.0
#: The space to the left and to the right of a plot.
LEFT, RIGHT = 52.0, 14.0
#: The width of a plot, which is the number of columns for which values are computed.
PLOT = round(WIDTH - LEFT - RIGHT)
#: The style sheet with the colours of pictures and pages, as CSS variables.
COLOURS = """\
:root {
  --ground: #ffffff; --text: #1b1c26; --quiet: #5c5f72; --line: #dcdce6; --ready: #c9ccdd;
  --first: #3f4bc4; --second: #b35900; --held: #5a67d8; --boot: #d9a441; --bad: #b3202c;
  --production: #0b6478; --interactive: #5a67d8; --batch: #b9bddb;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #1c1e28; --text: #eceef5; --quiet: #a6a9bb; --line: #343747; --ready: #474b63;
    --first: #a5b0ff; --second: #efb36a; --held: #7c88f0; --boot: #a87d2c; --bad: #ff9aa2;
    --production: #7fd3e6; --interactive: #7c88f0; --batch: #4a4f73;
  }
}
"""
#: The style sheet for the shapes of pictures.
SHAPES = """\
svg text { font: 12px system-ui, sans-serif; fill: var(--text); }
svg .small { font-size: 11px; fill: var(--quiet); }
svg .end { text-anchor: end; } svg .middle { text-anchor: middle; }
svg .ground { fill: var(--ground); } svg .grid { stroke: var(--line); stroke-width: 1; }
svg .axis { stroke: var(--quiet); stroke-width: 1; }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
svg .first { stroke: var(--first); } svg .second { stroke: var(--second); stroke-dasharray: 6 3; }
svg .ready { fill: var(--ready); } svg .held { fill: var(--held); } svg .boot { fill: var(--boot); }
svg .lost { stroke: var(--bad); stroke-width: 2; fill: none; }
svg .production { fill: var(--production); } svg .interactive { fill: var(--interactive); }
svg .batch { fill: var(--batch); }
"""
#: Matches the characters that are replaced in texts of pictures and pages: control characters, and
#: characters that change the direction of the text after them.
_UNFIT = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_TIME_STEPS = tuple(
    timedelta(minutes=each)
    for each in (1, 5, 15, 30, 60, 180, 360, 720, 1440, 2880, 10080, 20160, 40320, 161280)
)
_MOST_TIMES = 8
#: The CSS classes that shapes may have. `SHAPES` has a style for each.
CLASSES = frozenset(
    (
        *("small", "end", "middle", "ground", "grid", "axis", "line", "first", "second"),
        *("ready", "held", "boot", "lost", "production", "interactive", "batch"),
    )
)


def _with_styles(kind: str) -> str:
    """Returns the classes of a shape.

    Raises:
        ValueError: there is no style for one of them.
    """
    if unknown := [each for each in kind.split(" ") if each and each not in CLASSES]:
        raise ValueError(f"the class {unknown[0]} has no style")
    return kind


#: A coordinate or a length in a picture. Its range is limited, because stored pictures may have
#: been written by anybody who can write to the store.
Place = Annotated[float, Field(ge=-1_000_000, le=1_000_000, allow_inf_nan=False)]
#: The CSS classes of a shape, separated by spaces.
Kind = Annotated[str, AfterValidator(_with_styles)]


class Text(Frozen):
    """A text. `x` and `y` are the beginning of its baseline. If its CSS classes contain `middle` or
    `end`, they are the middle or the end of the baseline.
    """

    shape: Literal["text"] = "text"
    x: Place
    y: Place
    content: str
    kind: Kind = ""

    def svg(self) -> str:
        place = f'x="{self.x:.1f}" y="{self.y:.1f}"'
        return f'<text {place} class="{self.kind}">{escape(self.content)}</text>'


class Rect(Frozen):
    """A rectangle. `x` and `y` are its upper left corner."""

    shape: Literal["rect"] = "rect"
    x: Place
    y: Place
    width: Annotated[Place, Field(ge=0)]
    height: Annotated[Place, Field(ge=0)]
    kind: Kind = ""

    def svg(self) -> str:
        size = f'width="{self.width:.1f}" height="{self.height:.1f}"'
        return f'<rect x="{self.x:.1f}" y="{self.y:.1f}" {size} class="{self.kind}"/>'


class Line(Frozen):
    """A line through points, or the area that the line encloses."""

    shape: Literal["polyline", "polygon"]
    #: The coordinates of the points: x, y, x, y and so on.
    places: Annotated[tuple[Place, ...], Field(min_length=4)]
    kind: Kind = ""

    def svg(self) -> str:
        if self.shape == "polyline" and len(self.places) == 4:
            ends = zip(("x1", "y1", "x2", "y2"), self.places, strict=True)
            said = " ".join(f'{name}="{each:.1f}"' for name, each in ends)
            return f'<line {said} class="{self.kind}"/>'
        pairs = zip(self.places[::2], self.places[1::2], strict=False)
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in pairs)
        return f'<{self.shape} points="{points}" class="{self.kind}"/>'


class Group(Frozen):
    """Shapes with one title, which is shown while the pointer is over one of them."""

    shape: Literal["group"] = "group"
    title: str
    shapes: tuple[Annotated[Text | Rect | Line, Field(discriminator="shape")], ...]

    def svg(self) -> str:
        inside = "".join(each.svg() for each in self.shapes)
        return f"<g><title>{escape(self.title)}</title>{inside}</g>"


Shape = Annotated[Text | Rect | Line | Group, Field(discriminator="shape")]


class Drawing(Frozen):
    """A picture of a report."""

    height: Annotated[Place, Field(ge=0)]
    #: A description of the picture, for people who cannot see it.
    described: str
    shapes: tuple[Shape, ...]

    def svg(self, *, alone: bool = True) -> str:
        """Returns the picture as SVG.

        Args:
            alone: whether it is a file of its own, which brings its styles.
        """
        style = f"<style>{COLOURS}{SHAPES}</style>" if alone else ""
        ground = rect(0, 0, WIDTH, self.height, "ground").svg()
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {self.height:.0f}"'
            f' width="{WIDTH:.0f}" height="{self.height:.0f}" role="img"'
            f' aria-label="{escape(self.described)}">'
            f"{style}{ground}{''.join(each.svg() for each in self.shapes)}</svg>"
        )


def escape(text: str) -> str:
    """Returns a text for HTML and SVG."""
    return html.escape(_UNFIT.sub("\ufffd", text))


class Span(NamedTuple):
    """The time span that a picture shows on its horizontal axis."""

    begin: datetime
    end: datetime

    def x(self, at: datetime) -> float:
        """Returns the place of a time in a picture."""
        return LEFT + self.column(at)

    def column(self, at: datetime) -> float:
        """Returns the place of a time in a plot, from 0 to `PLOT`."""
        length = max((self.end - self.begin).total_seconds(), 0.001)
        part = (at - self.begin).total_seconds() / length
        return PLOT * min(1.0, max(0.0, part))

    def axis(self, top: float, bottom: float) -> list[Text | Line]:
        """Returns vertical lines at round times, with their labels below."""
        length = self.end - self.begin
        step = next((each for each in _TIME_STEPS if length / each <= _MOST_TIMES), length)
        zero = self.begin.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        first = zero - timedelta(days=zero.weekday())
        at = first + -(-(self.begin - first) // step) * step if step else self.begin
        parts: list[Text | Line] = []
        while at <= self.end:
            parts.append(line(self.x(at), top, self.x(at), bottom, "grid"))
            is_day = at.hour == at.minute == 0
            label = f"{at:%m-%d}" if is_day else f"{at:%H:%M}"
            parts.append(text(self.x(at), bottom + 14, label, "small middle"))
            if not step:
                break
            at += step
        return parts


def text(x: float, y: float, content: str, kind: str = "") -> Text:
    """Returns a text whose baseline begins, or ends or is centred, at a place."""
    return Text(x=_round(x), y=_round(y), content=content, kind=kind)


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Line:
    return _through("polyline", ((x1, y1), (x2, y2)), kind)


def rect(x: float, y: float, width: float, height: float, kind: str) -> Rect:
    return Rect(x=_round(x), y=_round(y), width=_round(width), height=_round(height), kind=kind)


def cross(x: float, y: float, kind: str) -> Line:
    """Returns two lines that cross at a place."""
    corners = ((-4, -4), (4, 4), (0, 0), (4, -4), (-4, 4))
    return _through("polyline", ((x + right, y + down) for right, down in corners), kind)


def area(upper: Sequence[float], lower: Sequence[float], kind: str, first: float = LEFT) -> Line:
    """Returns the area between two lines with a value for each column.

    Args:
        first: the place of the first column.
    """
    forth = _steps(upper, first)
    back = _steps(lower, first)[::-1]
    return _through("polygon", (*forth, *back), kind)


def path(places: Iterable[tuple[float, float]], kind: str) -> Line:
    """Returns a line through places."""
    return _through("polyline", places, f"line {kind}")


def _through(
    shape: Literal["polyline", "polygon"], places: Iterable[tuple[float, float]], kind: str
) -> Line:
    flat = tuple(_round(each) for place in places for each in place)
    return Line(shape=shape, places=flat, kind=kind)


def _round(value: float) -> float:
    """Returns a value as it is drawn. A stored picture is as small as the drawing."""
    return round(value, 1)


def _steps(values: Sequence[float], first: float) -> list[tuple[float, float]]:
    """Returns the corners of a line with a value for each column: two for each run of equal
    ones.
    """
    places: list[tuple[float, float]] = []
    begin = 0
    for column in range(1, len(values) + 1):
        if column == len(values) or abs(values[column] - values[begin]) >= 0.05:
            places += [(first + begin, values[begin]), (first + column, values[begin])]
            begin = column
    return places


def levels(most: float, top: float, bottom: float) -> tuple[list[Text | Line], float]:
    """Returns horizontal lines at round values from 0 on, with their labels, and the value at the
    top.

    Args:
        most: the largest value.
    """
    step = _round_step(most)
    count = max(1, math.ceil(most / step - 1e-9))
    parts: list[Text | Line] = []
    for number in range(count + 1):
        y = bottom - (bottom - top) * number / count
        parts.append(line(LEFT, y, WIDTH - RIGHT, y, "grid" if number else "axis"))
        parts.append(text(LEFT - 6, y + 4, f"{number * step:,.10g}", "small end"))
    return parts, count * step


def _round_step(most: float) -> float:
    """Returns 1, 2 or 5 times a power of ten, so that about four steps reach the value."""
    if most <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most / 4))
    fitting = (each * power for each in (1, 2, 5, 10) if each * power * 4.5 >= most)
    return max(1.0, next(fitting, 10 * power))


def legend(entries: Sequence[tuple[str, str]], y: float, x: float = LEFT) -> list[Text | Rect]:
    """Returns the meaning of areas: a square of each kind with its text, in one line."""
    parts: list[Text | Rect] = []
    for kind, content in entries:
        parts.append(rect(x, y - 9, 10, 10, kind))
        parts.append(text(x + 15, y, content, "small"))
        x += 27 + 6.2 * len(content)
    return parts
