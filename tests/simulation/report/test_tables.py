"""The tables about a simulation."""

import pytest

from iris.simulation.report import forms
from iris.simulation.report.answers import answers_of
from iris.simulation.report.results import Results
from iris.simulation.report.tables import Shown, Table
from iris.usage.accounting import Accounting
from tests.simulation.report.made_histories import a_day, answers, gang, history
from tests.simulation.report.test_results import results


def rows(table: Table) -> dict[str, tuple[str, ...]]:
    return {row[0]: row[1:] for row in table.rows}


def table(shown: Shown, first: str) -> Table:
    """The table whose first heading this is."""
    (found,) = (each for each in shown.tables() if each.head[0] == first)
    return found


def test_one_seed_of_one_configuration_has_a_value_for_each_measure() -> None:
    """The plain case is plain."""
    summary = Shown(None, results("new", 4)).summary()
    assert summary.head == ("MEASURE", "VALUE")
    found = rows(summary)
    assert found["wait, median"] == ("2h",)
    assert found["held of them"] == ("77%",)
    assert found["cost USD"] == ("17.00",)


def test_several_seeds_have_the_mean_and_the_ends() -> None:
    """A mean alone hides the luck."""
    summary = Shown(None, results("new", 3, 4, 5)).summary()
    assert summary.head == ("MEASURE", "MEAN", "LEAST", "MOST")
    assert rows(summary)["wait, longest"] == ("4h", "3h", "5h")


def test_two_configurations_have_the_difference_and_whether_it_is_clear() -> None:
    """Less by an hour in each seed is clear, although each varies by hours; equal is neither."""
    summary = Shown(results("old", 4, 6), results("new", 3, 5)).summary()
    assert summary.head == ("MEASURE", "BEFORE", "AFTER", "DIFFERENCE", "SPREAD", "CLEAR")
    assert rows(summary)["wait, longest"] == ("5h", "4h", "-1h", "± 0", "yes")
    assert rows(summary)["idle host-hours"] == ("4.0", "3.0", "-1.0", "± 0", "yes")
    assert rows(summary)["cost USD"] == ("17.00", "17.00", "0", "± 0", "-")


def test_one_seed_says_that_it_cannot_tell_luck() -> None:
    """A number without a spread is believed too easily."""
    summary = Shown(results("old", 4), results("new", 3)).summary()
    assert summary.head[-1] == "DIFFERENCE"
    assert "--seeds" in summary.note
    certain = Shown(results("old", 4), results("new", 3), by_chance=False)
    assert certain.summary().note == ""


def test_cells_of_a_comparison_have_both_numbers_if_they_differ() -> None:
    """An arrow is read as a change, so there is none without one; a doubtful one is marked."""
    clear = table(Shown(results("old", 4, 6), results("new", 3, 5)), "BAND")
    cells = dict(zip(clear.head, next(row for row in clear.rows if row[0] == "batch"), strict=True))
    assert (cells["GANGS"], cells["P90"]) == ("3", "5h → 4h")
    assert clear.note == ""
    unclear = table(Shown(results("old", 4, 4), results("new", 3, 6)), "BAND")
    assert "4h → 4h 30m ~" in next(row for row in unclear.rows if row[0] == "batch")
    assert "~" in unclear.note


def test_users_who_waited_most_come_first_and_the_rest_is_counted() -> None:
    """A table of a thousand users is no answer."""
    gangs = [gang(number, 0, number, 20, user=f"u{number}") for number in range(1, 15)]
    many = Results("new", (0,), (answers_of(history(gangs), Accounting()),))
    users = table(Shown(None, many, limit=3), "USER")
    assert [row[0] for row in users.rows] == ["u14", "u13", "u12"]
    assert "11 more" in users.note


def test_without_prices_no_table_has_money() -> None:
    """Costs are optional."""
    free = Results("new", (0,), (answers_of(a_day(), Accounting()),))
    shown = Shown(None, free)
    assert "cost" not in rows(shown.summary())
    assert not any("COST" in heading for each in shown.tables() for heading in each.head)


def test_faults_tell_failed_requests_from_lost_slices() -> None:
    """They have different remedies."""
    (found,) = (each for each in Shown(None, results("new", 4)).tables() if "WHAT" in each.head)
    assert found.rows == (
        ("cpu", "slice lost", "PREEMPTED", "1"),
        ("cpu", "request failed", "STOCK_OUT", "1"),
    )


def test_a_long_wait_says_how_long_each_reason_held() -> None:
    """It waited half an hour for hosts, and three and a half for a slice, whose message is shown."""
    waits = table(Shown(None, results("new", 4)), "GANG")
    assert waits.rows[0][-1] == "BUSY 30m, SCALING 3h: a slice <boots>"


def test_machines_without_a_price_are_named() -> None:
    """The cost is too small by their hours."""
    priced = answers().model_copy(update={"unpriced": {"v5e (spot)": 2.5}})
    assert any(
        "v5e (spot): 2.5" in each for each in Shown(None, Results("n", (0,), (priced,))).facts
    )


@pytest.mark.parametrize(
    ("value", "form", "expected"),
    [
        (-3600.0, forms.seconds, "-1h"),
        (0.0001, forms.seconds, "0"),
        (0.004, forms.percent, "0"),
        (-0.05, forms.percent, "-5 points"),
        (0.5, forms.count, "+0.5"),
        (12.345, forms.money, "+12.35"),
        (0.001, forms.money, "0"),
        (0.01, forms.hours, "+<0.1"),
    ],
)
def test_a_difference_has_a_sign_unless_it_is_nothing(
    value: float, form: forms.Form, expected: str
) -> None:
    """Part of a percentage are points, not percent of it."""
    assert forms.difference(value, form) == expected
