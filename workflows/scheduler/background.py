"""What a run of the scheduler does in the background: it stores records of use, and evicts what
still runs on drained hosts at the deadlines of their drains.
"""

import contextlib
from collections.abc import Callable, Sequence
from datetime import datetime

from temporalio import workflow

from iris.activities.control.usage_records import UsageRecords
from iris.messages.scheduler import EndedRecords
from iris.model import names
from iris.planners.drains import evict_due, next_deadline
from iris.scheduling.ledger.ended_uses import EndedUses
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.placement.preemption import Eviction
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


async def evict_at_deadlines(ledger: Ledger, send: Callable[[Sequence[Eviction]], None]) -> None:
    """Evicts tasks as long as the run lasts. Without a deadline, it adds nothing to the history.

    Args:
        send: queues the evictions to be signalled to their owners.
    """
    while True:
        await workflow.wait_condition(lambda: next_deadline(ledger) is not None)
        deadline = next_deadline(ledger)
        if deadline is not None and await _is_over(ledger, deadline):
            send(evict_due(ledger, deadline))


async def _is_over(ledger: Ledger, deadline: datetime) -> bool:
    """Waits for the deadline. Returns False as soon as another one is the next."""
    try:
        await workflow.wait_condition(
            lambda: next_deadline(ledger) != deadline,
            timeout=max(policies.MOMENT, deadline - workflow.now()),
            timeout_summary="evicts the tasks of a drained host",
        )
    except TimeoutError:
        return True
    return False
