"""The signals that owners have not received yet: batches of them, and all of them on their way to
the next run of the scheduler.

There may be as many as placements, so all of them travel as keys: the ledger has the rest. Only
those that differ travel in full, for example placements on a host that was lost meanwhile.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from temporalio import workflow

from iris.activities.control.notifier import Notifier
from iris.messages.scheduler import Reason, Reasons, SchedulerStart
from iris.model import names
from iris.model.job.demand_limits import fitting, size_of
from iris.model.job.requests import Placement
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.ledger.reason_changes import ReasonChange
from iris.scheduling.placement.preemption import Eviction
from iris.workflows import policies

#: The most signals sent by one activity: a second's work, unless `bounds.BATCH_BYTES` limits them
#: first.
MAX_SIGNALS = 500
Item = TypeVar("Item", Placement, Eviction, Reason)


class Unsent(NamedTuple):
    """The fields of `SchedulerStart` for these signals."""

    noticed: tuple[str, ...]
    notices: tuple[Placement, ...]
    evicted: dict[str, tuple[str, ...]]
    evictions: tuple[Eviction, ...]


def pack(
    ledger: Ledger, notices: Mapping[str, Placement], evictions: Mapping[str, Eviction]
) -> Unsent:
    live = ledger.live
    evicted: dict[str, list[str]] = {}
    others: list[Eviction] = []
    for key, eviction in evictions.items():
        if key in live and live[key].owner == eviction.owner:
            evicted.setdefault(eviction.reason, []).append(key)
        else:
            others.append(eviction)
    return Unsent(
        noticed=tuple(key for key, notice in notices.items() if live.get(key) == notice),
        notices=tuple(notice for key, notice in notices.items() if live.get(key) != notice),
        evicted={reason: tuple(keys) for reason, keys in evicted.items()},
        evictions=tuple(others),
    )


def unpack(
    ledger: Ledger, start: SchedulerStart
) -> tuple[dict[str, Placement], dict[str, Eviction]]:
    """Returns the placements and the evictions to signal, by key."""
    notices = {key: ledger.live[key] for key in start.noticed} | {
        notice.key: notice for notice in start.notices
    }
    evictions = {
        key: Eviction(key=key, owner=ledger.live[key].owner, reason=reason)
        for reason, keys in start.evicted.items()
        for key in keys
    }
    return notices, evictions | {eviction.key: eviction for eviction in start.evictions}


def batch(unsent: Iterable[Item]) -> tuple[Item, ...]:
    """Returns the first of the items, as many as one activity sends."""
    return tuple(fitting(((each, size_of(each)) for each in unsent), MAX_SIGNALS))


def reasons_of(ledger: Ledger, changes: Sequence[ReasonChange]) -> list[Reason]:
    """Returns the changed reasons for their gangs, with the positions of those that wait for their
    turn.
    """
    asked = ((each.refusal, each.requests) for each in changes)
    placed = ledger.wait_reasons().with_positions(asked) if changes else {}
    return [
        Reason(key=request.key, owner=request.owner, refusal=placed.get(request.key, each.refusal))
        for each in changes
        for request in each.requests
    ]


async def send_reasons(cluster: str, reasons: Sequence[Reason]) -> None:
    """Sends waiting gangs the reason why they wait.

    Raises:
        ActivityError: some were not sent.
    """
    while reasons:
        some = batch(reasons)
        reasons = reasons[len(some) :]
        await workflow.execute_activity_method(
            Notifier.signal_reasons,
            Reasons(reasons=some),
            task_queue=names.control_queue(cluster),
            start_to_close_timeout=policies.SIGNAL_OWNERS,
            retry_policy=policies.ONCE,
            summary=f"{len(some) + len(reasons)} changed reasons",
        )
