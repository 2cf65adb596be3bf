"""The placements that control planes signal to their owners, in place of the scheduler.

A control plane that sends many batches signals the placements that these make possible itself,
without an activity of the scheduler, and confirms them with a later batch. If it dies before that,
the scheduler signals them.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from iris.messages.scheduler import Batch
from iris.model.job.requests import Placement
from iris.workflows.scheduler import unsent_signals

#: A control plane that has sent no batch for this time no longer counts as running. The answer to a
#: batch says whether another control plane runs.
RUNS_FOR = timedelta(seconds=10)


class HandedOver:
    """The placements that control planes have to signal and have not confirmed yet."""

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
        handed = unsent_signals.batch(placements)
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
