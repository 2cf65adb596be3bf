"""Constraints that exclude each other are found before the job is submitted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.model.errors import InvalidValue
from iris.model.host.constraints import contradiction
from iris.model.job.demand_limits import check_demands
from tests.builders import a_spec, demands
from tests.strategies import CHEAP


@pytest.mark.parametrize(
    ("texts", "excluding"),
    [
        (("region = a", "region = b"), ("region = a", "region = b")),
        (("region in (a, b)", "region in (c, d)"), ("region in (a, b)", "region in (c, d)")),
        (("region = a", "zone = x", "region != A"), ("region = a", "region != A")),
        (("spot exists", "!spot"), ("spot exists", "spot absent")),
        (("!spot", "spot = true"), ("spot absent", "spot = true")),
        (("driver > 5", "driver < 5"), ("driver > 5", "driver < 5")),
        (("driver >= 5", "driver < 5"), ("driver >= 5", "driver < 5")),
        (("driver = new", "driver >= 5"), ("driver = new", "driver >= 5")),
        (
            ("region in (a, b)", "region != a", "region != b"),
            ("region in (a, b)", "region != a", "region != b"),
        ),
        (("n >= 5", "n <= 5", "n != 5"), ("n >= 5", "n <= 5", "n != 5")),
    ],
)
def test_constraints_that_exclude_each_other_are_named(
    texts: tuple[str, ...], excluding: tuple[str, ...]
) -> None:
    """A job with `--region a --constraint 'region = b'` was accepted and waited for ever."""
    assert tuple(map(str, contradiction(demands(*texts)))) == excluding


@pytest.mark.parametrize(
    "texts",
    [
        (),
        ("region = a", "region = A"),
        ("region = a", "?region = b"),
        ("region = a", "zone = b"),
        ("driver > 5", "driver < 6"),
        ("driver >= 5", "driver <= 5"),
        ("driver >= 5", "driver != 5"),
        ("version != 4", 'version != "4"'),
        ("!spot", "!spot"),
    ],
)
def test_constraints_that_a_host_can_meet_are_accepted(texts: tuple[str, ...]) -> None:
    """A refusal of a job that could run would be worse than a job that waits."""
    assert contradiction(demands(*texts)) == ()


_TEXTS = [
    "k = 1",
    "k = 2",
    "k != 1",
    "k in (1, 2)",
    "k >= 2",
    "k < 2",
    "k <= 1",
    "k > 1",
    "k exists",
    "!k",
    "k = a",
    "k != a",
]
_HOSTS: list[dict[str, bool | int | float | str]] = [
    {},
    *({"k": value} for value in (0, 1, 1.5, 2, 3, "a", "b", True)),
]


@CHEAP
@given(st.lists(st.sampled_from(_TEXTS), max_size=4))
def test_a_contradiction_is_found_exactly_if_no_host_meets_all(texts: list[str]) -> None:
    """The hosts have a value below, at, between and above all limits, and one of each other
    type.
    """
    constraints = demands(*texts)
    met = any(all(each.holds(host) for each in constraints) for host in _HOSTS)

    assert (contradiction(constraints) == ()) is met


def test_a_job_whose_constraints_exclude_each_other_is_refused() -> None:
    """By the client before it is submitted, and by the job's workflow if the client does not
    check.
    """
    with pytest.raises(
        InvalidValue, match=r"^constraint: 'region = a and region = b' exclude each other"
    ):
        check_demands(a_spec(constraints=demands("region = a", "region = b")))
