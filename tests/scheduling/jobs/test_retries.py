"""Which account pays for an attempt of an independent task, and whether another attempt follows.
`test_gang_retries` tests gangs.
"""

from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.model.errors import IllegalMove
from iris.model.job.attempts import Account, TaskOutcome
from iris.model.job.gangs import Gang
from iris.model.job.spec import Coscheduling, JobSpec
from iris.model.job.status import TaskStatus
from iris.model.states import TaskState
from iris.scheduling.jobs.retries import (
    MAX_AVOIDED,
    MAX_DELAY,
    RetryDecision,
    account_of,
    after,
    asked_by,
    avoided_after,
    decide,
    judge,
)
from iris.usage.records import Asked
from tests.builders import NOON, a_spec, a_task, an_outcome, at
from tests.strategies import CHEAP

S = TaskState


def decided(spec: JobSpec, before: TaskStatus, outcome: TaskOutcome) -> RetryDecision:
    """Returns the decision after an attempt of one task."""
    return decide(spec, before, judge([outcome]))


@pytest.mark.parametrize(
    ("state", "started_at", "account"),
    [
        (S.FAILED, NOON, Account.FAILURES),
        (S.FAILED, None, Account.FAILURES),  # there is no such program: the user's own fault
        (S.WORKER_FAILED, NOON, Account.PREEMPTIONS),
        (S.PREEMPTED, NOON, Account.PREEMPTIONS),
        (S.WORKER_FAILED, None, Account.UNDELIVERED),
        (S.PREEMPTED, None, Account.UNDELIVERED),
        (S.SUCCEEDED, NOON, Account.NONE),
        (S.KILLED, NOON, Account.NONE),
        (S.UNSCHEDULABLE, None, Account.NONE),
    ],
)
def test_the_account_follows_from_whose_fault_it_was(
    state: TaskState, started_at: datetime | None, account: Account
) -> None:
    """Each kind of fault has its own account."""
    assert account is account_of(an_outcome(state, started_at=started_at))


@pytest.mark.parametrize(
    ("fault", "started_at", "account"),
    [
        ("network", None, Account.SETUPS),
        ("image-pull", None, Account.SETUPS),
        ("setup-timeout", None, Account.SETUPS),
        ("image-pull", NOON, Account.PREEMPTIONS),  # by the words of a program
        (
            "store",
            None,
            Account.PREEMPTIONS,
        ),  # it is the cluster's own, and every job would end while it is away
        ("disk-filled", None, Account.PREEMPTIONS),
    ],
)
def test_a_fault_outside_the_cluster_before_the_program_starts_is_a_set_up_that_failed(
    fault: str, started_at: datetime | None, account: Account
) -> None:
    """If it counted as a lost machine, it would have a hundred retries, each of which uses a host
    for minutes.
    """
    assert account is account_of(an_outcome(S.WORKER_FAILED, started_at=started_at, fault=fault))


@pytest.mark.parametrize(
    ("limit", "paid_before", "retry"),
    [(0, 0, False), (1, 0, True), (1, 1, False), (3, 2, True), (3, 3, False), (3, 7, False)],
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

    assert decided(spec, a_task(**{paid: paid_before}), an_outcome(state)).retry is retry


@CHEAP
@given(
    failures=st.integers(0, 200), preemptions=st.integers(0, 200), undelivered=st.integers(0, 200)
)
def test_no_account_pays_for_another(failures: int, preemptions: int, undelivered: int) -> None:
    """Preemptions must not fail a correct program, and a high limit for them must not keep a broken
    program running.
    """
    spec = a_spec(max_retries_failure=2, max_retries_preemption=5)
    before = a_task(failures=failures, preemptions=preemptions, undelivered=undelivered)

    assert decided(spec, before, an_outcome(S.FAILED)).retry is (failures < 2)
    assert decided(spec, before, an_outcome(S.PREEMPTED)).retry is (preemptions < 5)
    assert decided(spec, before, an_outcome(S.WORKER_FAILED, started_at=None)).retry is True


@pytest.mark.parametrize("state", [S.SUCCEEDED, S.KILLED, S.UNSCHEDULABLE])
def test_what_ended_as_it_should_is_never_repeated(state: TaskState) -> None:
    """A success and a stopped task are not repeated."""
    assert not decided(a_spec(max_retries_failure=9), a_task(), an_outcome(state)).retry


@pytest.mark.parametrize(
    ("state", "started_at", "paid"),
    [(S.FAILED, NOON, "failures"), (S.WORKER_FAILED, None, "undelivered")],
)
def test_each_repetition_waits_longer_up_to_five_minutes(
    state: TaskState, started_at: datetime | None, paid: str
) -> None:
    """A broken program or host must not cause a fast loop, and a host that works again must be used
    soon.
    """
    spec = a_spec(max_retries_failure=100)
    delays = [
        decided(spec, a_task(**{paid: times}), an_outcome(state, started_at=started_at)).delay
        for times in range(100)
    ]

    assert timedelta(seconds=1) == delays[0]
    assert all(
        later == min(earlier * 2, timedelta(minutes=5)) for earlier, later in pairwise(delays)
    )


@CHEAP
@given(preemptions=st.integers(0, 99))
def test_a_preempted_task_goes_back_into_the_queue_at_once(preemptions: int) -> None:
    """It did nothing wrong, and a long training run is preempted often."""
    assert (
        timedelta(0)
        == decided(a_spec(), a_task(preemptions=preemptions), an_outcome(S.PREEMPTED)).delay
    )


@pytest.mark.parametrize(
    ("state", "spent", "said"),
    [
        (S.FAILED, {"failures": 2}, "exit code 1 (failures 3, max_retries_failure 2)"),
        (S.PREEMPTED, {"preemptions": 4}, "exit code 1 (preemptions 5, max_retries_preemption 4)"),
    ],
)
def test_the_last_attempt_says_which_limit_ended_the_task(
    state: TaskState, spent: dict[str, int], said: str
) -> None:
    """The reason names the option that the user can set."""
    spec = a_spec(max_retries_failure=2, max_retries_preemption=4)

    assert said == decided(spec, a_task(**spent), an_outcome(state, reason="exit code 1")).reason


def test_without_retries_the_reason_is_the_outcome_and_nothing_else() -> None:
    """A user who did not request retries needs no text about limits."""
    assert (
        decided(a_spec(), a_task(), an_outcome(S.FAILED, reason="exit code 1")).reason
        == "exit code 1"
    )


def test_an_attempt_whose_end_is_final_is_not_repeated_and_says_only_why() -> None:
    """A host without the Python version of a function lacks it at the next attempt, too. No limit
    has ended the task.
    """
    decision = decided(
        a_spec(max_retries_failure=3),
        a_task(),
        an_outcome(S.FAILED, reason="no such Python", final=True),
    )

    assert (decision.retry, decision.reason) == (False, "no such Python")


@pytest.mark.parametrize("started_at", [NOON, None])
def test_an_infrastructure_fault_is_paid_like_a_preemption_and_slowed_down_like_a_failure(
    started_at: datetime | None,
) -> None:
    """The fault is not the program's, but the next host may have it, too: a busy accelerator must
    not be tried in a fast loop.
    """
    fault = an_outcome(S.WORKER_FAILED, fault="busy", started_at=started_at)
    spec = a_spec(max_retries_failure=0, max_retries_preemption=100)
    delays = [
        decided(spec, a_task(preemptions=times, faults=times), fault).delay for times in range(20)
    ]

    assert decided(spec, a_task(), fault).account is Account.PREEMPTIONS
    assert timedelta(seconds=1) == delays[0]
    assert all(later == min(earlier * 2, MAX_DELAY) for earlier, later in pairwise(delays))


#: How one attempt ends, and the account that pays.
ENDS = {
    "failed": (an_outcome(S.FAILED), "failures"),
    "preempted": (an_outcome(S.PREEMPTED), "preemptions"),
    "host lost": (an_outcome(S.WORKER_FAILED, finished_at=None), "preemptions"),
    "faulty": (an_outcome(S.WORKER_FAILED, fault="busy"), "preemptions"),
    "not taken": (an_outcome(S.WORKER_FAILED, started_at=None), "undelivered"),
}


@CHEAP
@given(st.lists(st.sampled_from(sorted(ENDS)), max_size=30), st.integers(0, 5), st.integers(0, 5))
def test_a_task_ends_with_the_attempt_that_overdraws_its_account_and_no_sooner(
    story: list[str], most_failures: int, most_preemptions: int
) -> None:
    """In any order of faults each account counts only its own, and attempts that never started are
    free.
    """
    spec = a_spec(max_retries_failure=most_failures, max_retries_preemption=most_preemptions)
    task = a_task()
    paid = {"failures": 0, "preemptions": 0, "undelivered": 0}
    for number, mishap in enumerate(story):
        outcome, account = ENDS[mishap]
        result = judge([outcome])
        decision = decide(spec, task, result)
        (task,) = after(
            [task.model_copy(update={"state": S.RUNNING, "attempt": number + 1})],
            result,
            decision,
            NOON,
        )
        paid[account] += 1
        assert (task.failures, task.preemptions) == (paid["failures"], paid["preemptions"])
        assert timedelta(0) <= decision.delay <= MAX_DELAY
        in_a_row = list(reversed(story[: number + 1]))
        assert task.undelivered == next(
            (i for i, each in enumerate(in_a_row) if each != "not taken"), len(in_a_row)
        )
        overdrawn = paid["failures"] > most_failures or paid["preemptions"] > most_preemptions
        assert decision.retry is not overdrawn
        if overdrawn:
            return


def test_what_ended_a_task_is_written_on_it() -> None:
    """Status and page show the task. The outcome is stored nowhere else after the task
    has ended.
    """
    outcome = an_outcome(S.FAILED, reason="exit code 3", exit_code=3)
    result = judge([outcome])
    before = a_task(state=S.RUNNING)

    (task,) = after([before], result, decide(a_spec(), before, result), at(99))

    assert (task.state, task.exit_code, task.reason) == (S.FAILED, 3, "exit code 3")
    assert (task.started_at, task.finished_at) == (NOON, at(60))


def test_an_attempt_of_which_nobody_knows_when_it_ended_ended_when_it_was_given_up() -> None:
    """The host is lost and cannot report the time."""
    result = judge([an_outcome(S.WORKER_FAILED, finished_at=None)])
    before = a_task(state=S.RUNNING)

    (task,) = after([before], result, decide(a_spec(), before, result), at(99))

    assert task.finished_at == at(99)


def test_a_task_that_has_ended_does_not_end_again() -> None:
    """A second end of one attempt would charge its account twice."""
    result = judge([an_outcome(S.FAILED)])
    before = a_task(state=S.SUCCEEDED)

    with pytest.raises(IllegalMove):
        after([before], result, decide(a_spec(), before, result), NOON)


def test_a_host_is_avoided_more_the_more_attempts_it_spoilt_and_only_the_last_ones_count() -> None:
    """With two broken hosts the job avoids both. A request stays small, and old faults are
    forgotten.
    """
    once = avoided_after((), ["h1"])
    twice = avoided_after(avoided_after(once, ["h2"]), ["h1"])

    assert [once, twice] == [("h1",), ("h1", "h2", "h1")]
    assert avoided_after(twice, []) == twice
    assert avoided_after(twice, [f"s{number}" for number in range(9)]) == ("s5", "s6", "s7", "s8")
    assert len(avoided_after(twice, ["h3", "h4"])) == MAX_AVOIDED


def test_a_gang_tells_when_it_could_ask_and_for_which_hosts() -> None:
    """The limit of an array and a hold are no waits for hosts, but the place in the queue counts
    from the submission.
    """
    spec = a_spec(
        replicas=8,
        coscheduling=Coscheduling(group_by="rack", groups=2),
        scheduling_timeout=timedelta(hours=1),
    )
    gang = Gang(cluster="lab", spec=spec, submitted_at=NOON, avoided=("h1",))
    asked = Asked(at=NOON, group_by="rack", groups=2, scheduling_timeout=timedelta(hours=1))
    assert asked_by(gang) == asked

    later = gang.model_copy(update={"admitted_at": at(60), "held_for": timedelta(seconds=30)})
    assert asked_by(later) == asked.model_copy(update={"at": at(90), "queued_at": NOON})
