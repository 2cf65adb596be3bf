"""Decides which account an unsuccessful attempt counts against, and whether the task is retried.

Each task has separate accounts. Preemptions must not use up the retries of a correct program. The
limit for preemptions is high, so a program that crashes must not use it, and neither must a set-up
whose package index is gone.

The tasks of a gang share one outcome, so their accounts are equal. When several of them end badly,
**a lost host explains its siblings' crashes**: programs that compute together fail within seconds
when one of them disappears, long before the loss of its host is known. So a gang is judged when all
its tasks have ended.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from iris.model.frozen import Frozen
from iris.model.host.faults import BEYOND_THE_HOST, OF_THE_SETUP
from iris.model.job.attempts import Account, TaskOutcome
from iris.model.job.gangs import Gang
from iris.model.job.requests import Placement
from iris.model.job.spec import JobSpec
from iris.model.job.status import TaskStatus
from iris.model.states import TaskState, move_task
from iris.usage.records import Asked, AttemptEnd, UseEnd


class RetryDecision(Frozen):
    """The decision after an attempt: whether there is another attempt, and when."""

    #: The account, with its own limit of retries, that the attempt counts against.
    account: Account
    retry: bool
    #: The time until the next attempt.
    delay: timedelta = timedelta(0)
    #: The reason that the status of the task at fault shows if the gang is not retried. If it is
    #: empty, the status shows the reason in the task's outcome.
    reason: str = ""


class AttemptResult(Frozen):
    """The result of an attempt of a gang."""

    account: Account
    #: The index in the gang of the task at fault, which decides the result.
    culprit: int
    #: The outcome of every task of the gang. Tasks that ended only because of the task at fault
    #: have its outcome.
    outcomes: tuple[TaskOutcome, ...]

    @property
    def outcome(self) -> TaskOutcome:
        """Returns the culprit's outcome."""
        return self.outcomes[self.culprit]


class HostsAfter(NamedTuple):
    """Facts about the hosts of an ended attempt, which the gang sends to the scheduler with their
    release.
    """

    #: The hosts with a fault that ended the attempt, or prevented its start.
    spoilt_by: tuple[str, ...] = ()
    #: Whether at least one program of the attempt has started.
    ran: bool = False
    #: When the attempt was placed; None if no host is at fault.
    placed_at: datetime | None = None
    #: The incarnations of the attempt's hosts that have ended, as (host, incarnation).
    over: tuple[tuple[str, str], ...] = ()


#: The delay before the first retry. It doubles each time, up to `MAX_DELAY`, so that a broken host
#: or program does not cause a busy loop.
FIRST_DELAY = timedelta(seconds=1)
MAX_DELAY = timedelta(minutes=5)
#: The delays before the retries of a set-up that failed because of a service outside the cluster.
#: After the last retry the job ends. The host itself retries for some seconds, so these delays are
#: for longer outages. In all they last about eight minutes, in which the hosts are free.
SETUP_DELAYS = (
    timedelta(seconds=10),
    timedelta(seconds=30),
    timedelta(minutes=2),
    timedelta(minutes=5),
)
#: The maximum number of hosts that a gang avoids at once. Each avoided host is a constraint of the
#: gang's request, whose size is limited (`REQUEST_BYTES`).
MAX_AVOIDED = 4

#: The order in which accounts are tried if several tasks of a gang fail: the gang's attempt counts
#: against the first of these accounts that the failure of one of the tasks counts against.
_WEIGHT = (Account.PREEMPTIONS, Account.UNDELIVERED, Account.SETUPS, Account.FAILURES)

#: The value of `AttemptEnd.end` in the record of use of an attempt that did not succeed, by the
#: retry account that the attempt counts against.
_USE_ENDS = {
    Account.FAILURES: UseEnd.FAILED,
    Account.PREEMPTIONS: UseEnd.PREEMPTED,
    Account.SETUPS: UseEnd.SET_UP_FAILED,
    Account.UNDELIVERED: UseEnd.NEVER_STARTED,
    Account.NONE: UseEnd.CANCELLED,
}


def account_of(outcome: TaskOutcome) -> Account:
    """Returns the account that an attempt with this outcome counts against."""
    if outcome.state is TaskState.FAILED:
        return Account.FAILURES
    if outcome.state in (TaskState.WORKER_FAILED, TaskState.PREEMPTED):
        if outcome.fault in OF_THE_SETUP and not outcome.started_at:
            return Account.SETUPS
        return Account.PREEMPTIONS if outcome.started_at or outcome.fault else Account.UNDELIVERED
    return Account.NONE


def judge(outcomes: Sequence[TaskOutcome], evicted: str = "") -> AttemptResult:
    """Returns the result of an attempt of a gang whose tasks ended with these outcomes.

    Args:
        evicted: why the scheduler evicted the gang; empty when it did not.
    """
    if evicted and not all(outcome.state is TaskState.SUCCEEDED for outcome in outcomes):
        preempted = tuple(
            outcome.model_copy(update={"state": TaskState.PREEMPTED, "reason": evicted})
            for outcome in outcomes
        )
        return AttemptResult(account=Account.PREEMPTIONS, culprit=0, outcomes=preempted)
    accounts = [account_of(outcome) for outcome in outcomes]
    account = next((each for each in _WEIGHT if each in accounts), Account.NONE)
    if account is Account.NONE:
        # A task that was stopped decides the result, not a task that had succeeded by then.
        stopped = (
            index
            for index, outcome in enumerate(outcomes)
            if outcome.state is not TaskState.SUCCEEDED
        )
        return AttemptResult(account=account, culprit=next(stopped, 0), outcomes=tuple(outcomes))
    # The culprit is the task that ended first. The time at which a host was lost is unknown, so the
    # time at which it was given up counts.
    guilty = [index for index, each in enumerate(accounts) if each is account]
    culprit = min(
        guilty,
        key=lambda index: (outcomes[index].finished_at is None, outcomes[index].finished_at, index),
    )
    return AttemptResult(
        account=account, culprit=culprit, outcomes=tuple(_shared(outcomes, culprit, account))
    )


def _shared(outcomes: Sequence[TaskOutcome], culprit: int, account: Account) -> list[TaskOutcome]:
    """Returns the outcomes of all tasks of a gang that the culprit ended: no other task succeeds or
    fails on its own.
    """
    if len(outcomes) == 1:
        return list(outcomes)
    cause = outcomes[culprit]
    shared = []
    for index, outcome in enumerate(outcomes):
        if index == culprit or (account is Account.FAILURES and outcome.state is TaskState.FAILED):
            shared.append(outcome)
            continue
        own = f" (it {_own_end(outcome)})" if outcome.state is not TaskState.KILLED else ""
        reason = f"ended with task {culprit}: {cause.reason}{own}"
        state = TaskState.KILLED if account is Account.FAILURES else cause.state
        shared.append(outcome.model_copy(update={"state": state, "reason": reason}))
    return shared


def _own_end(outcome: TaskOutcome) -> str:
    return "had succeeded" if outcome.state is TaskState.SUCCEEDED else outcome.reason


def decide(spec: JobSpec, before: TaskStatus, result: AttemptResult) -> RetryDecision:
    """Decides whether there is another attempt after this one.

    Args:
        before: the task's status before this attempt counts in its accounts.
    """
    account, outcome = result.account, result.outcome
    if account is Account.NONE:
        return RetryDecision(account=account, retry=False)
    if account is Account.UNDELIVERED:
        return RetryDecision(account=account, retry=True, delay=_delay(before.undelivered))
    if account is Account.SETUPS:
        if before.setups < len(SETUP_DELAYS):
            return RetryDecision(account=account, retry=True, delay=SETUP_DELAYS[before.setups])
        return RetryDecision(
            account=account,
            retry=False,
            reason=f"{outcome.reason} ({_in_a_row(before.setups + 1)})",
        )
    spent, limit = {
        Account.FAILURES: (before.failures + 1, spec.max_retries_failure),
        Account.PREEMPTIONS: (before.preemptions + 1, spec.max_retries_preemption),
    }[account]
    if spent <= limit and not outcome.final:
        # A preempted task did nothing wrong and is queued again at once, unless an infrastructure
        # fault ended it.
        in_a_row = {
            Account.FAILURES: spent - 1,
            Account.PREEMPTIONS: before.faults if outcome.fault else None,
        }[account]
        return RetryDecision(
            account=account,
            retry=True,
            delay=_delay(in_a_row) if in_a_row is not None else timedelta(0),
        )
    used_up = (
        f" ({account} {spent}, max_retries_{account.rstrip('s')} {limit})"
        if spent > limit > 0
        else ""
    )
    return RetryDecision(account=account, retry=False, reason=f"{outcome.reason}{used_up}")


def after(
    tasks: Sequence[TaskStatus], result: AttemptResult, decision: RetryDecision, now: datetime
) -> list[TaskStatus]:
    """Returns the tasks of a gang after an attempt, with their outcomes and updated accounts."""
    before = tasks[0]
    in_a_row = {"undelivered": 0, "faults": before.faults + 1 if result.outcome.fault else 0}
    if any(outcome.started_at for outcome in result.outcomes):
        in_a_row["setups"] = 0
    paid = {
        Account.FAILURES: {"failures": before.failures + 1, **in_a_row},
        Account.PREEMPTIONS: {"preemptions": before.preemptions + 1, **in_a_row},
        Account.SETUPS: {"setups": before.setups + 1},
        Account.UNDELIVERED: {"undelivered": before.undelivered + 1},
        Account.NONE: {},
    }[decision.account]
    ended = []
    for place, (task, outcome) in enumerate(zip(tasks, result.outcomes, strict=True)):
        # If there is another attempt, siblings take the culprit's state. If there is none, their
        # own outcome is final.
        state = result.outcome.state if decision.retry else outcome.state
        changes = {
            "state": move_task(task.state, state),
            "reason": decision.reason
            if place == result.culprit and decision.reason
            else outcome.reason,
            "exit_code": outcome.exit_code,
            "started_at": outcome.started_at or task.started_at,
            "finished_at": outcome.finished_at or now,
        }
        ended.append(task.model_copy(update=changes | paid))
    return ended


def hosts_after(placement: Placement | None, outcomes: Sequence[TaskOutcome]) -> HostsAfter:
    """Returns which hosts spoilt an attempt, and which incarnations are over.

    An incarnation is over if its agent reported so in the outcome. The slice reports it, too, but
    perhaps after the gang was placed there again. If another agent of the host refused the task,
    that proves nothing: it may be the agent of an earlier incarnation.

    Args:
        placement: the hosts of the attempt; None if it had none.
        outcomes: the outcome of each task; empty if no program was started.
    """
    if placement is None or not outcomes:
        return HostsAfter()
    spoilt_by: list[str] = []
    over: list[tuple[str, str]] = []
    for seat, outcome in zip(placement.seat_of_each_task, outcomes, strict=True):
        if outcome.host_leaves:
            over.append((seat.host_id, seat.incarnation))
        elif outcome.refused:
            continue
        elif outcome.fault not in BEYOND_THE_HOST and (
            outcome.fault or account_of(outcome) is Account.UNDELIVERED
        ):
            spoilt_by.append(seat.host_id)
    ran = any(outcome.started_at for outcome in outcomes)
    # Tasks that share a host name it several times.
    once = tuple(dict.fromkeys(spoilt_by)), tuple(dict.fromkeys(over))
    return HostsAfter(once[0], ran, placement.placed_at if spoilt_by else None, once[1])


def use_end(outcomes: Sequence[TaskOutcome], evicted: str, *, cancelled: bool) -> UseEnd:
    """Returns what the time of an attempt was good for.

    Args:
        outcomes: the outcome of each task; empty if no program was to start.
        evicted: as for `judge`.
        cancelled: whether the gang is cancelled. An attempt that succeeded counts in spite of it.
    """
    result = judge(outcomes, evicted) if outcomes else None
    if result is not None and result.outcome.state is TaskState.SUCCEEDED:
        return UseEnd.SUCCEEDED
    if cancelled:
        return UseEnd.CANCELLED
    return _USE_ENDS[result.account] if result is not None else UseEnd.NEVER_STARTED


def attempt_end(
    gang: Gang, outcomes: Sequence[TaskOutcome], evicted: str, *, cancelled: bool
) -> AttemptEnd:
    """Returns what a gang tells of its attempt for the record of use.

    Args:
        outcomes, evicted, cancelled: as for `use_end`.
    """
    return AttemptEnd(
        end=use_end(outcomes, evicted, cancelled=cancelled),
        started_at=min((each.started_at for each in outcomes if each.started_at), default=None),
        tags=gang.spec.tags,
        asked=asked_by(gang),
    )


def asked_by(gang: Gang) -> Asked:
    """Returns what a gang asked for. The hosts that it avoids after faults are not part of it."""
    spec, together = gang.spec, gang.spec.coscheduling
    at = gang.could_ask_at + gang.held_for
    return Asked(
        limits=spec.limits,
        at=at,
        queued_at=gang.queued_at if gang.queued_at != at else None,
        constraints=tuple(each.marked for each in spec.constraints),
        group_by=together.group_by if together else None,
        groups=together.groups if together else 1,
        scheduling_timeout=spec.scheduling_timeout,
    )


def avoided_after(avoided: Sequence[str], spoilt_by: Sequence[str]) -> tuple[str, ...]:
    """Returns the hosts that the next attempt avoids: the hosts that spoilt the last attempts. A
    host is repeated for each attempt that it spoilt.
    """
    return (*avoided, *spoilt_by)[-MAX_AVOIDED:]


def unprepared(placement: Placement | None, outcomes: Sequence[TaskOutcome]) -> tuple[str, ...]:
    """Returns the hosts on which a set-up failed. These hosts are not at fault, but the network of
    another host may work.
    """
    if placement is None or not outcomes:
        return ()
    ends = zip(placement.seat_of_each_task, outcomes, strict=True)
    return tuple(
        dict.fromkeys(
            seat.host_id for seat, outcome in ends if account_of(outcome) is Account.SETUPS
        )
    )


def _in_a_row(setups: int) -> str:
    return f"the set-ups of {setups} attempts in a row failed"


def _delay(times: int) -> timedelta:
    return min(FIRST_DELAY * float(2 ** min(times, 20)), MAX_DELAY)
