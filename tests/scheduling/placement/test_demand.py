"""Which demand the autoscaler gets, if more shapes wait than one answer holds, and while passes
follow one another.
"""

from datetime import timedelta

import pytest

from iris.autoscaling.plan import plan
from iris.model.job.requests import Shape
from iris.model.slice.scale_groups import ScaleGroup
from iris.model.slice.scaling import MOST_OUTLOOKS, Memory, Wanted
from iris.planners.demand import MOST_SHAPES, unplaced, wanted_of
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.placement import place
from iris.scheduling.placement.catalog import Catalog
from tests.builders import NOON, a_gang, a_host, a_placement, a_request, at, some
from tests.scaling_world import a_cpu_group, a_group


def a_ledger(*groups: ScaleGroup) -> Ledger:
    ledger = Ledger()
    ledger.catalog = Catalog(groups)
    return ledger


def ask_many(ledger: Ledger, count: int, user: str = "mallory", memory: float = 1) -> None:
    """Adds requests of different shapes of one user, a second apart."""
    for number in range(count):
        wants = some(cpu=1, memory=memory + number / 4096)
        ledger.ask(a_request(f"{user}-{number}", wants=wants, user=user, submitted_at=at(number)))


def keys_of(wanted: Wanted) -> list[str]:
    return [demand.example.key for demand in wanted.demands]


def test_impossible_shapes_do_not_hide_a_gang_that_a_group_could_serve() -> None:
    """The gang's group is empty, and it gets a slice although hundreds of older shapes wait that no
    group can serve.
    """
    ledger = a_ledger(a_group())
    ask_many(ledger, 300, memory=9_000)
    ledger.ask(a_gang("gang", user="ada", submitted_at=at(5_000)))
    wanted = wanted_of(ledger, NOON)

    assert "gang" in keys_of(wanted)
    assert len(wanted.demands) == MOST_OUTLOOKS
    assert [
        create.group for create in plan(ledger.catalog.groups, (), wanted, Memory(), NOON).creates
    ] == ["tpu"]


def test_the_shapes_of_one_user_do_not_hide_those_of_others_or_of_other_groups() -> None:
    """Each user's first shapes of each group are reported first; the rest follows when these are
    served.
    """
    ledger = a_ledger(a_group(), a_cpu_group())
    ask_many(ledger, MOST_SHAPES + 50)
    ledger.ask(a_gang("gang", user="mallory", submitted_at=at(5_000)))
    ledger.ask(a_request("small", user="ada", submitted_at=at(6_000)))
    wanted = wanted_of(ledger, NOON)

    assert len(wanted.demands) == MOST_SHAPES
    assert keys_of(wanted)[-2:] == ["gang", "small"]
    assert keys_of(wanted)[:2] == ["mallory-0", "mallory-1"]


def test_the_autoscaler_sends_outlooks_of_a_bounded_number_of_shapes() -> None:
    """The scheduler stores them in its ledger; `iris explain` of the other shapes has no
    outlook.
    """
    ledger = a_ledger(a_cpu_group())
    ask_many(ledger, MOST_OUTLOOKS + 50)
    wanted = wanted_of(ledger, NOON)

    assert len(wanted.demands) == MOST_OUTLOOKS + 50
    assert len(plan(ledger.catalog.groups, (), wanted, Memory(), NOON).outlooks) == MOST_OUTLOOKS


def test_finding_the_first_request_of_every_shape_compares_no_shape_with_all_others() -> None:
    """With thousands of shapes a comparison of each with each takes longer than a workflow task
    may.
    """
    compared = 0

    class Counted(Shape):
        __hash__ = Shape.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return tuple.__eq__(self, other)  # type: ignore[arg-type]

    ledger = a_ledger(a_cpu_group())
    for number in range(200):
        request = a_request(f"k{number}", wants=some(memory=1 + number))
        request.__dict__["shape"] = Counted(*request.shape)
        ledger.ask(request)
    compared = 0
    wanted_of(ledger, NOON)

    assert compared < 20 * 200


@pytest.fixture
def few_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass stops after three shapes, as it does in a large cluster after some hundred."""
    monkeypatch.setattr(place, "MAX_CHECKS", 2)


@pytest.mark.usefixtures("few_checks")
def test_the_demand_is_known_between_two_passes_of_a_round() -> None:
    """With many shapes there is always another pass to run. What did not fit when it was last
    examined is demand.
    """
    ledger = a_ledger(a_cpu_group())
    ledger.hosts_up([host := a_host()])
    ledger.adopt(a_placement(host, some(cpu=4)))
    for number in range(10):
        ledger.ask(
            a_request(
                f"k{number}", wants=some(cpu=2, memory=0.5 + number / 1000), submitted_at=at(number)
            )
        )
    settled = ledger.settle(at(20), 1_000)
    assert settled.stopped
    assert unplaced(ledger) is None  # a part of the first round says nothing of the other shapes
    while ledger.settle(at(20), 1_000).stopped:
        pass
    everything = unplaced(ledger)
    assert everything == ledger.demand()

    new = a_request("new", wants=some(cpu=2, memory=0.9), submitted_at=at(30))
    ledger.ask(new)
    assert ledger.settle(at(40), 1_000).stopped

    assert unplaced(ledger) == everything
    assert new.shape not in (unplaced(ledger) or {})


@pytest.mark.usefixtures("few_checks")
def test_a_shape_that_fits_between_two_passes_is_no_demand() -> None:
    """A slice for a gang that is being placed would be for nobody."""
    ledger = a_ledger(a_cpu_group())
    ledger.hosts_up([host := a_host()])
    ledger.adopt(a_placement(host, some(cpu=4)))
    for number in range(10):
        ledger.ask(
            a_request(f"k{number}", wants=some(cpu=2, memory=number / 10), submitted_at=at(number))
        )
    while ledger.settle(at(20), 1_000).stopped:
        pass
    ledger.hosts_up([a_host("h2", offers=some(cpu=2, memory=8))])
    settled = ledger.settle(NOON + timedelta(minutes=1), 1)
    placed = a_request("k0", wants=some(cpu=2, memory=0)).shape

    assert settled.stopped
    assert [each.key for each in settled.placed] == ["k0"]
    assert placed not in (unplaced(ledger) or {placed})
