"""The shape that all lifecycle tables have: `{state: {event: next state}}`.

An event that is missing in the row of a state is illegal there: `transition` raises, and nothing
changes. An event that a state accepts without effect is in its row all the same. The tables:

    tasks       `iris.model.states.TASK_MOVES`
    gangs       `iris.model.job.gangs.GANG_MOVES`
    slices      `iris.model.slice.lifecycle.TABLE`, `iris.model.slice.status.SLICE_MOVES`
    attempts    `iris.activities.host.attempt.lifecycle.TRANSITIONS`

Hosts report the states of tasks, so the event of a task is the state that it enters (`entering`).
The entries of `TABLE` are functions, because the next state of a slice depends on the contents of
an event, not only on its kind.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from iris.model.errors import IllegalMove

State = TypeVar("State", bound=StrEnum)
Event = TypeVar("Event", bound=StrEnum | type)
Entry = TypeVar("Entry")


def transition(
    table: Mapping[State, Mapping[Event, Entry]], state: State, event: Event, noun: str
) -> Entry:
    """Returns the entry of a lifecycle table for an event in a state.

    Args:
        noun: the object of the lifecycle, for the text of the error: `a task`.

    Raises:
        IllegalMove: the state does not accept the event.
    """
    row = table[state]
    if event not in row:
        accepted = ", ".join(sorted(map(_name, row))) or "nothing"
        raise IllegalMove(
            f"{noun} that is {state} does not accept {_name(event)}; it accepts {accepted}"
        )
    return row[event]


def entering(*states: State) -> Mapping[State, State]:
    """Returns the row of a table whose events are the states that they lead to."""
    return {state: state for state in states}


def _name(event: StrEnum | type) -> str:
    return event.__name__ if isinstance(event, type) else event.value
