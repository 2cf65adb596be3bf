"""Recovers the ledger from the reports of slices and gangs, after an earlier scheduler and its
ledger were lost.
"""

from collections.abc import Callable
from datetime import datetime

from temporalio import workflow

from iris.activities.control.recovery import RecoveryQueries
from iris.model import names
from iris.scheduling.ledger.recovery import LedgerRecovery, RecoveryCursor, RecoveryPage
from iris.workflows import policies


async def recover(
    cluster: str,
    recovery: LedgerRecovery,
    now: Callable[[], datetime],
    entered: Callable[[RecoveryPage, int], None],
) -> None:
    """Recovers the ledger from the reports of all slices and gangs.

    Args:
        now: returns the time for decisions.
        entered: called for each page of reports that was entered into the ledger, with their
        number.
    """
    if await _enter_reports(cluster, recovery, now, entered):
        # New workflows are in the service's lists after a moment. The second round finds those that
        # began just before the first one.
        await workflow.sleep(policies.LIST_LAG)
        await _enter_reports(cluster, recovery, now, entered)


async def _enter_reports(
    cluster: str,
    recovery: LedgerRecovery,
    now: Callable[[], datetime],
    entered: Callable[[RecoveryPage, int], None],
) -> int:
    """Queries slices and gangs page by page and enters their reports. Returns the number of hosts
    and gangs.
    """
    cursor, found = RecoveryCursor(cluster=cluster), 0
    while True:
        recovery.request_page()
        requested_at = now()
        page = await workflow.execute_activity_method(
            RecoveryQueries.query_page,
            cursor,
            task_queue=names.control_queue(cluster),
            start_to_close_timeout=policies.RECOVERY_QUERIES,
            heartbeat_timeout=policies.OBSERVE,
            retry_policy=policies.UNTIL_DONE,
        )
        reports = recovery.enter(page, requested_at)
        found += reports
        entered(page, reports)
        if not page.token:
            return found
        cursor = cursor.model_copy(update={"token": page.token})
