"""Stores the records of use that the scheduler's ledger makes."""

import contextlib
from collections.abc import Callable
from datetime import datetime

from temporalio import workflow

from iris.activities.control.usage_records import UsageRecords
from iris.messages.scheduler import EndedRecords
from iris.model import names
from iris.scheduling.ledger.ended_uses import EndedUses
from iris.workflows import policies


async def store_uses(cluster: str, uses: EndedUses, now: Callable[[], datetime]) -> None:
    """Stores records as long as the run lasts: when a batch is full, when a slice has ended, or
    when the oldest record has waited for `STORE_USES_AFTER`. Nothing waits for it. While there are
    no records, it adds nothing to the history.

    Records that are not known to be stored when the run ends are stored by the next run.

    Args:
        now: returns the time for decisions.
    """
    while True:
        await workflow.wait_condition(lambda: bool(uses))
        # Runs may be shorter than the pause, so the age of the oldest record counts.
        pause = policies.STORE_USES_AFTER - (now() - uses.waits_since())
        if not uses.is_urgent:
            with contextlib.suppress(TimeoutError):
                await workflow.wait_condition(
                    lambda: uses.is_urgent,
                    timeout=min(max(policies.MOMENT, pause), policies.STORE_USES_AFTER),
                    timeout_summary="stores the records of use",
                )
        batch = uses.take_batch()
        storing = workflow.start_activity_method(
            UsageRecords.store_uses,
            EndedRecords(cluster=cluster, records=batch),
            task_queue=names.patient_queue(cluster),
            start_to_close_timeout=policies.STORE_USES,
            retry_policy=policies.UNTIL_DONE,
            summary=f"{len(batch)} records of use",
        )
        # Not `await storing`: the end of the run ends this wait, and need not cancel the activity.
        await workflow.wait_condition(storing.done)
        storing.result()
        uses.stored()
