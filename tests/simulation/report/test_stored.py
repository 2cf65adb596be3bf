"""Reports as a cluster's store keeps them."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from iris.simulation.report import stored
from iris.simulation.report.answers import answers_of
from iris.simulation.report.document import Report, report_of
from iris.simulation.report.page import page
from iris.simulation.report.results import Results
from iris.simulation.report.stored import (
    MOST_HEADING,
    from_bytes,
    heading_in,
    to_bytes,
)
from iris.simulation.report.tables import Shown
from tests.simulation.report.made_histories import MONEY, a_day

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)


def report(*names: str) -> Report:
    """A report about one configuration, or two."""
    days = [(name, a_day(4 - number)) for number, name in enumerate(names)]
    results = [Results(name, (0,), (answers_of(day, MONEY),)) for name, day in days]
    *before, after = results
    return report_of(Shown(before[0] if before else None, after), ("world: made",), days)


@pytest.mark.parametrize("names", [("new",), ("old", "<new>")])
def test_a_stored_report_has_the_same_page(names: tuple[str, ...]) -> None:
    """The dashboard shows what `--out` writes, byte for byte."""
    made = report(*names)
    found = from_bytes(to_bytes(made, "ada", NOW))
    assert found is not None
    assert found.report == made
    assert page(found.report) == page(made)


def test_a_list_needs_the_first_bytes_of_a_report_only() -> None:
    """Who, when, what and the numbers that say most; waits and money before and after."""
    content = to_bytes(report("old", "new"), "ada", NOW)
    found = heading_in(content[:MOST_HEADING])
    assert found is not None
    assert len(content) > MOST_HEADING
    assert (found.user, found.at, found.configuration, found.against) == ("ada", NOW, "new", "old")
    assert found.workload == "1d from 2026-11-02 00:00 UTC, 4 gangs"
    assert found.headline.median == "2h"
    assert found.headline.ninety == "4h → 3h"
    assert found.headline.cost == "USD 17.00"


def test_long_names_do_not_make_the_heading_long() -> None:
    """A configuration's name is a path."""
    made = report("a/" * 5_000 + "new.yaml")
    heading = heading_in(to_bytes(made, "ada", NOW)[:MOST_HEADING])
    assert heading is not None
    assert heading.configuration.endswith("/new.yaml")


def test_a_report_that_is_too_large_loses_its_largest_picture_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The tables are the answer, and a store and a page have limits."""
    made = report("old", "new")
    whole = to_bytes(made, "ada", NOW)
    monkeypatch.setattr(stored, "MOST_BYTES", len(whole) - 1)
    found = from_bytes(to_bytes(made, "ada", NOW))
    assert found is not None
    left = {each.name for each in made.pictures} - {each.name for each in found.report.pictures}
    sizes = {each.name: len(each.model_dump_json()) for each in made.pictures}
    assert left == {max(sizes, key=lambda name: sizes[name])}
    assert "left out" in found.report.facts[-1]

    monkeypatch.setattr(stored, "MOST_BYTES", 1_000)
    with pytest.raises(ValueError, match="limit is 1,000"):
        to_bytes(made, "ada", NOW)


def changed(place: tuple[str | int, ...], value: Any) -> bytes:
    """A stored report with another value at one place of its second line."""
    first, second, _ = to_bytes(report("new"), "ada", NOW).split(b"\n")
    values = here = json.loads(second)
    *path, last = place
    for key in path:
        here = here[key]
    here[last] = value
    return first + b"\n" + json.dumps(values).encode()


DRAWING = ("pictures", 0, "drawing")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n",
        b"{}\n{}\n",
        b"\xff\xfe\n",
        b"[" * 100_000,
        to_bytes(report("new"), "ada", NOW).replace(b'"version":1', b'"version":2'),
        to_bytes(report("new"), "ada", NOW).partition(b"\n")[0],
        changed(("tables",), []),
        changed((*DRAWING, "height"), float("nan")),
        changed((*DRAWING, "height"), 1e300),
        changed((*DRAWING, "shapes", 0, "kind"), 'small" onload="x'),
        changed((*DRAWING, "shapes", 0, "kind"), "said"),
        changed((*DRAWING, "shapes", 0, "shape"), "script"),
        changed((*DRAWING, "shapes", 0, "x"), '0"/><script>'),
    ],
)
def test_an_object_that_is_no_report_is_none(content: bytes) -> None:
    """A job may be able to write to the store."""
    assert from_bytes(content) is None
