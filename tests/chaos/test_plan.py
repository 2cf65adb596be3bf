"""The faults of a run depend on the seed alone, and each is one that can be carried out."""

from collections import defaultdict

from tests.chaos.faults import DOES, TARGETS
from tests.chaos.plan import KINDS, LEASE, LONG, SHORT, plan

ALL = TARGETS | {"servers": ("server-0", "server-1"), "databases": ("postgres",)}


def test_a_seed_gives_the_same_faults_again_and_another_seed_others() -> None:
    """Otherwise a run that failed could not be repeated."""
    assert plan(1, 100, ALL) == plan(1, 100, ALL)
    assert plan(1, 100, ALL) != plan(2, 100, ALL)


def test_a_target_has_one_fault_at_a_time_and_faults_of_all_kinds_come() -> None:
    """The end of one fault would end the other; a kind that never comes tests nothing."""
    faults = [fault for seed in range(20) for fault in plan(seed, 100, ALL)]
    assert {fault.kind for fault in faults} == set(KINDS) == set(DOES)
    for seed in range(20):
        ends: dict[str, float] = defaultdict(float)
        for fault in plan(seed, 100, ALL):
            assert fault.at >= ends[fault.target]
            ends[fault.target] = fault.at + fault.lasts


def test_a_group_without_targets_has_no_faults() -> None:
    """The dev server has no database process."""
    faults = plan(1, 1000, TARGETS | {"servers": ("server",), "databases": ()})
    assert not [fault for fault in faults if fault.kind.endswith("database")]


def test_the_lengths_are_on_both_sides_of_the_lease_and_of_the_loss_of_a_host() -> None:
    """The same fault has another effect on each side."""
    assert SHORT[1] < LEASE
    assert LONG[0] > LEASE + 25
    assert LONG[0] > 56
