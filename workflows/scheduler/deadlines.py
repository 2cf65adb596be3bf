"""Evicts what still runs on drained hosts at the deadlines of their drains."""

from collections.abc import Callable, Sequence
from datetime import datetime

from temporalio import workflow

from iris.planners.drains import evict_due, next_deadline
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.placement.preemption import Eviction
from iris.workflows import policies


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
