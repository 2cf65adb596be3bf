"""The slices of a simulation: the real lifecycle, and machines that boot, are preempted and are
deleted after the times of the world.
"""

import math
from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta

from iris.autoscaling.liveness import AWAY, REPORT_INTERVAL
from iris.messages.scheduler import SliceEnded, SliceUp
from iris.model.job.requests import EPOCH
from iris.model.slice import keys, lifecycle
from iris.model.slice.events import (
    ConsoleRead,
    DeadlineReached,
    DescribeMachines,
    Effect,
    Event,
    HostGone,
    HostReported,
    HostsOffered,
    HostsRemoved,
    MachinesDeleted,
    MachinesDescribed,
    MachinesListed,
    OfferHosts,
    ReadConsole,
    ReportFacts,
    RequestAbandoned,
    RequestAnswered,
    RequestMachines,
    RetireAnswered,
    RetireHosts,
    WorkflowStarted,
)
from iris.model.slice.provisioning import (
    CreateOutcome,
    MachineState,
    SliceFault,
    SliceObservation,
)
from iris.model.slice.record import SliceRecord
from iris.model.slice.scale_groups import Pace
from iris.model.slice.scaling import Drain
from iris.model.slice.status import LIVE, SliceFacts, SliceState
from iris.planners.messages_sent import down_of, retire_of
from iris.simulation import event_queue
from iris.simulation.chance import sample, uniform, waiting_time
from iris.simulation.event_queue import EventQueue
from iris.simulation.scheduler import SimulatedScheduler
from iris.simulation.world import Machines, World
from iris.usage.records import SliceUse
from iris.usage.slices import slice_use

#: The share of the boot time after which the platform reports that the machines exist. The share is
#: changed if the machines would otherwise exceed `boot_timeout` or `init_timeout` of the group
#: (`Pace`).
MACHINES_EXIST = 0.5
#: The longest time that the platform takes to answer a request, and the time that it takes to
#: delete a slice without machines.
ANSWER = timedelta(seconds=1)
#: The time from the failure of a host until its slice counts as lost.
NOTICED_AFTER = AWAY + REPORT_INTERVAL / 2
#: The states of a slice from its request until the decision to delete it.
_PRESENT = (SliceState.REQUESTED, *LIVE)
_SECRET = b"simulation"


class SimulatedSlice:
    """One simulated slice, from its request until its machines are gone.

    Args:
        report: sends the slice's facts to the autoscaler.
        died: called when the machines stop working, before another component notices it.
    """

    def __init__(
        self,
        events: EventQueue,
        record: SliceRecord,
        scheduler: SimulatedScheduler,
        world: World,
        seed: int,
        report: Callable[[SliceFacts], None],
        died: Callable[[str], None],
    ) -> None:
        self.record = record
        self._events = events
        self._scheduler = scheduler
        self._world = world
        self._seed = seed
        self._report = report
        self._died = died
        self._inbox: deque[Event] = deque()
        #: True while the slice waits for an answer of the platform or of the scheduler. Until then,
        #: other events wait in `_inbox`.
        self._is_busy = False
        self._deadline: event_queue.Event | None = None
        #: The event in which the slice is lost. It is cancelled if the slice is deleted before.
        self._loss: event_queue.Event | None = None
        #: The state of the machines, as the platform would report it; None before they exist.
        self._machines: MachineState | None = None
        #: True if the machines have stopped working, even if no component has noticed it yet.
        self.is_dead = False
        self._key = keys.derived_key(_SECRET, record.facts.id, record.created.token)

    def begin(self) -> None:
        self._receive(WorkflowStarted())

    def drain(self, drain: Drain) -> None:
        """Orders to delete the slice. A request that is not answered yet is given up."""
        self._receive(RequestAbandoned() if self.record.state is SliceState.REQUESTED else drain)

    @property
    def id(self) -> str:
        return self.record.facts.id

    @property
    def _here(self) -> Machines:
        return self._world.of(self.record.facts.group, self.record.facts.zone)

    # Events and their effects.

    def _receive(self, event: Event) -> None:
        """Handles an event, or lets it wait while an effect waits for its result."""
        if self._is_busy and not isinstance(event, RequestAbandoned):
            self._inbox.append(event)
        else:
            self._result(event)

    def _result(self, event: Event) -> None:
        """Handles the result of an effect, and then the events that waited for it."""
        self._is_busy = False
        self._handle(event)

    def _handle(self, event: Event) -> None:
        before = self.record.state
        self.record, effects = lifecycle.step(self.record, event, self._events.now)
        for effect in effects:
            self._perform(effect)
        if self.record.state is SliceState.READY and before is not SliceState.READY:
            self._await_loss()
        elif before in _PRESENT and self.record.state not in _PRESENT:
            self._leave()
        self._set_deadline()
        while self._inbox and not self._is_busy:
            self._handle(self._inbox.popleft())

    def _perform(self, effect: Effect) -> None:
        match effect:
            case ReportFacts(facts=facts):
                self._report(facts)
            case RequestMachines():
                self._is_busy = True
                self._request()
            case DescribeMachines(overdue=overdue):
                seen = self._observation(self._machines or MachineState.CREATING)
                self._inbox.appendleft(MachinesDescribed(seen, self._events.now, overdue))
            case ReadConsole():
                self._inbox.appendleft(ConsoleRead(""))
            case OfferHosts(hosts=hosts):
                self._is_busy = True
                self._scheduler.send(
                    SliceUp(hosts=hosts),
                    lambda entered: self._result(HostsOffered(entered.ended)),
                )
            case RetireHosts():
                self._is_busy = True
                self._scheduler.send(
                    retire_of(self.record, effect),
                    lambda entered: self._result(
                        RetireAnswered(effect, self._events.now, entered.problem)
                    ),
                )

    def _set_deadline(self) -> None:
        """Sets the timer for the next deadline. A slice that waits for a result has none, as in
        its workflow.
        """
        waits = self.record.state in LIVE and not self._is_busy
        due = lifecycle.deadline(self.record) if waits else None
        if self._deadline is not None:
            if self._deadline.deed is not None and self._deadline.at == due:
                return
            self._deadline.cancel()
            self._deadline = None
        if due is not None:
            self._deadline = self._events.at(due, lambda: self._receive(DeadlineReached(due)))

    # The platform.

    def _request(self) -> None:
        """Answers the request for machines: they boot, or there are none."""
        now, group = self._events.now, self.record.created.group
        begins = now if group.machines else self._in_stock_at(now)
        if begins > now and not group.queued:
            outcome = CreateOutcome(
                fault=SliceFault.STOCK_OUT, reason=f"no capacity in {self.record.facts.zone}"
            )
            self._events.at(now + ANSWER, lambda: self._answer(outcome))
            return
        boot = begins - now + timedelta(seconds=sample(self._here.boot, self._luck("boot")))
        accepted = CreateOutcome(observation=self._observation(MachineState.CREATING))
        exist = _exist_after(boot, group.pace)
        self._events.at(now + min(ANSWER, exist), lambda: self._answer(accepted))
        self._events.at(now + exist, self._exist)
        self._events.at(now + boot, self._boot)

    def _in_stock_at(self, now: datetime) -> datetime:
        """Returns when the zone has such machines: now, or at the end of the stock-out. The search
        ends when the group would no longer wait.
        """
        lasts = timedelta(seconds=self._world.stock_out_lasts)
        at, limit = now, now + self.record.created.group.pace.boot_timeout
        while at <= limit and self._is_out_of_stock(at):
            at += lasts - (at - EPOCH) % lasts
        return at

    def _is_out_of_stock(self, now: datetime) -> bool:
        """Returns whether the zone has no such machines. Groups of one kind share the luck."""
        shares, facts = self._here.stock_out, self.record.facts
        share = shares[now.hour % len(shares)]
        if share <= 0:
            return False
        group = self.record.created.group
        kind = (group.type, group.accelerator_variant, group.machine_type, group.preemptible)
        period = (now - EPOCH) // timedelta(seconds=self._world.stock_out_lasts)
        return uniform(self._seed, "stock-out", facts.zone, *kind, period) < share

    def _answer(self, outcome: CreateOutcome) -> None:
        if self.record.state is SliceState.REQUESTED:
            self._result(RequestAnswered(outcome))

    def _exist(self) -> None:
        self._machines = MachineState.ACTIVE
        self._see(MachineState.ACTIVE)

    def _boot(self) -> None:
        if self.record.state not in LIVE:
            return
        facts, group = self.record.facts, self.record.created.group
        for host in group.slice_hosts(facts.id, facts.zone, "1", facts.id):
            self._receive(HostReported(host, keys.sign(self._key, host)))

    def _see(self, state: MachineState, *, stopped: bool = False) -> None:
        if self.record.state in LIVE:
            seen = self._observation(state, stopped=stopped)
            self._receive(MachinesListed(seen, self._events.now))

    def _observation(self, state: MachineState, *, stopped: bool = False) -> SliceObservation:
        facts, request = self.record.facts, self.record.created
        return SliceObservation(
            slice_id=facts.id,
            group=facts.group,
            zone=facts.zone,
            state=state,
            stopped=stopped,
            hosts=request.group.hosts,
            token=request.token,
            public_key=keys.public_key(self._key),
        )

    # Losses.

    def _await_loss(self) -> None:
        """Decides when the slice would be lost, and how."""
        here = self._here
        rate = here.preemptions_per_hour if self.record.created.group.preemptible else 0.0
        preempted = waiting_time(rate, self._luck("preempted"))
        failed = waiting_time(here.failures_per_hour, self._luck("failed"))
        first = min(preempted, failed)
        if first < math.inf:
            deed = self._preempt if preempted <= failed else self._fail
            self._loss = self._events.at(self._events.now + timedelta(seconds=first), deed)

    def _preempt(self) -> None:
        self._machines, self.is_dead = MachineState.PREEMPTED, True
        self._died(self.id)
        self._see(MachineState.PREEMPTED, stopped=True)

    def _fail(self) -> None:
        """Lets a host die. Its slice counts as lost some time later."""
        self.is_dead = True
        self._died(self.id)
        host_id, incarnation = self.record.incarnations[0]
        gone = HostGone(host_id, incarnation, f"host {host_id} does not report any more")
        self._loss = self._events.at(
            self._events.now + NOTICED_AFTER,
            lambda: self._receive(gone) if self.record.state in LIVE else None,
        )

    def _luck(self, what: str) -> float:
        return uniform(self._seed, self.id, what)

    # Deletion.

    def _leave(self) -> None:
        """Removes the hosts from the scheduler, as the slice's workflow does before it deletes the
        machines.
        """
        if self._loss is not None:
            self._loss.cancel()
        self._is_busy = True
        if not self.record.incarnations:
            self._delete_machines()
            return
        self._scheduler.send(
            down_of(self.record, gone=self.record.stopped), lambda _: self._delete_machines()
        )

    def _delete_machines(self) -> None:
        self._result(HostsRemoved())
        self._is_busy = True
        exist = self._machines is not None
        seconds = sample(self._here.delete, self._luck("delete"))
        pause = timedelta(seconds=seconds) if exist else ANSWER
        self._events.at(self._events.now + pause, self._end)

    def _end(self) -> None:
        if self.record.incarnations:
            self._scheduler.send(down_of(self.record, gone=True))
        self._result(MachinesDeleted())
        self._scheduler.send(SliceEnded(use=self.use()))

    def use(self, *, open: bool = False) -> SliceUse:
        """Returns the record of the slice until now.

        Args:
            open: whether the slice still exists.
        """
        facts, group = self.record.facts, self.record.created.group
        return slice_use(facts, self._events.now, group, self.record.hosts, open=open)


def _exist_after(boot: timedelta, pace: Pace) -> timedelta:
    """Returns the time from the request until the platform shows the machines, for this time until
    the slice accepts work. If the limits together allow that time, both are kept.
    """
    part = boot * MACHINES_EXIST
    if boot > pace.boot_timeout + pace.init_timeout:
        return part
    return min(max(part, boot - pace.init_timeout), pace.boot_timeout)
