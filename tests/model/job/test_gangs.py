"""The lifecycle of gangs, as a table."""

from itertools import product

import pytest

from iris.model.errors import IllegalMove
from iris.model.job.gangs import GANG_MOVES, IGNORED, GangEvent, GangState, move_gang

#: Written a second time, from the design: the two must agree. `-` is ignored, `!` is illegal, `=`
#: keeps the state.
TABLE = """
          BACKOFF  HELD       WAITING    RUNNING    RELEASING  ENDED
HOLD      HELD     !          !          !          !          !
BEGIN     WAITING  WAITING    !          !          !          !
ASK       !        !          =          !          !          !
REFUSE    !        !          =          !          !          !
PLACE     !        !          RUNNING    !          !          !
FORGET    !        !          RELEASING  !          !          !
TIME_OUT  !        !          RELEASING  !          !          !
FINISH    !        !          !          RELEASING  !          !
RETRY     !        !          !          !          BACKOFF    !
END       !        !          !          !          ENDED      !
CANCEL    ENDED    RELEASING  RELEASING  RELEASING  -          -
OFFER     -        -          =          -          -          -
EXPLAIN   =        =          =          -          =          -
EVICT     -        -          =          =          -          -
LOSE      -        -          =          =          -          -
PROGRESS  -        -          -          =          =          -
OVERRIDE  =        =          =          =          =          =
"""
_HEAD, *_ROWS = (line.split() for line in TABLE.strip().splitlines())
CELLS = {
    (GangState(state), GangEvent(row[0])): cell
    for row in _ROWS
    for state, cell in zip(_HEAD, row[1:], strict=True)
}
SIGNALS = (
    GangEvent.OFFER,
    GangEvent.EXPLAIN,
    GangEvent.EVICT,
    GangEvent.LOSE,
    GangEvent.PROGRESS,
    GangEvent.OVERRIDE,
)


def test_every_event_has_a_row_and_every_state_a_column() -> None:
    """A new state without a decision for each event would fail a workflow."""
    assert set(CELLS) == set(product(GangState, GangEvent))
    assert set(GANG_MOVES) == set(GangState)


def test_every_event_in_every_state_does_what_the_table_says() -> None:
    """An illegal event is a defect of the workflow, not something to continue from."""
    for (state, event), cell in CELLS.items():
        if cell == "!":
            with pytest.raises(IllegalMove):
                move_gang(state, event)
        else:
            assert move_gang(state, event) is {"-": IGNORED, "=": state}.get(
                cell, GangState.__members__.get(cell)
            ), (state, event)


def test_no_signal_is_illegal_in_any_state() -> None:
    """A signal may arrive late: an exception in its handler would stop the workflow."""
    assert not [
        (state, event) for (state, event), cell in CELLS.items() if event in SIGNALS and cell == "!"
    ]


def test_a_gang_that_may_have_something_at_the_scheduler_ends_only_after_its_release() -> None:
    """Hosts of an ended gang would stay reserved."""
    before_the_end = {state for (state, _), cell in CELLS.items() if cell == "ENDED"}

    assert before_the_end == {GangState.BACKOFF, GangState.RELEASING}


def test_every_state_has_a_way_to_the_end() -> None:
    """A state without one would be a job that never ends."""
    reaches = {GangState.ENDED}
    for _ in GangState:
        reaches |= {state for (state, _), cell in CELLS.items() if cell in reaches}

    assert reaches == set(GangState)
