"""The autoscaler of a simulation: the real plans, from the facts that simulated slices report."""

from collections import deque
from collections.abc import Callable
from datetime import datetime

from iris.autoscaling import failure_memory
from iris.autoscaling.plan import plan
from iris.messages.autoscaler import ScalingSettings
from iris.messages.scheduler import Outlooks
from iris.model import names
from iris.model.slice.provisioning import SliceRequest
from iris.model.slice.record import SliceRecord
from iris.model.slice.scaling import Create, Drain, Memory, Outlook
from iris.model.slice.status import SliceFacts, SliceState
from iris.planners.known_slices import KnownSlices, slice_input
from iris.planners.pacing import EVALUATE_EVERY
from iris.simulation.event_queue import Event, EventQueue
from iris.simulation.history import CLUSTER, Refused
from iris.simulation.scheduler import SimulatedScheduler
from iris.simulation.slices import SimulatedSlice


class SimulatedAutoscaler:
    """Evaluates the demand as the autoscaler's workflow does, and starts and drains slices.

    Args:
        start: makes a slice.
    """

    def __init__(
        self,
        events: EventQueue,
        settings: ScalingSettings,
        scheduler: SimulatedScheduler,
        start: Callable[[SliceRecord], SimulatedSlice],
    ) -> None:
        self.evaluations = 0
        self.faults: list[Refused] = []
        self.slices: dict[str, SimulatedSlice] = {}
        self._events = events
        self._settings = settings
        self._scheduler = scheduler
        self._start = start
        self._known = KnownSlices()
        self._memory = Memory()
        self._outlooks: tuple[Outlook, ...] = ()
        self._reported: deque[SliceFacts] = deque()
        #: The number of slices that were created in each group.
        self._created: dict[str, int] = {}
        #: The earliest time of the next evaluation. It is the end of the pause after the last one.
        self._ready_at = events.now
        self._next: Event | None = None
        self._pause = min(EVALUATE_EVERY, settings.evaluation_interval)
        self._groups = {group.name: group for group in settings.groups}
        self._evaluate_at(events.now)

    def wake(self) -> None:
        """Learns that the demand has changed."""
        self._evaluate_at(self._ready_at)

    def report(self, facts: SliceFacts) -> None:
        """Learns the facts of a slice. Changes within a second are evaluated together."""
        self._reported.append(facts)
        self._evaluate_at(max(self._events.now, self._ready_at) + self._pause)

    def _evaluate_at(self, at: datetime) -> None:
        if self._next is not None:
            if self._next.at <= at:
                return
            self._next.cancel()
        self._next = self._events.at(at, self._evaluate)

    def _evaluate(self) -> None:
        self._next, now = None, self._events.now
        self.evaluations += 1
        # The cluster was there before the workload, so its first evaluation delays nothing.
        self._ready_at = now + self._pause if self.evaluations > 1 else now
        wanted = self._scheduler.wanted()
        self._apply_facts()
        made = plan(self._settings.groups, self._known.expected, wanted, self._memory, now)
        created = [self._create(create) for create in made.creates]
        self._memory = failure_memory.named(made.memory, created)
        for drain in made.drains:
            self._drain(drain)
        if made.has_news(self._outlooks, wanted):
            self._outlooks = made.outlooks
            self._scheduler.send(Outlooks(outlooks=made.outlooks))
        if made.next_at is not None:
            self._evaluate_at(max(made.next_at, self._ready_at))

    def _apply_facts(self) -> None:
        while self._reported:
            facts = self._reported.popleft()
            group = self._groups.get(facts.group)
            self._memory = self._known.learn(self._memory, group, facts)
            if facts.state is SliceState.DELETED:
                del self.slices[facts.id]
            elif facts.state is SliceState.FAILED and facts.fault is not None:
                self.faults.append(
                    Refused(facts.changed_at, facts.id, facts.group, facts.zone, facts.fault)
                )

    def _create(self, create: Create) -> str:
        group, number = self._groups[create.group], self._created.get(create.group, 0) + 1
        self._created[create.group] = number
        slice_id = names.slice_id(self._settings.prefix, group.name, f"{number:08x}")
        request = SliceRequest(
            slice_id=slice_id,
            cluster=CLUSTER,
            zone=create.zone,
            token=f"{number:032x}",
            group=group,
        )
        start = slice_input(request, create.reason, self._events.now)
        assert start.facts is not None
        self._known.known[slice_id] = start.facts
        self.slices[slice_id] = started = self._start(start.record(self._events.now))
        started.begin()
        return slice_id

    def _drain(self, drain: Drain) -> None:
        self._known.draining.add(drain.slice_id)
        self.slices[drain.slice_id].drain(drain)
