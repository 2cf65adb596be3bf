"""What is kept of attempts."""

from hypothesis import given
from hypothesis import strategies as st

from iris.model.job.attempts import (
    KEPT,
    NAMED,
    Account,
    AttemptRecord,
    TaskOutcome,
    kept,
    member_ends,
)
from iris.model.states import TaskState
from tests.builders import NOON, an_outcome, at
from tests.strategies import CHEAP

S = TaskState


def a_record(number: int, account: Account) -> AttemptRecord:
    return AttemptRecord(
        number=number,
        hosts=("h1",),
        placed_at=NOON,
        started_at=NOON,
        ended_at=at(60),
        account=account,
        reason="x",
        ends=(),
    )


@CHEAP
@given(
    st.lists(st.sampled_from(Account), max_size=3),
    st.integers(0, KEPT + 40),
    st.sampled_from(Account),
)
def test_so_many_attempts_are_kept_and_no_more_whoever_paid_for_them(
    first: list[Account], many: int, last: Account
) -> None:
    """The records travel with the workflow from run to run. A retry limit may be as large as the
    user likes, but a payload may not.
    """
    records: tuple[AttemptRecord, ...] = ()
    for number, account in enumerate([*first, *[Account.PREEMPTIONS] * many, last], start=1):
        records = kept([*records, a_record(number, account)])

    assert len(records) == min(KEPT, len(first) + many + 1)
    assert records[-1] == a_record(len(first) + many + 1, last)
    assert list(records) == sorted(records, key=lambda record: record.number)


def test_what_never_started_is_left_out_before_what_somebody_paid_for() -> None:
    """A host that does not answer fills the list in an hour, but the user looks for the crash
    before that.
    """
    crash = a_record(1, Account.FAILURES)
    idle = [a_record(number, Account.UNDELIVERED) for number in range(2, KEPT + 10)]

    records = kept([crash, *idle])

    assert records[0] == crash
    assert records[1:] == tuple(idle[-(KEPT - 1) :])


def test_of_a_small_gang_every_end_is_kept() -> None:
    """With the number of the task in its job, and in its order."""
    ends = member_ends(
        [3, 4],
        [an_outcome(S.SUCCEEDED, exit_code=0), an_outcome(S.KILLED, reason="ended with task 5")],
    )

    assert [(end.index, end.state, end.exit_code, end.reason) for end in ends] == [
        (3, S.SUCCEEDED, 0, ""),
        (4, S.KILLED, None, "ended with task 5"),
    ]


@CHEAP
@given(st.lists(st.sampled_from(sorted(S)), min_size=1, max_size=3 * NAMED))
def test_of_a_large_gang_those_are_named_whose_fault_it_was(states: list[TaskState]) -> None:
    """A thousand lines of "ended with task 17" hide task 17."""
    outcomes: list[TaskOutcome] = [an_outcome(state) for state in states]

    ends = member_ends(range(len(states)), outcomes)

    assert len(ends) <= NAMED
    assert all(states[end.index] is end.state for end in ends)
    guilty = [index for index, state in enumerate(states) if state not in (S.SUCCEEDED, S.KILLED)]
    named = [end.index for end in ends]
    assert named == (list(range(len(states))) if len(states) <= NAMED else guilty[:NAMED])
