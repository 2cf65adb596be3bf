"""The signals that owners have not received yet: how one activity sends a batch of them, how a run
of the scheduler passes them to the next run, and which of them control planes send instead.

There may be as many signals as placements, so a run passes on their keys: the ledger has the rest.
Only signals that differ from the ledger are passed on in full, for example placements on a host
that was lost meanwhile.

A control plane that sends many batches signals the placements that these make possible itself,
without an activity of the scheduler, and confirms them with a later batch. If it dies before that,
the scheduler signals them.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from temporalio import workflow

from iris.activities.control.notifier import Notifier
from iris.messages.scheduler import Batch, Reason, Reasons, SchedulerStart
from iris.model import names
from iris.model.job.demand_limits import fitting, size_of
from iris.model.job.requests import Placement
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.ledger.reason_changes import ReasonChange
from iris.scheduling.placement.preemption import Eviction
from iris.workflows import policies

#: The maximum number of signals that one activity sends, which takes a second. The limit on the
#: size of its input, `BATCH_BYTES`, may allow fewer.
MAX_SIGNALS = 500
Item = TypeVar("Item", Placement, Eviction, Reason)
#: A control plane that has sent no batch for this time no longer counts as running. The answer to a
#: batch says whether another control plane runs.
RUNS_FOR = timedelta(seconds=10)


class Unsent(NamedTuple):
    """The signals that have not been sent yet, as a run of the scheduler passes them to its next
    run: in the fields of `SchedulerStart` with the same names.
    """

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
        if key in live and live[key].owner == eviction.owner and not eviction.gone:
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


def add_evictions(unsent: dict[str, Eviction], evictions: Iterable[Eviction]) -> None:
    """Adds evictions to those that wait to be sent. There is one for each gang."""
    for eviction in evictions:
        unsent[eviction.key] = eviction.after(unsent.get(eviction.key))


def batch(unsent: Iterable[Item]) -> tuple[Item, ...]:
    """Returns the first items, as many as one activity sends."""
    return tuple(fitting(((each, size_of(each)) for each in unsent), MAX_SIGNALS))


def reasons_of(ledger: Ledger, changes: Sequence[ReasonChange]) -> list[Reason]:
    """Returns the changed reasons for each gang. The reasons of gangs that wait for their turn have
    the position in the queue.
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
        ActivityError: some reasons were not sent.
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


class HandedOver:
    """The placements that control planes, and not the scheduler, have to signal to the owners, and
    for which they have not confirmed the signals yet.
    """

    def __init__(self) -> None:
        self._placements: dict[str, Placement] = {}
        #: When each control plane last sent a batch.
        self._senders: dict[str, datetime] = {}

    def __bool__(self) -> bool:
        return bool(self._placements)

    def received(self, batch: Batch, now: datetime) -> bool:
        """Records the sender of a batch and what it confirms. Returns whether this sender is the
        only control plane that runs.
        """
        self.forget(batch.signalled)
        if batch.sender:
            self._senders[batch.sender] = now
        self._senders = {sender: at for sender, at in self._senders.items() if now - at <= RUNS_FOR}
        return self._senders.keys() == {batch.sender}

    def hand_over(self, placements: Sequence[Placement]) -> tuple[Placement, ...]:
        """Returns as many of the placements as one answer carries. Its receiver signals them."""
        handed = batch(placements)
        self._placements.update((placement.key, placement) for placement in handed)
        return handed

    def forget(self, keys: Iterable[str]) -> None:
        """Removes placements that were signalled or released."""
        for key in keys:
            self._placements.pop(key, None)

    def unconfirmed(self) -> dict[str, Placement]:
        """Returns the placements, by key, that may not have been signalled yet."""
        return dict(self._placements)

    def take_back(self, placements: dict[str, Placement]) -> dict[str, Placement]:
        """Removes and returns those of the placements that are still not confirmed."""
        taken = {
            key: placement
            for key, placement in placements.items()
            if self._placements.get(key) == placement
        }
        self.forget(taken)
        return taken
