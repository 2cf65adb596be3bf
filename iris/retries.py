"""Who pays for an attempt that did not succeed, and whether there is another.

Three accounts per task, never mixed: a budget spent by preemptions must not fail a correct program, and a program that
crashes must not be retried a hundred times because the budget for preemptions is generous.

The tasks of a gang share their fate, so they have the same in their accounts. When several of them end badly, **a lost host
explains its siblings' crashes**: programs that compute together fail within seconds when one of them vanishes, long before
anybody knows that its host is gone. So a gang is judged when all its members have ended.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from pydantic import BaseModel, ConfigDict

from iris.attempts import Account
from iris.jobs import JobSpec, TaskOutcome, TaskStatus
from iris.states import TaskState, move_task


class RetryDecision(BaseModel):
    """What follows an attempt."""

    model_config = ConfigDict(frozen=True)

    account: Account
    retry: bool
    delay: timedelta = timedelta(0)
    reason: str = ""


class Verdict(BaseModel):
    """What an attempt of a gang came to."""

    model_config = ConfigDict(frozen=True)

    account: Account
    #: The task that decided it, by its place in the gang.
    culprit: int
    #: How every task ends: siblings of the culprit share its end.
    outcomes: tuple[TaskOutcome, ...]

    @property
    def outcome(self) -> TaskOutcome:
        """The culprit's."""
        return self.outcomes[self.culprit]


#: The first wait before an attempt is repeated, doubled each time: a broken host or program must not spin.
FIRST_DELAY = timedelta(seconds=1)
MAX_DELAY = timedelta(minutes=5)

#: Whose word counts most when several members of a gang end badly.
_WEIGHT = (Account.PREEMPTIONS, Account.UNDELIVERED, Account.FAILURES)


def account_of(outcome: TaskOutcome) -> Account:
    """The account that pays for an attempt with this outcome."""
    if outcome.state is TaskState.FAILED:
        return Account.FAILURES
    if outcome.state in (TaskState.WORKER_FAILED, TaskState.PREEMPTED):
        return Account.PREEMPTIONS if outcome.started_at or outcome.fault else Account.UNDELIVERED
    return Account.NOBODY


def judge(outcomes: Sequence[TaskOutcome], evicted: str = "") -> Verdict:
    """What the attempt of a gang came to whose members ended like this.

    Args:
        evicted: why the scheduler took the hosts away; empty when it did not.
    """
    if evicted and not all(outcome.state is TaskState.SUCCEEDED for outcome in outcomes):
        given = tuple(outcome.model_copy(update={"state": TaskState.PREEMPTED, "reason": evicted}) for outcome in outcomes)
        return Verdict(account=Account.PREEMPTIONS, culprit=0, outcomes=given)
    accounts = [account_of(outcome) for outcome in outcomes]
    account = next((each for each in _WEIGHT if each in accounts), Account.NOBODY)
    if account is Account.NOBODY:
        # Who was stopped decides, not who had succeeded by then.
        stopped = (index for index, outcome in enumerate(outcomes) if outcome.state is not TaskState.SUCCEEDED)
        return Verdict(account=account, culprit=next(stopped, 0), outcomes=tuple(outcomes))
    # The one that ended first; of a lost host nobody knows when, so it counts by when it was given up.
    guilty = [index for index, each in enumerate(accounts) if each is account]
    culprit = min(guilty, key=lambda index: (outcomes[index].finished_at is None, outcomes[index].finished_at, index))
    return Verdict(account=account, culprit=culprit, outcomes=tuple(_shared(outcomes, culprit, account)))


def _shared(outcomes: Sequence[TaskOutcome], culprit: int, account: Account) -> list[TaskOutcome]:
    """The ends of all members: nobody succeeds or fails alone in a gang that one of them has brought down."""
    if len(outcomes) == 1:
        return list(outcomes)
    cause = outcomes[culprit]
    shared = []
    for index, outcome in enumerate(outcomes):
        if index == culprit or (account is Account.FAILURES and outcome.state is TaskState.FAILED):
            shared.append(outcome)
            continue
        own = f" (it {_in_words(outcome)})" if outcome.state is not TaskState.KILLED else ""
        reason = f"ended with task {culprit}: {cause.reason}{own}"
        state = TaskState.KILLED if account is Account.FAILURES else cause.state
        shared.append(outcome.model_copy(update={"state": state, "reason": reason}))
    return shared


def _in_words(outcome: TaskOutcome) -> str:
    return "had succeeded" if outcome.state is TaskState.SUCCEEDED else outcome.reason


def decide(spec: JobSpec, before: TaskStatus, verdict: Verdict) -> RetryDecision:
    """Whether there is another attempt after this one; `before` has what the accounts had paid until now."""
    account, outcome = verdict.account, verdict.outcome
    if account is Account.NOBODY:
        return RetryDecision(account=account, retry=False)
    if account is Account.UNDELIVERED:
        return RetryDecision(account=account, retry=True, delay=_delay(before.undelivered))
    spent, limit = {
        Account.FAILURES: (before.failures + 1, spec.max_retries_failure),
        Account.PREEMPTIONS: (before.preemptions + 1, spec.max_retries_preemption),
    }[account]
    if spent <= limit:
        # A preempted task did nothing wrong and goes back into the queue at once, unless it met a fault.
        in_a_row = {Account.FAILURES: spent - 1, Account.PREEMPTIONS: before.faults if outcome.fault else None}[account]
        return RetryDecision(account=account, retry=True, delay=_delay(in_a_row) if in_a_row is not None else timedelta(0))
    spent_up = f" ({account} {spent}, max_retries_{account.rstrip('s')} {limit})" if limit else ""
    return RetryDecision(account=account, retry=False, reason=f"{outcome.reason}{spent_up}")


def after(tasks: Sequence[TaskStatus], verdict: Verdict, decision: RetryDecision, now: datetime) -> list[TaskStatus]:
    """The tasks of a gang after an attempt: how each of them ended, and what it has paid.

    Raises:
        IllegalMove: a task was not in a state that an attempt can end from.
    """
    before = tasks[0]
    in_a_row = {"undelivered": 0, "faults": before.faults + 1 if verdict.outcome.fault else 0}
    paid = {
        Account.FAILURES: {"failures": before.failures + 1, **in_a_row},
        Account.PREEMPTIONS: {"preemptions": before.preemptions + 1, **in_a_row},
        Account.UNDELIVERED: {"undelivered": before.undelivered + 1},
        Account.NOBODY: {},
    }[decision.account]
    ended = []
    for place, (task, outcome) in enumerate(zip(tasks, verdict.outcomes, strict=True)):
        # Siblings that were ended with the culprit are as good as new if there is another attempt, and final if there is none.
        state = verdict.outcome.state if decision.retry else outcome.state
        changes = {
            "state": move_task(task.state, state),
            "reason": decision.reason if place == verdict.culprit and decision.reason else outcome.reason,
            "exit_code": outcome.exit_code,
            "started_at": outcome.started_at or task.started_at,
            "finished_at": outcome.finished_at or now,
        }
        ended.append(task.model_copy(update=changes | paid))
    return ended


def _delay(times: int) -> timedelta:
    return min(FIRST_DELAY * float(2 ** min(times, 20)), MAX_DELAY)
