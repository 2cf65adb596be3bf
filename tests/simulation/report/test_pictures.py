"""The pictures of a simulation. They are read as XML, as a browser reads them."""

import re
from datetime import timedelta
from xml.etree import ElementTree

import pytest

from iris.simulation.history import History, Sample
from iris.simulation.report.pictures.distribution import distribution
from iris.simulation.report.pictures.drawing import LEFT, PLOT, Span, Text, escape, levels
from iris.simulation.report.pictures.over_time import over_time, span_of
from iris.simulation.report.pictures.slices import slices
from tests.simulation.report.made_histories import a_day, gang, history
from tests.usage.made_uses import at, attempt, slice_use

SVG = "{http://www.w3.org/2000/svg}"


def drawn(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)


def all_of(picture: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [each for each in picture.iter() if kind in each.get("class", "").split()]


def places(shape: ElementTree.Element) -> list[tuple[float, float]]:
    pairs = (each.split(",") for each in shape.get("points", "").split())
    return [(float(x), float(y)) for x, y in pairs]


def bars(of: History) -> dict[str, ElementTree.Element]:
    """The bars of slices by their ids."""
    picture = drawn(slices(of, span_of([("", of)])).svg())
    found = {}
    for each in picture.iter(f"{SVG}g"):
        title = each.find(f"{SVG}title")
        assert title is not None
        found[re.split("[: ]", title.text or "")[0]] = each
    return found


@pytest.mark.parametrize("alone", [True, False])
def test_a_picture_needs_nothing_from_outside_and_no_script(alone: bool) -> None:
    """It is sent by mail and opened years later."""
    days = [("old", a_day(5)), ("new", a_day(3))]
    span = span_of(days)
    for drawing in (
        over_time(days),
        distribution(days),
        slices(days[0][1], span, "old"),
    ):
        text = drawing.svg(alone=alone)
        picture = drawn(text)
        assert picture.get("aria-label")
        assert not re.search("script|href|url\\(|@import", text)
        assert ("prefers-color-scheme: dark" in text) is alone


def test_names_are_escaped() -> None:
    """A configuration's name is a path, which may have any characters."""
    day = a_day()
    for drawing in (
        over_time([("a&b<c>", day), ("\x00", day)]),
        distribution([("a&b<c>", day)]),
        slices(day, span_of([("", day)]), "a&b<c>"),
    ):
        assert "a&b<c>" in "".join(drawn(drawing.svg()).itertext())
    assert escape("a\u202eb\x1b") == "a\ufffdb\ufffd"


def test_waits_are_a_line_from_the_first_second_to_all_gangs() -> None:
    """Half of the gangs have hosts at once, the other half after an hour."""
    gangs = [gang(number, 0, number % 2, 4) for number in range(10)]
    picture = drawn(distribution([("new", history(gangs))]).svg())
    (line,) = (each for each in all_of(picture, "first") if each.tag == f"{SVG}polyline")
    (x, begin), *_, (_, end) = places(line)
    top, bottom = 62.0, 262.0
    assert (x, begin, end) == (LEFT, (top + bottom) / 2, top)
    assert "half within 0s, 90 % within 1h" in "".join(picture.itertext())


def test_two_configurations_have_lines_that_differ_without_colour() -> None:
    """Some people do not see the colours."""
    text = distribution([("new", a_day(3)), ("old", a_day(5))]).svg()
    lines = list(drawn(text).iter(f"{SVG}polyline"))
    assert [each.get("class") for each in lines] == ["line first", "line second"]
    assert re.search(r"\.second \{[^}]*dasharray", text)


def test_the_queue_is_as_high_as_its_peak() -> None:
    """A peak of one sample is seen, also if a column has several samples."""
    samples = [
        Sample(at(0) + timedelta(seconds=each), (0, 0, 1), 0, (4,), (1,)) for each in range(9)
    ]
    samples.append(Sample(at(12), (2, 0, 6), 0, (4,), (2.0,)))
    samples.append(Sample(at(12) + timedelta(seconds=1), (0, 0, 0), 0, (4,), (2.0,)))
    picture = drawn(over_time([("new", history([], samples=samples))]).svg())
    (batch,) = (each for each in all_of(picture, "batch") if each.tag == f"{SVG}polygon")
    _, high = levels(8, 42.0, 162.0)
    assert min(y for _, y in places(batch)) == 162.0 - 120.0 * 8 / high
    assert "at most 8 gangs waited, at most 4 hosts were ready" in picture.get("aria-label", "")


def test_a_simulation_without_samples_or_gangs_is_drawn() -> None:
    """An empty hour is no error."""
    nothing = history([])
    assert drawn(over_time([("new", nothing)]).svg()) is not None
    assert "no gangs" in "".join(drawn(distribution([("new", nothing)]).svg()).itertext())
    assert drawn(slices(nothing, span_of([("new", nothing)])).svg()) is not None


def test_a_bar_shows_when_a_slice_was_requested_ready_and_gone() -> None:
    """Twelve hours of a day are half of the plot."""
    whole = bars(history([], [slice_use(0, 6, 12)]))["s1"]
    boot, ready = whole.findall(f"{SVG}rect")
    assert (boot.get("class"), ready.get("class")) == ("boot", "ready")
    assert float(boot.get("x", "")) == LEFT
    assert float(boot.get("width", "")) == float(ready.get("width", "")) == round(PLOT / 4, 1)


def test_the_held_part_of_a_bar_is_as_high_as_its_share() -> None:
    """A quarter of a host for six hours; a gang on two slices holds its part of each."""
    uses = [
        slice_use(0, 0, 24),
        slice_use(0, 0, 24, id="s2", hosts=4),
        attempt(0, 6, host_share=0.25),
        attempt(6, 24, id="both", slices=("s1", "s2"), hosts=2, host_share=2.0),
    ]
    found = bars(history([], uses))
    (one,), (two,) = (each.findall(f"{SVG}polygon") for each in found.values())
    heights = [
        max(y for _, y in places(each)) - min(y for _, y in places(each)) for each in (one, two)
    ]
    assert heights == [pytest.approx(9.0, abs=0.1), pytest.approx(9.0 / 4, abs=0.1)]
    assert "held 81%" in "".join(found["s1"].itertext())
    assert "held 19%" in "".join(found["s2"].itertext())


def test_lost_slices_and_failed_requests_are_marked() -> None:
    """A cross at the end of a bar, and a tick above all bars."""
    day = a_day()
    found = bars(day)
    marks = {name: len(all_of(each, "lost")) for name, each in found.items()}
    assert marks == {"s1": 0, "s2": 1}
    assert "lost 11-02 08:00" in "".join(found["s2"].itertext())
    text = "".join(drawn(slices(day, span_of([("", day)])).svg()).itertext())
    assert "cpu: 2 slices, 1 failed requests" in text


def test_slices_share_a_row_only_one_after_the_other() -> None:
    """Bars that overlap would hide each other."""
    uses = [
        slice_use(*each, id=f"s{n}") for n, each in enumerate([(0, 1, 4), (2, 3, 8), (5, 6, 9)])
    ]
    rows = {name: each.find(f"{SVG}rect") for name, each in bars(history([], uses)).items()}
    y = {name: each.get("y") for name, each in rows.items() if each is not None}
    assert y["s0"] == y["s2"] != y["s1"]


def test_a_large_group_shows_its_first_rows_and_counts_the_others() -> None:
    """Two thousand rows are no picture."""
    uses = [slice_use(0, 1, 24, id=f"s{number}") for number in range(50)]
    picture = drawn(slices(history([], uses), Span(at(0), at(24))).svg())
    assert len(list(picture.iter(f"{SVG}g"))) == 40
    assert "10 slices are not shown" in "".join(picture.itertext())


@pytest.mark.parametrize(
    ("hours", "expected"),
    [
        (1, "00:15"),
        (12, "03:00"),
        (24, "03:00"),
        (40, "06:00"),
        (24 * 7, "11-03"),
        (24 * 60, "11-16"),
    ],
)
def test_times_have_round_labels(hours: float, expected: str) -> None:
    """At most nine of them; midnights are days."""
    axis = Span(at(0), at(hours)).axis(0, 10)
    labels = [each.content for each in axis if isinstance(each, Text)]
    assert labels[1] == expected
    assert 3 <= len(labels) <= 9


@pytest.mark.parametrize(
    ("most", "high"), [(0, 1), (0.4, 1), (3, 3), (9, 10), (62, 80), (1234, 1500)]
)
def test_values_have_round_levels(most: float, high: float) -> None:
    """From zero on, so that heights can be compared."""
    lines, top = levels(most, 0, 100)
    assert top == high
    assert lines.count("<text") <= 6
