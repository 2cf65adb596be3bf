"""The states of a slice."""

from itertools import product

import pytest

from iris.model.errors import IllegalMove
from iris.model.slice.status import SliceState, move_slice

S = SliceState

#: Written down a second time, from the design: the two must agree.
LEGAL = {
    *((S.REQUESTED, to) for to in (S.PROVISIONING, S.BOOTSTRAPPING, S.FAILED, S.DELETING)),
    *((S.PROVISIONING, to) for to in (S.BOOTSTRAPPING, S.FAILED, S.DELETING)),
    *((S.BOOTSTRAPPING, to) for to in (S.READY, S.FAILED, S.DELETING)),
    *((S.READY, to) for to in (S.DRAINING, S.FAILED, S.DELETING)),
    *((S.DRAINING, to) for to in (S.DELETING, S.FAILED)),
    (S.FAILED, S.DELETING),
    (S.DELETING, S.DELETED),
}


def test_a_slice_makes_the_moves_of_the_design() -> None:
    """If a move were missing, a machine would never be deleted."""
    for now, to in LEGAL:
        assert to is move_slice(now, to)


def test_a_slice_makes_no_other_move() -> None:
    """A slice that is being deleted must not become READY by a late report: jobs would be placed on
    a vanishing machine.
    """
    for now, to in set(product(S, S)) - LEGAL:
        with pytest.raises(IllegalMove):
            move_slice(now, to)


@pytest.mark.parametrize(
    "gone_wrong_in", [S.REQUESTED, S.PROVISIONING, S.BOOTSTRAPPING, S.READY, S.DRAINING]
)
def test_a_failed_slice_is_still_deleted(gone_wrong_in: SliceState) -> None:
    """No machine leaks: failure leads to DELETED and nowhere else, for a half-made machine costs as
    much as a whole one.
    """
    state = gone_wrong_in
    for step in (S.FAILED, S.DELETING, S.DELETED):
        state = move_slice(state, step)

    assert state is S.DELETED
    assert {to for now, to in LEGAL if now is S.FAILED} == {S.DELETING}
