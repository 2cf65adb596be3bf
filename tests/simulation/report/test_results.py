"""Answers over several seeds, and the difference of two configurations."""

import json

import pytest

from iris.simulation.report.answers import Answers
from iris.simulation.report.results import Results, Spread, changes, to_json
from tests.simulation.report.made_histories import answers

HOUR = 3600.0
LONGEST = ("all", "waits", "longest")


def results(name: str, *longest: float) -> Results:
    """The answers for seeds in which the last gang waits so many hours."""
    seeds = tuple(range(len(longest)))
    return Results(name, seeds, tuple(answers(hours) for hours in longest))


def test_a_number_has_its_mean_its_ends_and_its_deviation() -> None:
    """The deviation is that of a sample: of 3, 4 and 5 it is 1."""
    assert results("new", 3, 4, 5).spreads[LONGEST] == Spread(
        mean=4 * HOUR, least=3 * HOUR, most=5 * HOUR, deviation=HOUR
    )


def test_one_seed_has_no_spread() -> None:
    """Nothing is divided by zero."""
    assert results("new", 4).spreads[LONGEST].deviation == 0.0


def test_a_difference_is_computed_for_each_seed() -> None:
    """Both configurations vary by hours, and their difference by nothing."""
    change = changes(results("old", 4, 6, 8), results("new", 3, 5, 7))[LONGEST]
    assert (change.mean, change.deviation, change.clear) == (-HOUR, 0.0, True)


@pytest.mark.parametrize(
    ("after", "clear"), [((3, 7), False), ((3, 5), False), ((2, 3), True), ((4, 4), False)]
)
def test_a_difference_is_clear_if_it_is_larger_than_its_deviation(
    after: tuple[float, float], clear: bool
) -> None:
    """Differences that point both ways may be luck."""
    assert changes(results("old", 4, 4), results("new", *after))[LONGEST].clear is clear


def test_one_seed_cannot_tell_luck_from_a_difference() -> None:
    """Neither yes nor no is true."""
    assert changes(results("old", 4), results("new", 3))[LONGEST].clear is None


def test_a_count_that_only_one_side_has_is_zero_on_the_other() -> None:
    """A fault that never happened is not named in the answers."""
    old, new = answers(), answers()
    quiet = new.groups["cpu"].model_copy(update={"refused": {}})
    new = new.model_copy(update={"groups": {"cpu": quiet}})
    found = changes(Results("old", (0,), (old,)), Results("new", (0,), (new,)))
    assert found["groups", "cpu", "refused", "STOCK_OUT"].mean == -1


def test_other_seeds_are_not_compared() -> None:
    """The luck would differ."""
    with pytest.raises(ValueError, match="the two simulations were run with different seeds"):
        changes(results("old", 4), results("new", 4, 5))


def test_json_has_every_seed_the_spreads_and_the_changes() -> None:
    """Programs read the same numbers as people, by the same names."""
    found = json.loads(json.dumps(to_json(results("old", 4, 6), results("new", 3, 5))))
    old, new = found["configurations"]
    assert (old["name"], new["name"], new["seeds"]) == ("old", "new", [0, 1])
    assert [Answers.model_validate(each) for each in new["answers"]] == [answers(3), answers(5)]
    assert new["spreads"]["all"]["waits"]["longest"]["mean"] == 4 * HOUR
    assert found["changes"]["all"]["waits"]["longest"]["mean"] == -HOUR
    assert "changes" not in to_json(None, results("new", 3))
