"""Charts as SVG: what they draw, and that their numbers can be read without them."""

import re
from datetime import timedelta

from iris.dashboard.charts import MOST_ROWS, Level, Point, Segment, Series, bar, line_chart
from tests.builders import at


def test_a_bar_has_each_part_at_its_time_and_a_visible_width() -> None:
    """A set-up of a millisecond in a run of a day must still be seen."""
    html = bar(
        [
            Segment("waiting", at(0), at(50), "waiting 50s"),
            Segment("set-up", at(50), at(50), "set-up 0s"),
            Segment("run", at(50), at(200), "run 150s"),
        ],
        at(0),
        at(100),
    )

    found = re.findall(r'class="([a-z-]+)" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', html)
    assert found == [
        ("waiting", "0.0", "500.0"),
        ("set-up", "500.0", "2.0"),
        ("run", "500.0", "500.0"),
    ]
    assert "<title>run 150s</title>" in html


def test_a_chart_has_its_levels_its_hover_texts_and_its_numbers() -> None:
    """Who does not see the drawing gets the same numbers as a sentence and as a table."""
    used = Series("used", [Point(at(10 * n), float(n)) for n in range(5)])
    html = line_chart("Memory", [used], [Level("requested", 8.0)], form="{:g} GiB".format)

    assert 'points="0.0,200.0 ' in html
    assert "requested 8 GiB" in html
    assert html.count('class="hover"') == 5
    assert "01-01 12:00:40: used 4 GiB</title>" in html
    assert 'aria-label="Memory: used from 0 GiB to 4 GiB, last 4 GiB; requested 8 GiB"' in html
    assert html.count("<tr><td>") == 5


def test_two_series_share_the_times_and_gaps_stay_empty() -> None:
    """Samples of two sources need not come at the same times."""
    html = line_chart(
        "Use",
        [Series("mean", [Point(at(0), 1), Point(at(20), 2)]), Series("peak", [Point(at(10), 3)])],
    )

    assert html.count('class="hover"') == 3
    assert '<td class="number">3</td>' in html
    assert '<td class="number"></td><td class="number">3</td>' in html


def test_odd_numbers_of_points_are_drawn() -> None:
    """A job has one sample at first, and a long one thousands."""
    assert "No numbers yet" in line_chart("Use", [Series("used", [])])
    assert "NaN" not in line_chart("Use", [Series("used", [Point(at(0), 0)])])
    many = [Point(at(n), n) for n in range(1000)]
    assert line_chart("Use", [Series("used", many)]).count("<tr><td>") <= MOST_ROWS


def test_names_in_a_chart_are_texts() -> None:
    """A job may choose the name of a series or of a reason."""
    evil = "<script>\u202ealert(1)</script>"
    html = line_chart(evil, [Series(evil, [Point(at(0), 1)])], [Level(evil, 1)])
    html += bar([Segment("run", at(0), at(1), evil)], at(0), at(0) + timedelta(seconds=1))

    assert "<script" not in html
    assert "\u202e" not in html
