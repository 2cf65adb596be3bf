"""Builds the scheduler's answer about quotas from its ledger."""

from collections.abc import Iterator, Mapping

from iris.messages.quotas import QuotaList, QuotaQuestion, QuotaRow
from iris.model.job.demand_limits import fitting, size_of
from iris.model.job.requests import job_of_key
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.ledger.waiting_quotas import waiting_jobs
from iris.scheduling.quotas.use import QuotaUse

#: The maximum number of rows in one answer about quotas.
MOST_ROWS = 1_000


def quotas_of_ledger(ledger: Ledger, question: QuotaQuestion) -> QuotaList:
    """Returns the quotas with their use, in the order of the configuration. A quota that each user
    has is listed for the users who have jobs.
    """
    rows = list(_rows(ledger, question.user))
    shown = fitting(((row, size_of(row)) for row in rows), MOST_ROWS)
    return QuotaList(rows=tuple(shown), total=len(rows))


def _rows(ledger: Ledger, user: str) -> Iterator[QuotaRow]:
    use, waiting = ledger.quotas, _waiting(ledger)
    lent = lent_of(use)
    for number, account in enumerate(use.table.accounts):
        if user and user not in account.users and account.users:
            continue
        if user and not account.users and account.name:
            continue
        facts = {
            "quota": account.name,
            "holder": account.holder,
            "bands": account.bands,
            "cohort": account.cohort or "",
            "waiting": len(waiting.get(number, ())),
        }
        for resource, nominal in account.nominal.items():
            used = use.used_of(number, resource)
            yield QuotaRow(
                **facts,
                resource=resource,
                used=used,
                nominal=nominal,
                borrowed=max(0, used - nominal) if account.cohort is not None else 0,
                lent=lent.get((number, resource), 0),
            )
        if account.waiting is not None:
            yield QuotaRow(
                **facts,
                resource="waiting",
                used=waiting_jobs(ledger, account),
                nominal=account.waiting,
            )


def _waiting(ledger: Ledger) -> Mapping[int, set[str]]:
    """Returns the waiting jobs that each account covers."""
    found: dict[int, set[str]] = {}
    for first, keys in ledger.waiting.keys_of_lines():
        jobs = {job_of_key(key) for key in keys}
        for number in ledger.quotas.table.covering(first):
            found.setdefault(number, set()).update(jobs)
    return found


def lent_of(use: QuotaUse) -> dict[tuple[int, str], int]:
    """Returns what each account lends now. What a cohort has borrowed is taken from its accounts in
    the order of the configuration.
    """
    accounts = use.table.accounts
    borrowed: dict[tuple[str, str], int] = {}
    for number, account in enumerate(accounts):
        for resource, nominal in account.nominal.items() if account.cohort is not None else ():
            pool = (account.cohort or "", resource)
            over = max(0, use.used_of(number, resource) - nominal)
            borrowed[pool] = borrowed.get(pool, 0) + over
    found: dict[tuple[int, str], int] = {}
    for number, account in enumerate(accounts):
        for resource, nominal in account.nominal.items() if account.cohort is not None else ():
            pool = (account.cohort or "", resource)
            held = max(use.used_of(number, resource), account.kept.get(resource, 0))
            found[number, resource] = lends = min(borrowed[pool], max(0, nominal - held))
            borrowed[pool] -= lends
    return found
