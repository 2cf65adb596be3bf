"""The quotas on waiting jobs. A job above them is held outside the queue: its gangs send their
requests again later.
"""

from iris.model.job.requests import Request, job_of_key
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.placement.refusals import Refusal, RefusalCode
from iris.scheduling.quotas.table import Account


def too_many_jobs(ledger: Ledger, request: Request) -> Refusal | None:
    """Returns why the request is not queued, because too many jobs of its user or team wait; None
    if it is.
    """
    for account in ledger.quotas.table.waiting_of(request.user):
        waiting = waiting_jobs(ledger, account)
        if account.waiting is None or waiting < account.waiting:
            continue
        if job_of_key(request.key) in ledger.waiting.jobs_of(request.user):
            continue
        return Refusal(
            code=RefusalCode.WAITING_QUOTA,
            message=(
                f"{waiting:,} jobs wait, and quota {account.name} of {account.holder} allows"
                f" {account.waiting:,} at once"
            ),
            remedy=(
                "wait: the job sends its request again; or cancel jobs that wait, or raise"
                f" quotas.{account.name}.waiting"
            ),
        )
    return None


def waiting_jobs(ledger: Ledger, account: Account) -> int:
    """Returns the number of waiting jobs of the users whom the account covers."""
    return sum(len(ledger.waiting.jobs_of(user)) for user in account.users)
