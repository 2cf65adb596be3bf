"""The lifecycle of an attempt: its table, its scenarios (`tests/transcripts/attempt/`), and what
must never happen.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.activities.host.attempt.lifecycle import (
    TRANSITIONS,
    Effect,
    Event,
    Lifecycle,
    State,
    restore,
    step,
)
from iris.model.errors import IllegalMove
from iris.model.job.attempts import TaskOutcome
from iris.model.states import TaskState
from tests.transcript import check, transcripts

KILL_EVENTS = (Event.INCARNATION_OVER, Event.HOST_OVER, Event.HOST_FAILED, Event.DISK_LIMIT)
STOP_EVENTS = (Event.CANCEL, Event.TIMEOUT, Event.PREEMPT)
EVENTS = (
    Event.STARTED,
    Event.ENDED,
    *STOP_EVENTS,
    *KILL_EVENTS,
    Event.GIVEN_UP,
    Event.CONTACT_LOST,
)
EVENTS += (Event.UPLOADED, Event.ACCEPTED, Event.REFUSED, Event.UNREPORTED, Event.FIRST_ENDED)

#: The next state, one letter for each event in the order of `EVENTS`; `.` means an illegal event.
LETTERS = {
    "p": State.PREPARING,
    "c": State.CANCELLED,
    "r": State.RUNNING,
    "s": State.STOPPING,
    "k": State.KILLING,
    "g": State.DROPPING,
    "d": State.DROPPED,
    "e": State.ENDED,
    "w": State.REPORTING,
    "x": State.SETTLED,
}
#: started, ended | cancel, timeout, preempt | the host's three, disk limit | given up, contact lost
#: | uploaded, accepted, refused, unreported | first ended
TABLE = {
    State.PREPARING: "re ccc cccc dd .... .",
    State.CANCELLED: ".e ccc cccc dd .... .",
    State.RUNNING: ".e sss kkkk gg .... r",
    State.STOPPING: ".e sss kkkk gg .... .",
    State.KILLING: ".e kkk kkkk gg .... .",
    State.DROPPING: ".d ggg gggg gg .... .",
    State.DROPPED: ".d ddd dddd dd x... .",
    State.ENDED: ".e eee eeee de w... .",
    State.REPORTING: ".. www wwww ww .xxw .",
    State.SETTLED: ".. xxx xxxx xx .... .",
}


@pytest.mark.parametrize("state", State)
def test_every_event_in_every_state_is_in_the_table_or_illegal(state: State) -> None:
    """An illegal event raises and changes nothing."""
    assert set(EVENTS) == set(Event)
    for event, letter in zip(EVENTS, TABLE[state].replace(" ", ""), strict=True):
        lifecycle = Lifecycle(state)
        if letter == ".":
            with pytest.raises(IllegalMove):
                step(lifecycle, event)
            assert lifecycle == Lifecycle(state), event
        else:
            assert step(lifecycle, event)[0].state is LETTERS[letter], event


@pytest.mark.parametrize(
    ("event", "state", "host_leaves"),
    [
        (Event.CANCEL, TaskState.KILLED, False),
        (Event.TIMEOUT, TaskState.FAILED, False),
        (Event.DISK_LIMIT, TaskState.FAILED, False),
        (Event.PREEMPT, TaskState.PREEMPTED, True),
        (Event.INCARNATION_OVER, TaskState.WORKER_FAILED, True),
        (Event.HOST_OVER, TaskState.WORKER_FAILED, True),
    ],
)
def test_the_first_event_that_stops_an_attempt_decides_its_outcome(
    event: Event, state: TaskState, host_leaves: bool
) -> None:
    """Any later one leaves it as it is."""
    expected = TaskOutcome(state=state, reason="first", host_leaves=host_leaves)
    for begun in (State.PREPARING, State.RUNNING):
        lifecycle, _ = step(Lifecycle(begun), event, "first")
        for later in (*STOP_EVENTS, *KILL_EVENTS):
            assert step(lifecycle, later, "second")[0].outcome == expected


def test_a_program_that_has_ended_keeps_its_outcome_if_contact_is_lost_while_others_run() -> None:
    """The rest is killed, as its lease is over. But what the program has reached is not run again
    for want of a network.
    """
    lifecycle, _ = step(Lifecycle(), Event.STARTED)
    lifecycle, _ = step(lifecycle, Event.FIRST_ENDED)
    lifecycle, effects = step(lifecycle, Event.CONTACT_LOST)
    assert effects == (Effect.KILL_PROGRAM,)

    lifecycle, _ = step(lifecycle, Event.ENDED)
    _, effects = step(lifecycle, Event.UPLOADED)
    assert effects == (Effect.REPORT,)


class Scenario:
    """Executes the commands of a transcript: events, and the death of the agent."""

    def __init__(self) -> None:
        self.lifecycle = Lifecycle()
        #: What the files in the attempt's directory show.
        self.recorded: TaskOutcome | None = None
        self.settled = self.ended = False

    def execute(self, line: str) -> str:
        match line.split(" ", 1):
            case ["prepare"]:
                return str(self.lifecycle.state)
            case ["agent-dies"]:
                return ""
            case ["program-ends-unseen"]:
                self.ended = True
                return ""
            case ["agent-finds-it"]:
                launched = self.lifecycle.launched
                self.lifecycle = restore(
                    launched=launched, ended=self.ended, outcome=self.recorded, settled=self.settled
                )
                return str(self.lifecycle.state)
            case [event, *reason]:
                return self._step(Event(event.upper().replace("-", "_")), *reason)
        raise AssertionError(line)

    def _step(self, event: Event, reason: str = "") -> str:
        before = self.lifecycle.state
        try:
            self.lifecycle, effects = step(self.lifecycle, event, reason)
        except IllegalMove as error:
            return f"illegal: {error}"
        self.settled = self.settled or Effect.RECORD_SETTLED in effects
        if Effect.RECORD_OUTCOME in effects:
            self.recorded = self.lifecycle.outcome
        shown = [
            (
                f"{before} -> {self.lifecycle.state}"
                if before is not self.lifecycle.state
                else f"{before} stays"
            )
        ]
        shown += [
            f"  {effect}{self._decided() if effect is Effect.RECORD_OUTCOME else ''}"
            for effect in effects
        ]
        return "\n".join(shown)

    def _decided(self) -> str:
        assert self.recorded is not None
        return f" {self.recorded.state}: {self.recorded.reason}"


@pytest.mark.parametrize("path", transcripts("attempt"), ids=lambda path: path.stem)
def test_a_scenario_gives_the_states_and_effects_of_its_transcript(path: Path) -> None:
    """Each file is one attempt that a person can review."""
    check(path, Scenario().execute)


@given(st.lists(st.sampled_from(Event), max_size=30))
def test_no_order_of_events_reports_twice_or_starts_a_program_late(events: list[Event]) -> None:
    """A second program, or an outcome after the attempt was given up, would run or count a task
    twice.
    """
    lifecycle, starts, reports = Lifecycle(), 0, 0
    ended = dropped = False
    for event in events:
        if event not in TRANSITIONS[lifecycle.state]:
            continue
        outcome = lifecycle.outcome
        lifecycle, effects = step(lifecycle, event, event)
        if event is Event.STARTED:
            starts += 1
            assert not ended
            assert not dropped
        if Effect.REPORT in effects:
            reports += 1
            assert not dropped
        if ended or outcome is not None:
            assert lifecycle.outcome is outcome
        ended = ended or event in (Event.ENDED, Event.FIRST_ENDED)
        dropped = dropped or lifecycle.state in (State.DROPPING, State.DROPPED)
    assert starts <= 1
    assert reports <= 1


@given(
    st.lists(st.sampled_from([each for each in Event if each is not Event.UNREPORTED]), max_size=40)
)
def test_every_settled_attempt_was_reported_or_has_freed_its_placement(events: list[Event]) -> None:
    """Otherwise the scheduler would reserve the host for an attempt that does not run; a host that
    is over needs no message.
    """
    lifecycle, seen = Lifecycle(), set[Effect]()
    accepted = False
    for event in events:
        if event not in TRANSITIONS[lifecycle.state]:
            continue
        was_settled = lifecycle.state is State.SETTLED
        lifecycle, effects = step(lifecycle, event)
        seen |= set(effects)
        accepted = accepted or event is Event.ACCEPTED
        if lifecycle.state is State.SETTLED and not was_settled:
            assert accepted or lifecycle.hurried or Effect.FREE_PLACEMENT in seen
            assert Effect.RECORD_SETTLED in effects
