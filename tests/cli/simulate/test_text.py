"""What `iris simulate` shows people."""

from iris.cli.simulate.text import simulation_text
from iris.simulation.report.tables import Shown
from tests.simulation.report.test_results import results


def test_numbers_end_below_each_other_and_texts_begin_there() -> None:
    """Numbers of different lengths are compared at a glance."""
    lines = simulation_text(Shown(results("old", 4, 6), results("new", 3, 5))).splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("MEASURE"))
    table = lines[head : lines.index("", head)][:-1]
    assert len(table) > 10
    assert len({len(line) for line in table}) == 1
    assert {line.index("±") < table[0].index("SPREAD") + 6 for line in table[1:]} == {True}


def test_facts_and_notes_come_first() -> None:
    """A number means nothing before it is clear what was simulated."""
    shown = simulation_text(Shown(None, results("new", 4)), ("world: its defaults",))
    first, second, third = shown.splitlines()[:3]
    assert first == "1d from 2026-11-02 00:00 UTC, 4 gangs, seed 0"
    assert (second, third) == ("world: its defaults", "")
