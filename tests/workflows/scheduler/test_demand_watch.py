"""When the scheduler signals the autoscaler that the demand has changed."""

from iris.planners.demand import DemandWatch
from iris.scheduling.ledger.ledger import Ledger
from tests.builders import a_request, some

SMALL, LARGE = a_request().shape, a_request(wants=some(cpu=8)).shape


def seen(watch: DemandWatch, **demand: int) -> tuple[bool, bool]:
    """Whether the autoscaler has to be signalled, and whether soon, when so many gangs wait."""
    shapes = {"small": SMALL, "large": LARGE}
    watch.compare(Ledger(), {shapes[name]: count for name, count in demand.items()})
    return watch.changed, watch.urgent


def test_more_gangs_than_ever_are_signalled_soon() -> None:
    """They may need another machine."""
    watch = DemandWatch()
    assert seen(watch, small=2) == (True, True)
    watch.signalled({SMALL: 2})
    assert seen(watch, small=2) == (False, False)
    assert seen(watch, small=3) == (True, True)
    watch.signalled({SMALL: 3})
    assert seen(watch, small=3, large=1) == (True, True)


def test_gangs_that_come_and_go_in_a_full_cluster_are_not_signalled_soon() -> None:
    """The autoscaler knows the demand, and each evaluation costs it some ten events."""
    watch = DemandWatch()
    watch.signalled({SMALL: 30})
    assert seen(watch, small=28) == (False, False)
    assert seen(watch, small=30) == (True, False)
    watch.signalled({SMALL: 29})
    assert seen(watch, small=30) == (True, False)
    assert seen(watch, small=31) == (True, True)


def test_the_last_gang_of_a_shape_is_signalled_soon_and_its_number_is_forgotten() -> None:
    """Its slices are idle, and the next gangs of this shape are a new demand."""
    watch = DemandWatch()
    watch.signalled({SMALL: 30})
    assert seen(watch) == (True, True)
    watch.signalled({})
    assert seen(watch, small=1) == (True, True)
