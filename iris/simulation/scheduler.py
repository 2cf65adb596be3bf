"""The scheduler of a simulation: the real ledger, which gets the messages of one time as one
batch.
"""

from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Protocol

from iris.messages.compression import compressed
from iris.messages.scheduler import Configure, Message, Release
from iris.model.job.requests import Placement
from iris.model.quotas import QuotaRules
from iris.model.rules import Rules
from iris.model.slice.scale_groups import ScaleGroup
from iris.model.slice.scaling import Wanted
from iris.planners.demand import DemandWatch, wanted_of
from iris.planners.ledger_messages import MAX_PLACEMENTS, Entered, enter
from iris.planners.pacing import WAKE_AGAIN, WAKE_EVERY
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.ledger.size import LedgerSize
from iris.scheduling.placement.preemption import Eviction
from iris.simulation.event_queue import Event, EventQueue
from iris.usage.records import AttemptUse, DroppedUses, SliceUse

#: The simulation takes the records of use out of the ledger when it contains this many, because the
#: ledger keeps only a limited number.
TAKE_RECORDS = 200

Reply = Callable[[Entered], None]


class Owner(Protocol):
    """A gang that asks the scheduler for hosts."""

    def placed(self, placement: Placement) -> None: ...

    def evicted(self, eviction: Eviction) -> None: ...


def _size_of(ledger: Ledger) -> int:
    """Returns the size of the ledger as the next run of the scheduler would get it."""
    return len(compressed(ledger.state().model_dump_json().encode())[0])


class SimulatedScheduler:
    """Applies messages to the ledger and runs scheduling passes, as the scheduler's workflow does.

    Args:
        wake: called when the autoscaler has to learn that the demand has changed.
    """

    def __init__(
        self,
        events: EventQueue,
        groups: tuple[ScaleGroup, ...],
        rules: Rules,
        quotas: QuotaRules,
        wake: Callable[[], None],
    ) -> None:
        self.ledger = Ledger()
        self.passes = 0
        #: The records of use that were taken out of the ledger.
        self.uses: list[AttemptUse | SliceUse] = []
        self._events = events
        self._wake = wake
        self._size = LedgerSize()
        self._inbox: deque[tuple[Message, Reply | None]] = deque()
        self._owners: dict[str, Owner] = {}
        self._watch = DemandWatch()
        #: When the autoscaler was last told that the demand has changed; None if it was never told.
        self._woken_at: datetime | None = None
        #: The planned event that next tells the autoscaler that the demand has changed; None if no
        #: such event is planned.
        self._waking: Event | None = None
        #: The event that starts the next pass if no message arrives before it.
        self._again: Event | None = None
        self._is_due = False
        configure = Configure(rules=rules, quotas=quotas, groups=groups)
        enter(self.ledger, configure, size=self._size, whole=True)

    def send(self, message: Message, reply: Reply | None = None) -> None:
        """Sends a message, which the scheduler reads after the events of this time.

        Args:
            reply: called with the effect of the message, before the pass.
        """
        self._inbox.append((message, reply))

    def own(self, key: str, owner: Owner) -> None:
        """Names the gang that learns of what happens to the request with this key."""
        self._owners[key] = owner

    @property
    def is_due(self) -> bool:
        """Whether there is a message to read, or another pass to run."""
        return bool(self._inbox) or self._is_due

    def wanted(self) -> Wanted:
        """Returns what the autoscaler asks for."""
        return wanted_of(self.ledger, self._events.now, self.ledger.demand())

    def run_pass(self) -> None:
        """Enters the messages, runs one pass, and tells gangs of placements and evictions."""
        evicted: list[Eviction] = []
        replies: list[tuple[Reply, Entered]] = []
        while self._inbox:
            message, reply = self._inbox.popleft()
            entered = enter(self.ledger, message, size=self._size, whole=True)
            evicted += entered.evicted
            if reply is not None:
                replies.append((reply, entered))
            if isinstance(message, Release):
                self._owners.pop(message.key, None)
        settled = self.ledger.settle(self._events.now, MAX_PLACEMENTS)
        self.passes += 1
        self._is_due = settled.stopped
        self._pass_again(settled.again_at)
        for placement in settled.placed:
            self._size.placed(placement)
        if self._size.stale:
            self._size = LedgerSize(_size_of(self.ledger))
        for answer, entered in replies:
            answer(entered)
        self._tell(settled.placed, [*evicted, *settled.evicted])
        self._watch_demand()
        if len(self.ledger.ended_uses) >= TAKE_RECORDS:
            self.take_records()

    def take_records(self) -> None:
        """Takes the records of use from the ledger."""
        ended = self.ledger.ended_uses
        while ended:
            for record in ended.take_batch():
                assert not isinstance(record, DroppedUses)
                self.uses.append(record)
            ended.stored()

    def _tell(self, placed: Iterable[Placement], evicted: Iterable[Eviction]) -> None:
        for placement in placed:
            self._owners[placement.key].placed(placement)
        for eviction in evicted:
            if (owner := self._owners.get(eviction.key)) is not None:
                owner.evicted(eviction)

    def _pass_again(self, at: datetime | None) -> None:
        if self._again is not None:
            self._again.cancel()
        self._again = self._events.at(at, self._come_again) if at is not None else None

    def _come_again(self) -> None:
        self._again, self._is_due = None, True

    def _watch_demand(self) -> None:
        """Wakes the autoscaler if the demand has changed, with the pauses of the workflow."""
        self._watch.compare(self.ledger, self.ledger.demand())
        if not self._watch.changed:
            return
        pause = WAKE_EVERY if self._watch.urgent else WAKE_EVERY + WAKE_AGAIN
        due = self._woken_at + pause if self._woken_at is not None else self._events.now
        if self._waking is not None:
            if self._waking.at <= due:
                return
            self._waking.cancel()
        self._waking = self._events.at(due, self._signal)

    def _signal(self) -> None:
        self._waking = None
        if self._watch.changed:
            self._woken_at = self._events.now
            self._watch.signalled(self.ledger.demand())
            self._wake()
