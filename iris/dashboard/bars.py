"""Draws amounts by day as bars, as SVG. A table beside it has the same numbers as text."""

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

#: The width and the height of the drawing, in its own units. The page scales the drawing.
WIDTH, HEIGHT = 720, 160
#: The space below the bars for the labels of days, and the space above the bars for the amounts.
BELOW, ABOVE = 18, 16
#: The limit on labels of days, because more labels would overlap.
MOST_LABELS = 10


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
    step = WIDTH / max(1, len(bars))
    every = -(-len(bars) // MOST_LABELS)
    parts = [
        Markup(
            '<svg class="bars" viewBox="0 0 {} {}" role="img" aria-label="{}">'
            '<line class="axis" x1="0" x2="{}" y1="{}" y2="{}"/>'
        ).format(WIDTH, HEIGHT, title, WIDTH, HEIGHT - BELOW, HEIGHT - BELOW)
    ]
    for index, bar in enumerate(bars):
        height = (HEIGHT - BELOW - ABOVE) * max(0.0, bar.amount) / highest
        left, top = index * step + step * 0.12, HEIGHT - BELOW - height
        parts.append(
            Markup(
                '<g><title>{}: {}</title><rect class="used" x="{:.1f}" y="{:.1f}" width="{:.1f}"'
                ' height="{:.1f}"/>'
            ).format(bar.label, bar.text, left, top, step * 0.76, height)
        )
        if index % every == 0:
            middle = index * step + step / 2
            parts.append(
                Markup('<text x="{:.1f}" y="{}">{}</text>').format(middle, HEIGHT - 4, bar.label)
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
