"""Who pays for an attempt that did not succeed, and whether there is another.

Three accounts per task, never mixed: a budget spent by preemptions must not fail a correct program, and a program that
crashes must not be retried a hundred times because the budget for preemptions is generous.
"""

from datetime import timedelta
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from iris.jobs import JobSpec, TaskOutcome, TaskStatus
from iris.states import TaskState


class Account(StrEnum):
    FAILURES = "failures"  # the program's own fault
    PREEMPTIONS = "preemptions"  # the machine's or the cloud's fault, after the program had started
    UNDELIVERED = "undelivered"  # it never started: free, but slowed down
    NOBODY = "nobody"  # it succeeded, or somebody wanted it to end


class RetryDecision(BaseModel):
    """What follows an attempt."""

    model_config = ConfigDict(frozen=True)

    account: Account
    retry: bool
    delay: timedelta = timedelta(0)
    reason: str = ""


#: The first wait before an attempt is repeated, doubled each time: a broken host or program must not spin.
FIRST_DELAY = timedelta(seconds=1)
MAX_DELAY = timedelta(minutes=5)


def account_of(outcome: TaskOutcome) -> Account:
    """The account that pays for an attempt with this outcome."""
    if outcome.state is TaskState.FAILED:
        return Account.FAILURES
    if outcome.state in (TaskState.WORKER_FAILED, TaskState.PREEMPTED):
        return Account.PREEMPTIONS if outcome.started_at else Account.UNDELIVERED
    return Account.NOBODY


def decide(spec: JobSpec, before: TaskStatus, outcome: TaskOutcome) -> RetryDecision:
    """Whether the task gets another attempt after this outcome; `before` holds what its accounts had paid until now."""
    account = account_of(outcome)
    if account is Account.NOBODY:
        return RetryDecision(account=account, retry=False)
    if account is Account.UNDELIVERED:
        return RetryDecision(account=account, retry=True, delay=_delay(before.undelivered))
    spent, limit = {
        Account.FAILURES: (before.failures + 1, spec.max_retries_failure),
        Account.PREEMPTIONS: (before.preemptions + 1, spec.max_retries_preemption),
    }[account]
    if spent <= limit:
        # A preempted task did nothing wrong and goes back into the queue at once; a failed one waits a little longer each time.
        delay = _delay(spent - 1) if account is Account.FAILURES else timedelta(0)
        return RetryDecision(account=account, retry=True, delay=delay)
    spent_up = f" ({account} {spent}, max_retries_{account.rstrip('s')} {limit})" if limit else ""
    return RetryDecision(account=account, retry=False, reason=f"{outcome.reason}{spent_up}")


def _delay(times: int) -> timedelta:
    return min(FIRST_DELAY * float(2 ** min(times, 20)), MAX_DELAY)
