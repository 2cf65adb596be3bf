"""Defines the workflow of one slice, from its request to its confirmed deletion.

A slice that the autoscaler wants is *made*: the workflow requests its machines, waits for them, and deletes them until the
platform says that nothing is left, also when it is cancelled. A slice of machines that people provide *joined*: its agents start
this workflow, and there is nothing to delete. Both report their hosts to the scheduler: a host is removed before it comes back.
"""

import asyncio
import contextlib
from collections import deque
from datetime import datetime

from temporalio import workflow

from iris.messages.scheduler import HostLost, Retire, SliceDown, SliceUp
from iris.messages.slice import CloudState, HostReady, SliceInput
from iris.model import slices
from iris.model.hosts import ClosedBy, Closure, Host
from iris.model.provisioning import CreateOutcome, MachineState, SliceFault, SliceObservation, SliceRequest, loss_of
from iris.model.scaling import Drain
from iris.model.slices import COMING, LIVE, SliceFacts, SliceState, SliceStatus, SliceStep, move_slice
from iris.model.units import format_duration
from iris.workflows import policies, slice_machines, web_ui
from iris.workflows.scheduler_call import exchange, tell_autoscaler, uninterrupted
from iris.workflows.search_attributes import show_state

News = HostReady | HostLost | CloudState | Drain

#: The most steps that are kept for display.
MOST_STEPS = 30


@workflow.defn
class SliceWorkflow:
    @workflow.init
    def __init__(self, start: SliceInput) -> None:
        self._start = start
        self._state = start.state
        self._reason = start.facts.reason if start.facts else ""
        self._fault = start.facts.fault if start.facts else None
        self._quota_scope = start.facts.quota_scope if start.facts else ""
        self._repair_until = start.facts.repair_until if start.facts else None
        self._last_words = start.last_words
        self._hosts: dict[str, Host] = {host.id: host for host in start.hosts}
        self._inbox: deque[News] = deque(start.reports)
        self._requested_at = start.facts.requested_at if start.facts else workflow.now()
        self._changed_at = start.facts.changed_at if start.facts else workflow.now()
        self._ready_at = start.facts.ready_at if start.facts else None
        begun = (SliceStep(at=self._requested_at, state=self._state, reason=self._reason),) if start.request else ()
        self._steps: deque[SliceStep] = deque(start.steps or begun, maxlen=MOST_STEPS)
        self._drain = start.drain
        #: When a draining or overdue slice is checked again, and the pause after that.
        self._look_at = workflow.now()
        self._look_every = policies.DRAIN_LOOK
        #: What ran on the slice at its deadline was evicted.
        self._evicted = False
        #: The autoscaler asks for the slice's facts, though nothing has changed.
        self._asked = False
        self._refused: set[str] = set()
        #: The request to the platform while it runs.
        self._asking: workflow.ActivityHandle[CreateOutcome] | None = None

    @workflow.run
    async def run(self, start: SliceInput) -> SliceStatus:
        try:
            await self._live()
            await self._give_back()
        except asyncio.CancelledError:
            # Cancelled, for example in the Web UI: remove its hosts and delete its machines before this ends.
            await uninterrupted(self._cancelled())
            raise
        if start.request is None and any(isinstance(news, HostReady) and news.life not in self._lives() for news in self._inbox):
            # A new incarnation of a host registered while the former one was being removed: that is a new slice of the same name.
            workflow.continue_as_new(SliceInput(cluster=start.cluster, id=start.id, size=start.size, reports=tuple(self._inbox)))
        return self.status()

    async def _live(self) -> None:
        if self._state is SliceState.REQUESTED:
            await self._come()
        while self._state in LIVE:
            due = await self._wait()
            if due is not None:
                await self._in_time(due)
            while self._inbox and self._state in LIVE:
                await self._handle(self._inbox.popleft())
            if self._asked:
                self._asked = False
                await self._tell()
            if workflow.info().is_continue_as_new_suggested() and not self._inbox and self._state in LIVE:
                self._continue()

    async def _come(self) -> None:
        """Leaves REQUESTED: requests the machines, or waits for machines that joined or were adopted."""
        if self._start.request is None:
            self._move(SliceState.BOOTSTRAPPING, f"waits for {self._start.size} host(s) to report")
        elif self._start.adopted:
            await self._move_and_tell(SliceState.PROVISIONING, "found without anybody who looks after it, and adopted")
        else:
            await self._ask_for(self._start.request)

    async def _ask_for(self, request: SliceRequest) -> None:
        asking = self._asking = slice_machines.ask(request)
        await workflow.wait_condition(lambda: asking.done() or any(isinstance(event, Drain) for event in self._inbox))
        if not asking.done():
            await self._move_and_tell(SliceState.DELETING, "not wanted any more before the platform had answered")
            return
        outcome = await asking
        if outcome.fault is not None:
            self._quota_scope = outcome.quota_scope
            await self._fail(outcome.fault, outcome.reason)
            return
        await self._move_and_tell(SliceState.PROVISIONING, f"the platform makes its machines in {request.zone}")
        if outcome.observation is not None:
            await self._machines(outcome.observation)

    async def _wait(self) -> datetime | None:
        """Waits for an event or a deadline. Returns the deadline if it is due, else None.

        No decision depends on the clock: see decision 14.
        """
        facts = self._facts()
        due = slices.due(facts, self._made.group.pace, self._look_at) if facts is not None else None

        def news() -> bool:
            return bool(self._inbox) or self._asked or workflow.info().is_continue_as_new_suggested()

        try:
            await workflow.wait_condition(news, timeout=max(policies.MOMENT, due - workflow.now()) if due else None)
        except TimeoutError:
            return due
        return None

    # Signals and queries. Handlers only record the change and wake the loop.

    @workflow.signal(description="An agent is ready to take work")
    def host_ready(self, ready: HostReady) -> None:
        self._inbox.append(ready)

    @workflow.signal(description="A host is gone: it said so, or it has been silent for too long")
    def host_lost(self, lost: HostLost) -> None:
        self._inbox.append(lost)

    @workflow.signal(description="The platform sees its machines otherwise than before")
    def cloud_state(self, seen: CloudState) -> None:
        self._inbox.append(seen)

    @workflow.signal(description="It is to be given back: when it is idle, when what runs there has ended, or at a deadline")
    def drain(self, drain: Drain) -> None:
        self._inbox.append(drain)

    @workflow.signal(description="The autoscaler wants to know where the slice is")
    def report(self) -> None:
        self._asked = True

    @workflow.query(description="The slice and its hosts as they are now")
    def status(self) -> SliceStatus:
        return SliceStatus(
            id=self._start.id,
            state=self._state,
            reason=self._reason,
            hosts=tuple(sorted(self._hosts.values(), key=lambda host: (len(host.id), host.id))),
            size=self._start.size,
            facts=self._facts(),
            refused=tuple(sorted(self._refused)),
            last_words=self._last_words,
            steps=tuple(self._steps),
        )

    # Events.

    async def _handle(self, event: News) -> None:
        match event:
            case HostReady(host=host, token=token):
                if self._start.request is None or token == self._start.request.token:
                    self._refused.discard(host.id)
                    await self._host_ready(host)
                else:
                    self._refused.add(host.id)
            case HostLost():
                await self._host_lost(event)
            case CloudState(observation=None):
                await self._look_closer()
            case CloudState(observation=observation):
                await self._machines(observation)
            case Drain() if self._start.request is not None:
                await self._drained(event)

    async def _host_ready(self, host: Host) -> None:
        if self._state is SliceState.PROVISIONING:
            await self._move_and_tell(SliceState.BOOTSTRAPPING, "its machines exist; waits for their agents")
        self._hosts[host.id] = host
        if len(self._hosts) < self._start.size:
            return
        await exchange(self._start.cluster, SliceUp(hosts=tuple(self._hosts.values())))
        if self._state is SliceState.BOOTSTRAPPING:
            self._ready_at = workflow.now()
            await self._move_and_tell(SliceState.READY, "every host takes work")
            if self._drain is not None:
                await self._drained(self._drain)
        self._describe()

    async def _host_lost(self, lost: HostLost) -> None:
        """Fails the slice: the other hosts of a TPU slice cannot compute without the lost one."""
        known = self._hosts.get(lost.host_id)
        if known is not None and known.incarnation == lost.incarnation:  # else it was an earlier incarnation
            await self._fail(SliceFault.HOST_LEFT if lost.left else SliceFault.HOST_LOST, lost.reason)

    async def _machines(self, seen: SliceObservation | None) -> None:
        """Handles the platform's observation of the machines."""
        if (loss := loss_of(seen)) is not None:
            self._quota_scope = seen.quota_scope if seen is not None else ""
            await self._fail(*loss)
        elif seen is not None and seen.state is not MachineState.CREATING:
            if self._state is SliceState.PROVISIONING:
                await self._move_and_tell(SliceState.BOOTSTRAPPING, "its machines exist; waits for their agents")
            if (seen.state is MachineState.REPAIRING) is not (self._repair_until is not None):
                await self._repaired(seen)

    async def _repaired(self, seen: SliceObservation) -> None:
        """Records that the platform has begun or finished a repair. The agents and their tasks may go on meanwhile."""
        begins = seen.state is MachineState.REPAIRING
        self._repair_until = workflow.now() + policies.REPAIR_GRACE if begins else None
        told = f"is given back unless it is whole in {format_duration(policies.REPAIR_GRACE)}: {seen.reason}"
        self._note(told if begins else "its machines are whole again")
        await self._tell()

    async def _look_closer(self) -> bool:
        """Asks the platform about this one slice, because its lists may lag behind. Returns whether it answered."""
        if (found := await slice_machines.look(self._made)) is not None:
            await self._machines(found.observation)
        self._look_at = workflow.now() + policies.LOOK_AGAIN
        return found is not None

    async def _drained(self, drain: Drain) -> None:
        if self._state in COMING and self._start.adopted and self._start.request is not None and self._start.request.token:
            self._drain = drain  # tasks may run there: first its agents have to identify themselves
        elif self._state in COMING:
            await self._move_and_tell(SliceState.DELETING, drain.reason)
        elif drain.idle_since is not None:
            if self._state is SliceState.READY:
                await self._retire_if_idle(drain)
        else:
            self._drain = drain.beside(self._drain)
            if self._state is SliceState.READY:
                self._move(SliceState.DRAINING, drain.reason)
                await self._tell()
            self._look_every = policies.DRAIN_LOOK
            await self._look(None)

    async def _retire_if_idle(self, drain: Drain) -> None:
        """Deletes the slice if the scheduler confirms that it is idle. A gang that was placed there meanwhile keeps it."""
        answer = await exchange(self._start.cluster, Retire(lives=self._lives(), idle_since=drain.idle_since))
        if answer.problem:
            self._note(f"not given back ({drain.reason}): {answer.problem}")
            await self._tell()
        else:
            await self._move_and_tell(SliceState.DELETING, drain.reason)

    # Deadlines.

    @property
    def _made(self) -> SliceRequest:
        """The platform request of a slice that was made."""
        assert self._start.request is not None
        return self._start.request

    async def _in_time(self, due: datetime) -> None:
        if self._repair_until is not None and due >= self._repair_until:
            # The autoscaler, which reports the end of a repair, may not have been running.
            answered = await self._look_closer()
            if answered and self._repair_until is not None and self._state in LIVE:
                await self._fail(SliceFault.PREEMPTED, f"in repair for {format_duration(policies.REPAIR_GRACE)}")
            elif not answered:
                self._repair_until += policies.LOOK_AGAIN
            return
        match self._state:
            case SliceState.DRAINING:
                await self._look(due)
            case SliceState.BOOTSTRAPPING:
                await self._come_too_late()
            case SliceState.PROVISIONING:
                # Slow is not failed: the machines may exist without having been observed, or the platform may not answer.
                if await self._look_closer() and self._state is SliceState.PROVISIONING:
                    await self._come_too_late()

    async def _come_too_late(self) -> None:
        """Fails the slice because its machines or agents are overdue; reads the machines' last output before they are deleted."""
        fault, told = slices.lateness(self._state, self._made.group.pace, len(self._hosts), self._start.size)
        if workflow.patched("last words"):
            self._last_words = await slice_machines.last_words(self._made)
        await self._fail(fault, slices.with_last_words(told, self._last_words))

    async def _look(self, due: datetime | None) -> None:
        """Deletes a draining slice if it is free. The first check has no due time and closes the hosts; one at or after the
        deadline evicts what still runs there."""
        assert self._drain is not None
        deadline, overdue = self._drain.deadline, self._drain.is_over(due)
        closure = Closure(by=ClosedBy.DRAIN, reason=self._drain.reason)
        answer = await exchange(self._start.cluster, Retire(lives=self._lives(), closure=closure, evict=overdue))
        if not answer.problem or self._drain.is_over(due, policies.EVICTION_PATIENCE):
            told = f"{self._drain.reason}; {answer.problem}" if answer.problem else self._drain.reason
            await self._move_and_tell(SliceState.DELETING, told)
            return
        self._reason = f"{self._drain.reason}; {answer.problem}"
        self._describe()
        if overdue and not self._evicted:
            self._evicted, self._look_every = True, policies.DRAIN_LOOK
        self._look_at = workflow.now() + self._look_every
        if deadline is not None and not overdue:
            self._look_at = min(self._look_at, deadline)
        self._look_every = min(2 * self._look_every, policies.MOST_EVICTION_LOOK if overdue else policies.MOST_DRAIN_LOOK)

    # Deletion.

    async def _fail(self, fault: SliceFault, reason: str) -> None:
        self._fault = fault
        await self._move_and_tell(SliceState.FAILED, reason)

    async def _cancelled(self) -> None:
        if self._state is SliceState.DELETED:
            return
        self._note("cancelled")
        await self._give_back(continues=False)  # the next run would not know that it is cancelled

    async def _give_back(self, *, continues: bool = True) -> None:
        """Removes the hosts from the scheduler, and deletes the machines until the platform says that nothing is left."""
        if self._asking is not None and not self._asking.done():
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        down = asyncio.create_task(exchange(self._start.cluster, SliceDown(lives=self._lives()))) if self._hosts else None
        if down is not None and self._start.request is not None:
            # A scheduler that does not answer places nothing on these hosts either: do not keep the machines for it.
            with contextlib.suppress(TimeoutError):
                await workflow.wait_condition(down.done, timeout=policies.SCHEDULER_PATIENCE)
        elif down is not None:
            await down
        if self._state is not SliceState.DELETING:
            await self._move_and_tell(SliceState.DELETING, self._reason)
        pause = policies.DELETE_LOOK
        while self._start.request is not None and not await slice_machines.give_back(self._start.request):
            if continues and workflow.info().is_continue_as_new_suggested():
                self._continue()
            await workflow.sleep(pause)
            pause = min(2 * pause, policies.MOST_DELETE_LOOK)
        if down is not None:
            await down
        await self._move_and_tell(SliceState.DELETED, self._reason)

    # Reports.

    def _lives(self) -> tuple[tuple[str, str], ...]:
        return tuple((host.id, host.incarnation) for host in self._hosts.values())

    def _facts(self) -> SliceFacts | None:
        request = self._start.request
        if request is None:
            return None
        return SliceFacts(
            id=self._start.id,
            group=request.group.name,
            zone=request.zone,
            state=self._state,
            requested_at=self._requested_at,
            ready_at=self._ready_at,
            changed_at=self._changed_at,
            reason=self._reason,
            fault=self._fault,
            quota_scope=self._quota_scope,
            repair_until=self._repair_until,
        )

    async def _tell(self) -> None:
        """Signals the slice's facts to the autoscaler. An autoscaler that is not running asks for them when it starts."""
        if (facts := self._facts()) is not None:
            await tell_autoscaler(self._start.cluster, facts)

    async def _move_and_tell(self, state: SliceState, reason: str) -> None:
        self._move(state, reason)
        await self._tell()

    def _move(self, state: SliceState, reason: str) -> None:
        self._state = move_slice(self._state, state)
        self._reason, self._changed_at = reason, workflow.now()
        self._steps.append(SliceStep(at=self._changed_at, state=state, reason=reason))
        if self._start.request is not None or state in (SliceState.READY, SliceState.DELETED):
            show_state(state)
        self._describe()

    def _note(self, what: str) -> None:
        self._steps.append(SliceStep(at=workflow.now(), state=self._state, reason=what))
        self._describe()

    def _describe(self) -> None:
        workflow.set_current_details(web_ui.slice_details(self.status()))

    def _continue(self) -> None:
        carried = {"state": self._state, "facts": self._facts(), "steps": tuple(self._steps), "last_words": self._last_words}
        pending = {"hosts": tuple(self._hosts.values()), "reports": tuple(self._inbox), "drain": self._drain}
        workflow.continue_as_new(self._start.model_copy(update=carried | pending))
