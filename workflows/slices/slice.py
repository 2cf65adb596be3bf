"""Defines the workflow of one slice, from its request to its confirmed deletion.

A slice that the autoscaler decides to have is *created*: the workflow requests its machines, waits
for them, and deletes them until the platform confirms that no machine is left, also when the
workflow is cancelled. A slice of machines that users provide *joined*: its agents start this
workflow, and there is nothing to delete. Both kinds report their hosts to the scheduler. A host
that comes back as a new incarnation is removed first.

`iris.model.slice.lifecycle` decides what each event changes; the workflow performs the effects.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from iris.activities.control.slices import Slices
from iris.messages.scheduler import Message, Retire, SliceDown, SliceEnded, SliceUp
from iris.messages.slice import CloudState, HostReady, Machines, SliceInput, SliceRef
from iris.messages.wire import HostLost
from iris.model import names
from iris.model.host.hosts import ClosedBy, Closure
from iris.model.slice import lifecycle
from iris.model.slice.events import (
    Cancelled,
    ConsoleRead,
    DeadlineReached,
    DescribeMachines,
    Effect,
    Event,
    HostGone,
    HostMissing,
    HostReported,
    HostsOffered,
    HostsRemoved,
    MachinesDeleted,
    MachinesDescribed,
    MachinesListed,
    NotDescribed,
    OfferHosts,
    ReadConsole,
    ReportFacts,
    RequestAbandoned,
    RequestAnswered,
    RequestMachines,
    RetireAnswered,
    RetireHosts,
    ShowState,
    WorkflowStarted,
)
from iris.model.slice.provisioning import (
    EVICTED_AFTER,
    TIME_TO_LEAVE,
    CreateOutcome,
    DeleteResult,
    SliceRequest,
    ends_its_tasks,
)
from iris.model.slice.scaling import Drain
from iris.model.slice.status import LIVE, SliceState, SliceStatus
from iris.planners.messages_sent import down_of, retire_of
from iris.usage.slices import slice_use
from iris.workflows import policies, web_ui
from iris.workflows.own_input import check_id, foreign, was_started_by_client
from iris.workflows.scheduler_call import exchange, signal_autoscaler, uninterrupted
from iris.workflows.search_attributes import show_state

Signal = HostReady | HostLost | CloudState | Drain


@workflow.defn
class SliceWorkflow:
    @workflow.init
    def __init__(self, start: SliceInput) -> None:
        self._slice = start.record(workflow.now())
        self._inbox: deque[Signal] = deque(start.reports)
        #: True if the autoscaler has requested the facts of the slice. They are then sent even if
        #: they have not changed.
        self._facts_requested = False
        #: True if the autoscaler has found that some hosts of the slice are not in the scheduler's
        #: ledger, and the slice has not offered its hosts again yet.
        self._host_missing = False
        #: The activity that requests the slice's machines; None before the request.
        self._requesting: workflow.ActivityHandle[CreateOutcome] | None = None

    @workflow.run
    async def run(self, start: SliceInput) -> SliceStatus:
        _check_own(start)
        try:
            await self._handle(WorkflowStarted())
            await self._handle_signals()
            await self._delete()
            await self._record_use()
        except asyncio.CancelledError:
            # A cancelled slice, for example in the Web UI, must not leave hosts or machines.
            await uninterrupted(self._delete_cancelled())
            raise
        known = self._slice.incarnations
        if start.request is None and any(
            isinstance(each, HostReady) and each.incarnation not in known for each in self._inbox
        ):
            # A new incarnation of a host has registered while the last one was being removed. It
            # begins a new slice of the same name.
            workflow.continue_as_new(
                SliceInput(
                    cluster=start.cluster, id=start.id, size=start.size, reports=tuple(self._inbox)
                )
            )
        return self.status()

    async def _handle_signals(self) -> None:
        """Handles signals and deadlines until the slice fails or is to be deleted."""
        while self._slice.state in LIVE:
            due = await self._wait()
            if due is not None:
                await self._handle(DeadlineReached(due))
            while self._inbox and self._slice.state in LIVE:
                await self._handle(_event(self._inbox.popleft()))
            if self._facts_requested:
                self._facts_requested = False
                await self._report_facts()
            if self._host_missing and self._slice.state in LIVE:
                self._host_missing = False
                await self._handle(HostMissing())
            if (
                workflow.info().is_continue_as_new_suggested()
                and not self._inbox
                and self._slice.state in LIVE
            ):
                self._continue()

    async def _wait(self) -> datetime | None:
        """Waits for a signal or a deadline. Returns the deadline if it is due, else None.

        No decision depends on the clock, which differs in a replay (decision 14).
        """
        due = lifecycle.deadline(self._slice)

        def is_woken() -> bool:
            waits = bool(self._inbox) or self._facts_requested or self._host_missing
            return waits or workflow.info().is_continue_as_new_suggested()

        try:
            await workflow.wait_condition(
                is_woken, timeout=max(policies.MOMENT, due - workflow.now()) if due else None
            )
        except TimeoutError:
            return due
        return None

    # Signals and queries. Handlers only record the change and wake the loop.

    @workflow.signal(description="An agent is ready for work")
    def host_ready(self, ready: HostReady) -> None:
        self._inbox.append(ready)

    @workflow.signal(description="A host is lost: its agent stopped, or it no longer reports")
    def host_lost(self, lost: HostLost) -> None:
        self._inbox.append(lost)

    @workflow.signal(description="The state of its machines has changed in the platform's list")
    def cloud_state(self, seen: CloudState) -> None:
        self._inbox.append(seen)

    @workflow.signal(
        description="Delete the slice: if it is idle, when its tasks have ended, or at a deadline"
    )
    def drain(self, drain: Drain) -> None:
        self._inbox.append(drain)

    @workflow.signal(description="Report the slice's state to the autoscaler")
    def report(self) -> None:
        self._facts_requested = True

    @workflow.signal(description="Offer the hosts again: the scheduler does not have all of them")
    def offer_hosts(self) -> None:
        self._host_missing = True

    @workflow.query(description="The current state of the slice and its hosts")
    def status(self) -> SliceStatus:
        return self._slice.status

    # Events and their effects.

    async def _handle(self, event: Event) -> None:
        """Changes the slice for an event, and performs the effects in order. The result of an
        effect is the next event.
        """
        self._slice, effects = lifecycle.step(self._slice, event, workflow.now())
        workflow.set_current_details(web_ui.slice_details(self.status()))
        for effect in effects:
            if (result := await self._perform(effect)) is not None:
                await self._handle(result)

    async def _perform(self, effect: Effect) -> Event | None:
        cluster = self._slice.cluster
        match effect:
            case ShowState(state=state):
                show_state(state)
            case ReportFacts(facts=facts):
                await signal_autoscaler(cluster, facts)
            case RequestMachines(request=request):
                return await self._request(request)
            case DescribeMachines(overdue=overdue):
                found = await _describe_machines(self._slice.created)
                return (
                    MachinesDescribed(found.observation, found.at, overdue)
                    if found is not None
                    else NotDescribed(overdue)
                )
            case ReadConsole():
                return ConsoleRead(await _machines_output(self._slice.created))
            case OfferHosts(hosts=hosts):
                return HostsOffered((await exchange(cluster, SliceUp(hosts=hosts))).ended)
            case RetireHosts():
                answer = await exchange(cluster, retire_of(self._slice, effect))
                assert answer.at is not None
                return RetireAnswered(effect, answer.at, answer.problem)
        return None

    async def _request(self, request: SliceRequest) -> RequestAnswered | RequestAbandoned:
        requesting = self._requesting = _request_machines(request)
        await workflow.wait_condition(
            lambda: requesting.done() or any(isinstance(each, Drain) for each in self._inbox)
        )
        return RequestAnswered(await requesting) if requesting.done() else RequestAbandoned()

    async def _report_facts(self) -> None:
        """Reports the facts of a created slice to the autoscaler."""
        if (facts := self.status().facts) is not None:
            await signal_autoscaler(self._slice.cluster, facts)

    # Deletion.

    async def _delete_cancelled(self) -> None:
        if self._slice.state is not SliceState.DELETED:
            await self._handle(Cancelled())
            # The next run would not know of the cancellation, so this one must not continue as new.
            await self._delete(continues=False)
        await self._record_use()

    async def _record_use(self) -> None:
        """Sends the scheduler the record of the slice's life, which it stores. Nothing is left to
        delete then, so that nothing waits for it.
        """
        now, joined = self._slice, self._slice.request is None
        use = slice_use(
            now.facts,
            now.facts.changed_at,
            now.request.group if now.request is not None else None,
            now.hosts,
            run=names.short_run(workflow.info().run_id) if joined else "",
        )
        await exchange(now.cluster, SliceEnded(use=use))

    async def _delete(self, *, continues: bool = True) -> None:
        """Removes the hosts from the scheduler, and deletes the machines until the platform
        confirms that none is left. The scheduler learns that, too: the attempts there end then.

        The tasks of a preempted slice get time to end first, unless the workflow is cancelled.

        Args:
            continues: whether the workflow may continue as new.
        """
        request, hosts = self._slice.request, self._slice.incarnations
        if self._requesting is not None and not self._requesting.done():
            self._requesting.cancel()
            await asyncio.gather(self._requesting, return_exceptions=True)
        if self._is_taken_back and continues:
            await self._let_tasks_end()
        down = asyncio.create_task(exchange(self._slice.cluster, self._down())) if hosts else None
        if down is not None and request is not None:
            # Do not keep the machines for a scheduler that does not answer: it places nothing
            # there.
            with contextlib.suppress(TimeoutError):
                await workflow.wait_condition(down.done, timeout=policies.SCHEDULER_PATIENCE)
        elif down is not None:
            await down
        await self._handle(HostsRemoved())
        are_gone = request is not None and await self._delete_machines(request, continues)
        if down is not None:
            await down
            if are_gone:
                await self._report_death()
        await self._handle(MachinesDeleted())

    async def _delete_machines(self, request: SliceRequest, continues: bool) -> bool:
        """Deletes the machines until there is nothing left to delete. Returns whether the platform
        confirms that they no longer exist.
        """
        pause = policies.DELETE_CHECK
        while (result := await _delete_slice(request)) is DeleteResult.GOING:
            if continues and workflow.info().is_continue_as_new_suggested():
                self._continue()
            await workflow.sleep(pause)
            pause = min(2 * pause, policies.MAX_DELETE_CHECK)
        return result is DeleteResult.GONE

    def _down(self, *, gone: bool = False) -> SliceDown:
        """Returns the message that removes the hosts.

        Args:
            gone: whether the platform has confirmed that the machines no longer exist.
        """
        return down_of(self._slice, gone=gone or self._are_stopped)

    @property
    def _are_stopped(self) -> bool:
        """Returns whether the platform has reported that the machines are switched off, perhaps in
        a signal that arrived after the decision to delete the slice.
        """
        seen = (each.observation for each in self._inbox if isinstance(each, CloudState))
        return self._slice.stopped or any(each is not None and each.stopped for each in seen)

    async def _report_death(self) -> None:
        """Reports to the scheduler that the machines no longer exist, until it knows which attempts
        were on them.
        """
        await self._send_until_done(lambda _: self._down(gone=True))

    @property
    def _is_taken_back(self) -> bool:
        """Returns whether the platform takes the machines back, so that the agents are ending the
        tasks. False once the slice is being deleted.
        """
        ends = self._slice.state is SliceState.FAILED and ends_its_tasks(self._slice.facts.fault)
        return ends and self._slice.request is not None and bool(self._slice.incarnations)

    async def _let_tasks_end(self) -> None:
        """Closes the hosts and waits until their tasks have ended, for a limited time, or until the
        machines are switched off.
        """
        free = asyncio.create_task(self._retire_until_free())
        try:
            with contextlib.suppress(TimeoutError):
                await workflow.wait_condition(
                    lambda: free.done() or self._are_stopped, timeout=TIME_TO_LEAVE
                )
        finally:
            free.cancel()

    async def _retire_until_free(self) -> None:
        """Asks the scheduler to retire the hosts, again and again until nothing runs there. After
        `EVICTED_AFTER`, the tasks that still run are evicted.
        """
        closure = Closure(by=ClosedBy.LEAVING, reason=self._slice.facts.reason)
        retire = Retire(incarnations=self._slice.incarnations, closure=closure)
        await self._send_until_done(
            lambda waited: retire.model_copy(update={"evict": waited >= EVICTED_AFTER})
        )

    async def _send_until_done(self, message: Callable[[timedelta], Message]) -> None:
        """Sends a message to the scheduler again and again until the scheduler has carried it out.

        Args:
            message: returns the message. Its argument is the time since the first one was sent.
        """
        waited, pause = timedelta(0), policies.LEAVING_CHECK
        while (await exchange(self._slice.cluster, message(waited))).problem:
            await workflow.sleep(pause)
            waited, pause = waited + pause, min(2 * pause, policies.MAX_LEAVING_CHECK)

    def _continue(self) -> None:
        workflow.continue_as_new(SliceInput.of(self._slice, self._inbox))


def _event(signal: Signal) -> Event:
    match signal:
        case HostReady(host=host, signature=signature, public_key=public_key):
            return HostReported(host, signature, public_key)
        case HostLost():
            return HostGone(signal.host_id, signal.incarnation, signal.reason, signal.left)
        case CloudState(observation=observation, at=at):
            return MachinesListed(observation, at)
        case Drain():
            return signal


def _request_machines(request: SliceRequest) -> workflow.ActivityHandle[CreateOutcome]:
    """Starts the request for the machines, which Temporal retries until the platform has answered.

    If the workflow cancels the request, a call that is under way ends first: it must not create
    machines after the deletion.
    """
    return workflow.start_activity_method(
        Slices.create_slice,
        request,
        start_to_close_timeout=policies.PLATFORM_CALL,
        retry_policy=policies.UNTIL_DONE,
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )


async def _describe_machines(request: SliceRequest) -> Machines | None:
    """Returns the platform's description of the machines; None if it does not answer."""
    try:
        return await workflow.execute_activity_method(
            Slices.describe_slice,
            SliceRef(slice_id=request.slice_id, zone=request.zone),
            start_to_close_timeout=policies.PLATFORM_CALL,
            retry_policy=policies.A_FEW_TIMES,
        )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        return None


def _check_own(start: SliceInput) -> None:
    """Checks that a slice's input belongs to its workflow. The agents of joined machines start a
    slice without a state; only the autoscaler requests machines.

    Raises:
        ApplicationError: it does not.
    """
    check_id(names.slice_workflow(start.cluster, start.id))
    joined = SliceInput(cluster=start.cluster, id=start.id, size=start.size)
    if was_started_by_client() and start != joined:
        raise foreign(
            "it contains more than a slice's cluster, id and size, and only the autoscaler may give"
            " more"
        )


async def _machines_output(request: SliceRequest) -> str:
    """Returns the machines' last output. It is only for display, so it is empty if the platform
    does not give it at once.
    """
    try:
        console = await workflow.execute_activity_method(
            Slices.console_output,
            SliceRef(slice_id=request.slice_id, zone=request.zone),
            start_to_close_timeout=policies.OBSERVE,
            schedule_to_close_timeout=policies.CONSOLE_OUTPUT,
            retry_policy=policies.ONCE,
        )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        return ""
    return console.text


async def _delete_slice(request: SliceRequest) -> DeleteResult:
    """Asks the platform to delete the machines."""
    return await workflow.execute_activity_method(
        Slices.delete_slice,
        SliceRef(slice_id=request.slice_id, zone=request.zone),
        start_to_close_timeout=policies.PLATFORM_CALL,
        retry_policy=policies.UNTIL_DONE,
    )
