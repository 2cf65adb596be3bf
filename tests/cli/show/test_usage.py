"""What `iris usage` shows people and writes for spreadsheets."""

import csv
import io

from iris.cli.show.usage import usage_csv, usage_text
from iris.usage.prices import Rate
from iris.usage.records import UseEnd
from tests.usage.made_uses import DOLLAR, at, attempt, slice_use, summed

USES = (
    slice_use(0, 1, 11),
    attempt(1, 3),
    attempt(3, 9, id="b", user="bob", started_at=at(4), end=UseEnd.PREEMPTED, tpu_chips=4),
)


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_the_table_has_the_largest_first_and_a_total() -> None:
    """Who used most is read at a glance."""
    shown = lines(usage_text(summed(*USES), 30))
    header, bob, ada, total = shown[2:6]
    assert header == [
        *("USER", "COST", "USD", "SHARE", "CHIP-HOURS", "CORE-HOURS", "HOST-HOURS", "ATTEMPTS")
    ]
    assert bob == ["bob", "6.00", "75%", "24.0", "48.0", "6.0", "1"]
    assert ada == ["ada", "2.00", "25%", "0.0", "16.0", "2.0", "1"]
    assert total == ["total", "8.00", "100%", "24.0", "64.0", "8.0", "2"]


def test_the_waste_is_below_in_a_line_each() -> None:
    """Only the kinds of which there is something."""
    shown = usage_text(summed(*USES), 30)
    _, _, below = shown.partition("all machines: USD 11.00, 11.0 host-hours; jobs held 73%")
    assert [line[0] for line in lines(below)[1:]] == ["idle", "boot", "set-up", "preempted"]
    assert "USD 5.00, 5.0 host-hours  1 attempt: run time" in below


def test_more_rows_than_the_limit_are_counted() -> None:
    """The total is that of all rows."""
    shown = usage_text(summed(*USES), 1)
    assert "ada" not in shown
    assert "and 1 more" in shown
    assert ["total", "8.00"] in [line[:2] for line in lines(shown)]


def test_without_prices_there_are_no_costs_and_a_line_says_how_to_get_them() -> None:
    """Costs are optional."""
    shown = usage_text(summed(*USES, rates=()), 30)
    assert "COST" not in shown
    assert "USD" not in shown
    assert "prices.rates" in shown


def test_a_machine_without_a_price_is_named() -> None:
    """The costs are too small by its hours."""
    shown = usage_text(summed(*USES, rates=(Rate(machine="other", machine_hour=1),)), 30)
    assert "no price for n2-standard-8 (europe-west4-a): 11.0 host-hours" in shown


def test_gaps_and_an_empty_time_are_said() -> None:
    """Nothing used and nothing known are different."""
    report = summed(rates=DOLLAR)
    assert "no job held a machine" in usage_text(report, 30)
    partial = report.model_copy(update={"gaps": ("some records are lost",)})
    assert "incomplete: some records are lost" in usage_text(partial, 30)


def test_the_csv_has_the_rows_with_their_numbers() -> None:
    """A spreadsheet sums and groups by itself; it has no total."""
    rows = [*csv.DictReader(io.StringIO(usage_csv(summed(*USES, by=("day", "user")))))]
    assert [(row["day"], row["user"], float(row["cost"])) for row in rows] == [
        ("2026-11-02", "bob", 6.0),
        ("2026-11-02", "ada", 2.0),
    ]
    assert (rows[0]["currency"], rows[0]["tpu_chip_hours"], rows[0]["attempts"]) == (
        "USD",
        "24.0",
        "1",
    )


def test_the_csv_begins_no_formula() -> None:
    """A tag may hold a formula, which a spreadsheet would run for the one who opens the file."""
    values = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "a,b", 'say "x"', "plain"]
    uses = [attempt(0, 1, id=str(number), tags={"t": value}) for number, value in enumerate(values)]
    text = usage_csv(summed(*uses, by=("tag:t",)))
    cells = [row[0] for row in csv.reader(io.StringIO(text))][1:]
    assert {*cells} == {"'=1+1", "'+1", "'-1", "'@SUM(A1)", "'\t=1", "a,b", 'say "x"', "plain"}
