"""The helper that all lifecycle tables share. Each table has its own tests beside its module."""

from enum import StrEnum

import pytest

from iris.model.errors import IllegalMove
from iris.model.lifecycle import entering, transition


class Door(StrEnum):
    OPEN = "OPEN"
    CLOSED = "CLOSED"
    WALLED_UP = "WALLED_UP"


class Push:
    pass


class Pull:
    pass


TABLE = {
    Door.OPEN: {Push: Door.CLOSED},
    Door.CLOSED: {Pull: Door.OPEN, Push: Door.CLOSED},
    Door.WALLED_UP: dict[type, Door](),
}


def test_a_legal_event_gives_the_entry_of_its_state() -> None:
    """The entry of most tables is the next state."""
    assert transition(TABLE, Door.CLOSED, Pull, "a door") is Door.OPEN


@pytest.mark.parametrize(
    ("state", "event", "message"),
    [
        (Door.OPEN, Pull, "a door that is OPEN does not accept Pull; it accepts Push"),
        (Door.WALLED_UP, Push, "a door that is WALLED_UP does not accept Push; it accepts nothing"),
    ],
)
def test_an_illegal_event_raises_and_names_the_legal_ones(
    state: Door, event: type, message: str
) -> None:
    """The text says which state and event met, and what would have been legal."""
    with pytest.raises(IllegalMove) as error:
        transition(TABLE, state, event, "a door")

    assert str(error.value) == message


def test_a_table_without_events_of_its_own_lists_the_states_that_can_follow() -> None:
    """Hosts report states, so the event is the state that is entered."""
    table = {Door.OPEN: entering(Door.CLOSED, Door.WALLED_UP)}

    assert transition(table, Door.OPEN, Door.WALLED_UP, "a door") is Door.WALLED_UP
    with pytest.raises(IllegalMove, match="a door that is OPEN does not accept OPEN; it accepts"):
        transition(table, Door.OPEN, Door.OPEN, "a door")
