"""Which account pays for an attempt of a gang, how each of its tasks ends, and the job's state
after that.
"""

from collections.abc import Sequence
from datetime import timedelta
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.model.job.attempts import Account, TaskOutcome
from iris.model.job.spec import JobSpec
from iris.model.job.status import TaskStatus
from iris.model.states import ENDED, JobState, TaskState, move_task, roll_up
from iris.scheduling.jobs.retries import (
    MAX_DELAY,
    RetryDecision,
    account_of,
    after,
    decide,
    judge,
    use_end,
)
from iris.usage.records import UseEnd
from tests.builders import NOON, a_spec, a_task, an_outcome, at
from tests.strategies import CHEAP

S = TaskState

SUCCEEDED = an_outcome(S.SUCCEEDED, exit_code=0)
#: Ended because a sibling had; it may have run or not.
STOPPED = an_outcome(S.KILLED, reason="cancelled", started_at=None)
CRASHED = an_outcome(S.FAILED, reason="exit code 134", exit_code=134, finished_at=at(5))
LOST = an_outcome(S.WORKER_FAILED, reason="host h9 was lost", finished_at=at(65))
PREEMPTED = an_outcome(S.PREEMPTED, reason="the host was preempted", finished_at=at(30))
FAULTY = an_outcome(
    S.WORKER_FAILED,
    reason="infrastructure fault: busy",
    fault="busy",
    finished_at=at(2),
    started_at=None,
)
NOT_TAKEN = an_outcome(
    S.WORKER_FAILED, reason="host h9 did not start the task", started_at=None, finished_at=None
)
ANY = st.sampled_from([SUCCEEDED, STOPPED, CRASHED, LOST, PREEMPTED, FAULTY, NOT_TAKEN])


def a_gang(size: int, state: TaskState = S.RUNNING, **paid: int) -> list[TaskStatus]:
    """The tasks of a gang on their hosts."""
    return [a_task(index=index, state=state, attempt=1, **paid) for index in range(size)]


def ended(
    outcomes: Sequence[TaskOutcome], spec: JobSpec | None = None, evicted: str = "", **paid: int
) -> tuple[list[TaskStatus], RetryDecision]:
    """Returns the tasks after an attempt with these outcomes, and the decision about the
    next one.
    """
    tasks, result = a_gang(len(outcomes), **paid), judge(outcomes, evicted)
    decision = decide(spec or a_spec(), tasks[0], result)
    return after(tasks, result, decision, at(99)), decision


@pytest.mark.parametrize("outcomes", list(permutations([LOST, CRASHED, CRASHED, STOPPED])))
def test_a_lost_host_explains_the_crashes_of_its_siblings_whatever_the_order(
    outcomes: tuple[TaskOutcome, ...],
) -> None:
    """The siblings crash within seconds of the loss, which is known a minute later. The user pays
    for neither.
    """
    result = judge(outcomes)

    assert result.account is Account.PREEMPTIONS
    assert result.outcome.reason == "host h9 was lost"
    assert {outcome.state for outcome in result.outcomes} == {S.WORKER_FAILED}


@pytest.mark.parametrize("cause", [LOST, PREEMPTED, FAULTY, NOT_TAKEN])
@pytest.mark.parametrize("crashed_at", [1, 100])
def test_no_fault_of_a_machine_is_charged_to_the_program(
    cause: TaskOutcome, crashed_at: int
) -> None:
    """That holds even if the user's logs show only the crash of a sibling."""
    crash = CRASHED.model_copy(update={"finished_at": at(crashed_at)})

    tasks, decision = ended([crash, cause, SUCCEEDED], a_spec(max_retries_failure=0))

    assert decision.retry
    assert {task.failures for task in tasks} == {0}


@CHEAP
@given(
    st.lists(ANY, min_size=1, max_size=6),
    st.sampled_from(["", "evicted: production needs its place"]),
)
def test_infrastructure_never_costs_failures_and_success_never_costs_anything(
    outcomes: list[TaskOutcome], evicted: str
) -> None:
    """For any mix of outcomes, a failure is paid exactly when a program failed and no
    machine did.
    """
    everybody = all(outcome.state is S.SUCCEEDED for outcome in outcomes)
    accounts = {account_of(outcome) for outcome in outcomes}
    by_machine = bool(evicted) or bool(accounts & {Account.PREEMPTIONS, Account.UNDELIVERED})

    tasks, decision = ended(outcomes, evicted=evicted)

    assert {task.failures for task in tasks} == {
        int(not everybody and not by_machine and Account.FAILURES in accounts)
    }
    if everybody:
        assert decision.account is Account.NONE


@CHEAP
@given(
    st.lists(ANY, min_size=1, max_size=6),
    st.sampled_from(["", "evicted"]),
    st.fixed_dictionaries(
        {name: st.integers(0, 3) for name in ("failures", "preemptions", "undelivered", "faults")}
    ),
    st.integers(0, 3),
)
def test_the_tasks_of_a_gang_have_the_same_in_their_accounts(
    outcomes: list[TaskOutcome], evicted: str, paid: dict[str, int], limit: int
) -> None:
    """One attempt costs each task of the gang one unit of the same account."""
    tasks, decision = ended(
        outcomes, a_spec(max_retries_failure=limit, max_retries_preemption=limit), evicted, **paid
    )

    assert (
        len({(task.failures, task.preemptions, task.undelivered, task.faults) for task in tasks})
        == 1
    )
    first, *_ = tasks
    spent = {"failures": first.failures, "preemptions": first.preemptions}
    assert spent == {name: paid[name] + (decision.account == name) for name in spent}


@CHEAP
@given(st.lists(ANY, min_size=1, max_size=6), st.sampled_from(["", "evicted"]), st.integers(0, 1))
def test_a_gang_that_is_tried_again_can_be_and_one_that_is_not_has_ended(
    outcomes: list[TaskOutcome], evicted: str, limit: int
) -> None:
    """All tasks continue or none does. A sibling in a state without a transition would block the
    job.
    """
    tasks, decision = ended(
        outcomes, a_spec(max_retries_failure=limit, max_retries_preemption=limit), evicted
    )

    for task in tasks:
        assert task.state in ENDED
        if decision.retry:
            assert move_task(task.state, S.PENDING) is S.PENDING
    assert all(task.reason or task.state is S.SUCCEEDED for task in tasks)


@CHEAP
@given(st.lists(ANY, min_size=1, max_size=6), st.sampled_from(["", "evicted"]))
def test_the_job_is_what_ended_its_gang(outcomes: list[TaskOutcome], evicted: str) -> None:
    """Without retries, the end of the first attempt is the job's end and gives the reason."""
    tasks, decision = ended(
        outcomes, a_spec(max_retries_failure=0, max_retries_preemption=0), evicted
    )
    if decision.retry:
        assert decision.account is Account.UNDELIVERED
        return
    stopped = any(outcome.state is S.KILLED for outcome in outcomes)
    expected = {
        Account.FAILURES: JobState.FAILED,
        Account.PREEMPTIONS: JobState.WORKER_FAILED,
        Account.NONE: JobState.KILLED if stopped else JobState.SUCCEEDED,
    }

    assert roll_up(task.state for task in tasks) is expected[decision.account]


def test_one_terminal_failure_ends_the_siblings_and_says_whose_it_was() -> None:
    """A sibling that is shown as failed would send its user to the wrong log."""
    tasks, decision = ended([STOPPED, CRASHED, SUCCEEDED])

    assert not decision.retry
    assert [task.state for task in tasks] == [S.KILLED, S.FAILED, S.KILLED]
    assert [task.reason for task in tasks] == [
        "ended with task 1: exit code 134",
        "exit code 134",
        "ended with task 1: exit code 134 (it had succeeded)",
    ]
    assert [task.exit_code for task in tasks] == [None, 134, 0]


def test_of_several_failures_the_first_one_counts_and_the_others_keep_their_own_reasons() -> None:
    """A crash ends other tasks, so the first failure is the cause. The reasons of the others may
    still help.
    """
    later = CRASHED.model_copy(
        update={"reason": "exit code 1", "exit_code": 1, "finished_at": at(6)}
    )

    result = judge([later, CRASHED])

    assert result.culprit == 1
    assert [outcome.reason for outcome in result.outcomes] == ["exit code 1", "exit code 134"]
    assert {outcome.state for outcome in result.outcomes} == {S.FAILED}


def test_the_machine_that_went_first_is_the_one_that_is_named() -> None:
    """A maintenance stops the hosts of a slice one after another."""
    first = LOST.model_copy(update={"reason": "host h2 was lost", "finished_at": at(64)})

    unknown = LOST.model_copy(update={"reason": "host h1 was lost", "finished_at": None})

    for outcomes in permutations([LOST, first, unknown, NOT_TAKEN]):
        assert judge(outcomes).outcome.reason == "host h2 was lost"


def test_a_gang_that_somebody_stopped_was_stopped_even_if_a_task_had_succeeded_by_then() -> None:
    """Otherwise a cancelled job whose first task had succeeded would not count as cancelled."""
    result = judge([SUCCEEDED, STOPPED])

    assert result.account is Account.NONE
    assert result.outcome.state is S.KILLED


@CHEAP
@given(st.lists(ANY, min_size=1, max_size=4))
def test_an_evicted_gang_pays_one_preemption_and_is_told_why(outcomes: list[TaskOutcome]) -> None:
    """The eviction stops its programs, so their exit codes do not count. Only a success counts."""
    tasks, decision = ended(
        outcomes, evicted="evicted: bob/train of band production needs its place"
    )
    if all(outcome.state is S.SUCCEEDED for outcome in outcomes):
        assert {task.state for task in tasks} == {S.SUCCEEDED}
        return

    assert decision.account is Account.PREEMPTIONS
    assert decision.retry
    assert {(task.state, task.reason, task.preemptions) for task in tasks} == {
        (S.PREEMPTED, "evicted: bob/train of band production needs its place", 1)
    }


def test_an_evicted_gang_goes_back_into_the_queue_at_once() -> None:
    """The gang did nothing wrong, and it keeps the time of its submission."""
    _, decision = ended([STOPPED, STOPPED], evicted="evicted", preemptions=7)

    assert decision.delay == timedelta(0)


@pytest.mark.parametrize(("limit", "retry"), [(0, False), (1, True)])
def test_one_lost_host_bounces_the_whole_gang_within_the_budget_for_preemptions(
    limit: int, retry: bool
) -> None:
    """The loss costs one preemption. If the limit is reached, all tasks end for the same reason."""
    tasks, decision = ended([SUCCEEDED, LOST, CRASHED], a_spec(max_retries_preemption=limit))

    assert decision.retry is retry
    assert {task.state for task in tasks} == {S.WORKER_FAILED}
    assert {task.preemptions for task in tasks} == {1}
    assert all("host h9 was lost" in task.reason for task in tasks)


def test_a_gang_that_one_host_did_not_take_up_pays_nothing_and_waits_ever_longer() -> None:
    """Its other tasks may have run and crashed without the missing one. A broken host must not
    cause a fast loop of retries.
    """
    delays = [
        ended([CRASHED, NOT_TAKEN, STOPPED], undelivered=times)[1].delay for times in range(100)
    ]

    assert delays[:4] == [timedelta(seconds=seconds) for seconds in (1, 2, 4, 8)]
    assert delays == sorted(delays)
    assert delays[-1] == MAX_DELAY


@CHEAP
@given(
    st.lists(ANY, min_size=1, max_size=4),
    st.fixed_dictionaries(
        {
            name: st.integers(0, 10**6)
            for name in ("failures", "preemptions", "undelivered", "faults")
        }
    ),
)
def test_no_delay_is_longer_than_the_longest(
    outcomes: list[TaskOutcome], paid: dict[str, int]
) -> None:
    """A host that works again must be used soon, and no number may overflow."""
    spec = a_spec(max_retries_failure=10**7, max_retries_preemption=10**7)

    assert timedelta(0) <= ended(outcomes, spec, **paid)[1].delay <= MAX_DELAY


def test_the_reason_of_the_last_attempt_names_the_limit_once() -> None:
    """The culprit has the limit in its reason, and its siblings name the culprit."""
    tasks, _ = ended([STOPPED, CRASHED], a_spec(max_retries_failure=2), failures=2)

    assert tasks[1].reason == "exit code 134 (failures 3, max_retries_failure 2)"
    assert tasks[0].reason == "ended with task 1: exit code 134"


def test_a_gang_that_found_no_hosts_in_time_is_unschedulable_as_a_whole() -> None:
    """No account pays, no attempt follows, and every task has the reason."""
    nowhere = TaskOutcome(state=S.UNSCHEDULABLE, reason="no host within 60 s")
    tasks, result = a_gang(2, state=S.PENDING), judge([nowhere, nowhere])
    decision = decide(a_spec(max_retries_failure=9), tasks[0], result)

    after_it = after(tasks, result, decision, NOON)

    assert not decision.retry
    assert {(task.state, task.reason) for task in after_it} == {
        (S.UNSCHEDULABLE, "no host within 60 s")
    }
    assert roll_up(task.state for task in after_it) is JobState.UNSCHEDULABLE


NO_NETWORK = an_outcome(S.WORKER_FAILED, reason="set-up failed", fault="network", started_at=None)


@pytest.mark.parametrize(
    ("outcomes", "evicted", "cancelled", "end"),
    [
        ([SUCCEEDED, SUCCEEDED], "", False, UseEnd.SUCCEEDED),
        ([SUCCEEDED, SUCCEEDED], "", True, UseEnd.SUCCEEDED),
        ([SUCCEEDED, SUCCEEDED], "for another gang", False, UseEnd.SUCCEEDED),
        ([SUCCEEDED, CRASHED], "", False, UseEnd.FAILED),
        ([STOPPED, CRASHED], "", True, UseEnd.CANCELLED),
        ([STOPPED, CRASHED], "for another gang", False, UseEnd.PREEMPTED),
        ([LOST, CRASHED], "", False, UseEnd.PREEMPTED),
        ([STOPPED, PREEMPTED], "", False, UseEnd.PREEMPTED),
        ([FAULTY, STOPPED], "", False, UseEnd.PREEMPTED),
        ([NO_NETWORK, STOPPED], "", False, UseEnd.SET_UP_FAILED),
        ([NOT_TAKEN, STOPPED], "", False, UseEnd.NEVER_STARTED),
        ([STOPPED, STOPPED], "", True, UseEnd.CANCELLED),
        ([STOPPED, SUCCEEDED], "", False, UseEnd.CANCELLED),
        ([], "", False, UseEnd.NEVER_STARTED),
        ([], "", True, UseEnd.CANCELLED),
    ],
)
def test_the_record_of_use_says_what_the_time_of_a_gang_was_good_for(
    outcomes: list[TaskOutcome], evicted: str, cancelled: bool, end: UseEnd
) -> None:
    """By the account that pays for the attempt, so that the bill and the retries agree."""
    assert use_end(outcomes, evicted, cancelled=cancelled) is end
