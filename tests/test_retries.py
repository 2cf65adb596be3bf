"""Who pays for an attempt, and whether there is another."""

from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.retries import Account, account_of, decide
from iris.states import TaskState
from tests.builders import NOON, a_spec, a_task, an_outcome
from tests.strategies import CHEAP

S = TaskState


@pytest.mark.parametrize(
    ("state", "started_at", "account"),
    [
        (S.FAILED, NOON, Account.FAILURES),
        (S.FAILED, None, Account.FAILURES),  # there is no such program: the user's own fault
        (S.WORKER_FAILED, NOON, Account.PREEMPTIONS),
        (S.PREEMPTED, NOON, Account.PREEMPTIONS),
        (S.WORKER_FAILED, None, Account.UNDELIVERED),
        (S.PREEMPTED, None, Account.UNDELIVERED),
        (S.SUCCEEDED, NOON, Account.NOBODY),
        (S.KILLED, NOON, Account.NOBODY),
        (S.UNSCHEDULABLE, None, Account.NOBODY),
    ],
)
def test_the_account_follows_from_whose_fault_it_was(state: TaskState, started_at: datetime | None, account: Account) -> None:
    """Three accounts, never mixed."""
    assert account is account_of(an_outcome(state, started_at=started_at))


@pytest.mark.parametrize(
    ("limit", "paid_before", "retry"), [(0, 0, False), (1, 0, True), (1, 1, False), (3, 2, True), (3, 3, False), (3, 7, False)]
)
@pytest.mark.parametrize(
    ("state", "limited_by", "paid"),
    [
        (S.FAILED, "max_retries_failure", "failures"),
        (S.WORKER_FAILED, "max_retries_preemption", "preemptions"),
        (S.PREEMPTED, "max_retries_preemption", "preemptions"),
    ],
)
def test_an_attempt_is_repeated_while_its_account_is_within_its_limit(
    state: TaskState, limited_by: str, paid: str, limit: int, paid_before: int, retry: bool
) -> None:
    """`max_retries_failure=3` means four attempts, neither three nor five."""
    spec = a_spec(**{limited_by: limit})

    assert decide(spec, a_task(**{paid: paid_before}), an_outcome(state)).retry is retry


@CHEAP
@given(failures=st.integers(0, 200), preemptions=st.integers(0, 200), undelivered=st.integers(0, 200))
def test_no_account_pays_for_another(failures: int, preemptions: int, undelivered: int) -> None:
    """A budget spent by preemptions must not fail a correct program, nor a generous one keep a broken program running."""
    spec = a_spec(max_retries_failure=2, max_retries_preemption=5)
    before = a_task(failures=failures, preemptions=preemptions, undelivered=undelivered)

    assert decide(spec, before, an_outcome(S.FAILED)).retry is (failures < 2)
    assert decide(spec, before, an_outcome(S.PREEMPTED)).retry is (preemptions < 5)
    assert decide(spec, before, an_outcome(S.WORKER_FAILED, started_at=None)).retry is True


@pytest.mark.parametrize("state", [S.SUCCEEDED, S.KILLED, S.UNSCHEDULABLE])
def test_what_ended_as_it_should_is_never_repeated(state: TaskState) -> None:
    """Nothing is done twice: not a success, and not what somebody stopped."""
    assert not decide(a_spec(max_retries_failure=9), a_task(), an_outcome(state)).retry


@pytest.mark.parametrize(("state", "started_at", "paid"), [(S.FAILED, NOON, "failures"), (S.WORKER_FAILED, None, "undelivered")])
def test_each_repetition_waits_longer_up_to_five_minutes(state: TaskState, started_at: datetime | None, paid: str) -> None:
    """A broken program or host must not spin, and a host that is back must not be ignored for hours."""
    spec = a_spec(max_retries_failure=100)
    delays = [decide(spec, a_task(**{paid: times}), an_outcome(state, started_at=started_at)).delay for times in range(100)]

    assert timedelta(seconds=1) == delays[0]
    assert all(later == min(earlier * 2, timedelta(minutes=5)) for earlier, later in pairwise(delays))


@CHEAP
@given(preemptions=st.integers(0, 99))
def test_a_preempted_task_goes_back_into_the_queue_at_once(preemptions: int) -> None:
    """It did nothing wrong, and a long training run is preempted often."""
    assert timedelta(0) == decide(a_spec(), a_task(preemptions=preemptions), an_outcome(S.PREEMPTED)).delay


@pytest.mark.parametrize(
    ("state", "spent", "said"),
    [
        (S.FAILED, {"failures": 2}, "exit code 1 (failures 3, max_retries_failure 2)"),
        (S.PREEMPTED, {"preemptions": 4}, "exit code 1 (preemptions 5, max_retries_preemption 4)"),
    ],
)
def test_the_last_attempt_says_which_limit_ended_the_task(state: TaskState, spent: dict[str, int], said: str) -> None:
    """Everything is explained: the name is the one that the user can set."""
    spec = a_spec(max_retries_failure=2, max_retries_preemption=4)

    assert said == decide(spec, a_task(**spent), an_outcome(state, reason="exit code 1")).reason


def test_without_retries_the_reason_is_the_outcome_and_nothing_else() -> None:
    """Nobody who asked for no retries needs to read about limits."""
    assert decide(a_spec(), a_task(), an_outcome(S.FAILED, reason="exit code 1")).reason == "exit code 1"
