"""What a host offers."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.model.host.hosts import headroom
from iris.model.host.resources import Resources
from tests.builders import a_host, some
from tests.strategies import CHEAP, wants


@pytest.mark.parametrize(
    ("offers", "accept_cpu_jobs", "wanted", "may_run"),
    [
        (some(cpu=8), False, some(cpu=1), True),
        (some(cpu=8), False, some(cpu=1, device="gpu"), False),
        (some(cpu=8, device="gpu:H100:8"), False, some(cpu=1, device="gpu:H100:1"), True),
        (some(cpu=8, device="gpu:H100:8"), False, some(cpu=1, device="tpu"), False),
        (some(cpu=8, device="gpu:H100:8"), False, some(cpu=1), False),
        (some(cpu=8, device="gpu:H100:8"), True, some(cpu=1), True),
        (some(cpu=1), False, some(cpu=64), True),
    ],
)
def test_a_host_with_accelerators_is_kept_for_those_who_use_them(
    offers: Resources, accept_cpu_jobs: bool, wanted: Resources, may_run: bool
) -> None:
    """A CPU job on a TPU host would block hardware at a hundred times its price, unless the owner
    says it may.
    """
    host = a_host(offers=offers, accept_cpu_jobs=accept_cpu_jobs)

    assert host.may_run(wanted) is may_run


def test_headroom_is_what_is_offered_less_what_runs() -> None:
    """The one place where capacity is worked out; every dimension counts."""
    host = a_host(offers=some(cpu=8, memory=32, disk=100, device="gpu:H100:8"))
    running = [
        some(cpu=1, memory=2, device="gpu:H100:2"),
        some(cpu=0.5, disk=10, device="gpu:H100:1"),
    ]

    assert some(cpu=6.5, memory=30, disk=90, device="gpu:H100:5").amounts() == headroom(
        host, running
    )


@CHEAP
@given(st.lists(wants(), max_size=6), st.randoms(use_true_random=False))
def test_headroom_does_not_depend_on_the_order_in_which_tasks_came(
    running: list[Resources], random: Random
) -> None:
    """It is derived, not counted along, so nothing can drift; and looking changes nothing."""
    host = a_host(offers=some(cpu=4, memory=8, device="gpu:H100:8"))
    shuffled = list(running)
    random.shuffle(shuffled)

    first = headroom(host, running)

    assert first == headroom(host, shuffled) == headroom(host, running)
    assert headroom(host, []) == host.resources.amounts()
