"""Defines the scheduler: one workflow per cluster that holds the ledger of hosts, placements and waiting gangs.

It decides nothing itself: `iris.scheduling.ledger` and `iris.scheduling.placement` do. Messages come in batches through the
`exchange` update, whose answer carries what could be placed at once. An activity signals later placements to the gangs that had
to wait.

The handlers are synchronous and never raise. An async handler starves continue-as-new under load. A handler that raises fails or
blocks the workflow on which the whole cluster depends.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from iris.activities.control.notifier import Notifier
from iris.activities.control.recovery import RecoveryQueries
from iris.messages.scheduler import (
    Answer,
    Answers,
    Batch,
    EvictionNotices,
    Message,
    Notices,
    Owners,
    Reason,
    Reasons,
    Release,
    SchedulerStart,
    Snapshot,
    SnapshotPage,
)
from iris.messages.wire import ClusterName, Keys
from iris.model import names
from iris.model.bounds import MESSAGE_BYTES, cut, fitting, size_of
from iris.model.requests import Placement, Request, Shape
from iris.model.scaling import Wanted
from iris.scheduling.forecast import Forecast
from iris.scheduling.ledger import Ledger, Settled
from iris.scheduling.preemption import Eviction
from iris.scheduling.reason_changes import reason_changes
from iris.scheduling.recovery import LedgerRecovery, RecoveryCursor
from iris.scheduling.refusals import Refusal
from iris.workflows import policies
from iris.workflows.ledger_messages import MAX_PLACEMENTS, RECOVERING, Entered, enter, serve
from iris.workflows.scheduler_views import broken_slices, owners_of, reserve_of, snapshot_of, wanted_of

#: The most signals sent by one activity: a second's work, unless `bounds.BATCH_BYTES` limits them first.
MAX_NOTICES = 500
_NOW = timedelta(0)
#: The pause between two `demand` signals to the autoscaler.
WAKE_EVERY = timedelta(seconds=1)
#: The pause between two passes when the first stopped at its limit: it ends the workflow task.
BREATH = timedelta(milliseconds=1)
News = TypeVar("News", Notices, EvictionNotices)
Notice = TypeVar("Notice", Placement, Eviction)
Item = TypeVar("Item", Placement, Eviction, Reason)


@workflow.defn
class SchedulerWorkflow:
    @workflow.init
    def __init__(self, start: SchedulerStart) -> None:
        self._cluster = start.cluster
        self._ledger = Ledger(start.ledger)
        self._ledger.catalog.mixes = workflow.patched("mixed groups")
        self._notices: dict[str, Placement] = {notice.key: notice for notice in start.notices}
        self._evictions: dict[str, Eviction] = {eviction.key: eviction for eviction in start.evictions}
        self._sent_reasons: dict[str, str] = dict(start.told)
        self._checked_at = start.checked_at
        #: There may be more to place: the last pass stopped at its limit, or no pass has run yet.
        self._unsettled = bool(len(self._ledger.waiting))
        #: When victims are looked for again; None: no time is set.
        self._again_at: datetime | None = None
        #: The recovery of the ledger while it runs: nothing is placed before the ledger is complete.
        self._recovery = LedgerRecovery(self._ledger) if start.call_roll else None
        #: The demand, broken slices, idle reserve and pauses at the last comparison, and whether to signal the autoscaler again.
        self._known_demand: dict[Shape, int] = {}
        self._known_broken: set[str] = set()
        self._known_reserve: set[str] = set()
        self._known_pauses: tuple[bool, frozenset[str]] = (False, frozenset())
        self._demand_changed = False
        self._describe()

    @workflow.run
    async def run(self, start: SchedulerStart) -> None:
        if self._recovery is not None:
            await self._recover(self._recovery)
        beside = [asyncio.create_task(self._check_jobs())]
        if workflow.patched("demand"):
            beside.append(asyncio.create_task(self._signal_demand()))
        while not workflow.info().is_continue_as_new_suggested():
            if self._notices:
                await self._send_placements()
            elif self._evictions:
                await self._send_evictions()
            elif self._unsettled:
                self._settle()
                if self._unsettled and not self._notices:
                    await workflow.sleep(BREATH)
            else:
                await self._wait()
        for task in beside:
            task.cancel()
        # No await between here and the end: everything that was handled is in the ledger, and the next run gets the ledger.
        workflow.continue_as_new(
            SchedulerStart(
                cluster=self._cluster,
                ledger=self._ledger.state(),
                notices=tuple(self._notices.values()),
                evictions=tuple(self._evictions.values()),
                told=self._sent_reasons,
                checked_at=self._checked_at,
            )
        )

    async def _wait(self) -> None:
        """Waits until there is something to do.

        A timer runs only while `_again_at` is set: a victim has not run long enough yet, or not all gangs were considered.
        """
        armed = self._again_at

        def something() -> bool:
            waits = bool(self._notices or self._evictions) or self._unsettled
            return waits or self._again_at != armed or workflow.info().is_continue_as_new_suggested()

        try:
            await workflow.wait_condition(something, timeout=max(_NOW, armed - workflow.now()) if armed else None)
        except TimeoutError:
            self._again_at = None
            self._settle()

    @workflow.update(
        description="Messages from jobs, slices and operators; the answers contain the placements that are possible now"
    )
    def exchange(self, batch: Batch) -> Answers:
        served = serve(self._ledger, batch.messages, workflow.now(), whole=self._recovery is None, careful=self._careful)
        for message, entered in zip(batch.messages, served.entered, strict=True):
            self._entered(message, entered)
        if served.settled is not None:
            self._settled(served.settled, served.notices)
        return Answers(answers=served.answers)

    @exchange.validator
    def _takes(self, batch: Batch) -> None:
        """Raises ApplicationError for a batch that is too large to be accepted: the acceptance contains a copy of it."""
        if (size := size_of(batch)) > MESSAGE_BYTES:
            problem = f"batch: {size:,} bytes are too many for the scheduler; send at most {MESSAGE_BYTES:,} at once"
            raise ApplicationError(problem, type="TooLarge", non_retryable=True)

    @workflow.signal(description="Messages that need no answer")
    def deliver(self, batch: Batch) -> None:
        for message in batch.messages:
            entered = enter(self._ledger, message, whole=self._recovery is None, careful=self._careful)
            self._entered(message, entered)
        self._settle()

    @workflow.query(description="A page of the hosts with their free capacity")
    def snapshot(self, page: SnapshotPage) -> Snapshot:
        return snapshot_of(self._ledger, page)

    @workflow.query(description="Why the request with this key has no host")
    def explain(self, key: str) -> Refusal:
        return self._ledger.explain(key, workflow.now()) if self._recovery is None else RECOVERING

    @workflow.query(description="The result of this request if it were sent now; changes nothing")
    def forecast(self, request: Request) -> Forecast:
        return self._ledger.forecast(request, workflow.now())

    @workflow.query(description="Why no host, present or to be created, could ever serve this request; empty if one could")
    def never(self, request: Request) -> Answer:
        return Answer(refusal=self._ledger.wait_reasons().infeasible(request) if self._recovery is None else None)

    @workflow.query(description="For the autoscaler: the unplaced demand by shape, and the idle and broken slices")
    def wanted(self) -> Wanted:
        if self._recovery is not None or self._unsettled:
            raise RuntimeError("the scheduler is still placing what fits")
        return wanted_of(self._ledger, workflow.now())

    @workflow.query(description="A page of the owners of requests and placements")
    def owners(self, page: SnapshotPage) -> Owners:
        return owners_of(self._ledger, page)

    @property
    def _careful(self) -> bool:
        """Returns whether duplicates and sizes of messages are taken into account: not in a run that began with version 0.1."""
        return workflow.patched("careful")

    def _entered(self, message: Message, entered: Entered) -> None:
        """Updates the pending signals and the recovery after a message was entered into the ledger."""
        self._evictions.update((each.key, each) for each in entered.evicted)
        if isinstance(message, Release):
            self._notices.pop(message.key, None)
            self._evictions.pop(message.key, None)
        if self._recovery is not None:
            self._recovery.received(entered.hosts)

    def _settle(self) -> None:
        if self._recovery is None:
            settled = self._ledger.settle(workflow.now(), MAX_PLACEMENTS)
            self._settled(settled, settled.placed)

    def _settled(self, settled: Settled, notices: Sequence[Placement]) -> None:
        """Queues the placements and evictions of a pass to be signalled."""
        self._unsettled, self._again_at = settled.stopped, settled.again_at
        self._notices.update((placement.key, placement) for placement in notices)
        self._evictions.update((eviction.key, eviction) for eviction in settled.evicted)
        if not settled.stopped:
            self._watch_demand()
        self._describe()

    async def _send_placements(self) -> None:
        """Signals placements to the owners that waited for them."""
        notices = _some(self._notices.values())
        gone = await self._signal_owners(Notifier.signal_placed, Notices(placements=notices), f"{len(notices)} placed")
        self._remove_signalled(self._notices, notices, gone)

    async def _send_evictions(self) -> None:
        """Signals evictions to the owners of the gangs that have to leave."""
        evictions = _some(self._evictions.values())
        gone = await self._signal_owners(
            Notifier.signal_evicted, EvictionNotices(evictions=evictions), f"{len(evictions)} evicted"
        )
        self._remove_signalled(self._evictions, evictions, gone)

    async def _signal_owners(self, signal: Callable[[Notifier, News], Awaitable[Keys]], news: News, summary: str) -> Keys:
        """Sends the signals in one activity. Returns the keys whose owners are gone."""
        return await workflow.execute_activity_method(
            signal,
            news,
            task_queue=names.control_queue(self._cluster),
            start_to_close_timeout=policies.SIGNAL_OWNERS,
            retry_policy=policies.UNTIL_DONE,
            summary=summary,
        )

    def _remove_signalled(self, waiting: dict[str, Notice], sent: Sequence[Notice], gone: Keys) -> None:
        """Removes what was signalled, and forgets the keys of owners that are gone: they hold nothing."""
        for each in sent:
            waiting.pop(each.key, None)
        self._forget(gone.keys)

    async def _recover(self, recovery: LedgerRecovery) -> None:
        """Recovers the ledger from all slices and gangs: it may have been lost with an earlier workflow."""
        if await self._enter_reports(recovery):
            # Lists of workflows lag a little: the second round finds workflows that began just before the first.
            await workflow.sleep(policies.LIST_LAG)
            await self._enter_reports(recovery)
        self._recovery = None
        self._unsettled = True

    async def _enter_reports(self, recovery: LedgerRecovery) -> int:
        """Queries slices and gangs page by page and enters their reports. Returns the number of hosts and gangs."""
        cursor, found = RecoveryCursor(cluster=self._cluster), 0
        while True:
            recovery.request_page()
            requested_at = workflow.now()
            page = await workflow.execute_activity_method(
                RecoveryQueries.query_page,
                cursor,
                task_queue=names.control_queue(self._cluster),
                start_to_close_timeout=policies.RECOVERY_QUERIES,
                heartbeat_timeout=policies.OBSERVE,
                retry_policy=policies.UNTIL_DONE,
            )
            found += recovery.enter(page, requested_at)
            if not page.token:
                return found
            cursor = cursor.model_copy(update={"token": page.token})

    async def _signal_demand(self) -> None:
        """Signals the autoscaler when the demand differs from what it knows, at most once per `WAKE_EVERY`.

        The signal does not carry the demand; the autoscaler asks for it.
        """
        autoscaler = workflow.get_external_workflow_handle(names.autoscaler_workflow(self._cluster))
        while True:
            await workflow.wait_condition(lambda: self._demand_changed)
            self._known_demand, self._demand_changed = dict(self._ledger.demand()), False
            with contextlib.suppress(ApplicationError):  # no autoscaler runs; a new one asks at once
                await autoscaler.signal("demand")
            await workflow.sleep(WAKE_EVERY)

    def _watch_demand(self) -> None:
        """Decides whether the autoscaler has to be signalled.

        It has to be if more gangs of a shape wait than at the last signal, if no gang of a shape waits any more, if a slice is
        broken, if a slice of a group that keeps a reserve is no longer idle, or if a pause began or ended. While the whole
        cluster is paused, only pauses count.
        """
        pauses = (self._ledger.paused is not None, frozenset(self._ledger.paused_groups))
        if pauses != self._known_pauses:
            self._known_pauses = pauses
            self._demand_changed |= workflow.patched("pauses")
        if self._ledger.paused is not None:
            return
        demand, known = self._ledger.demand(), self._known_demand
        broken, reserve = set(broken_slices(self._ledger)), reserve_of(self._ledger)
        self._demand_changed |= not (broken <= self._known_broken and reserve >= self._known_reserve)
        self._known_broken, self._known_reserve = broken, reserve
        self._demand_changed |= known.keys() - demand.keys() != set()
        self._demand_changed |= any(count > known.get(shape, 0) for shape, count in demand.items())
        self._known_demand = {shape: min(count, demand[shape]) for shape, count in known.items() if shape in demand}

    async def _check_jobs(self) -> None:
        """Releases what ended workflows still hold, and sends waiting gangs their changed reasons.

        A job releases everything itself; a terminated one cannot.
        """
        while True:
            await workflow.wait_condition(lambda: bool(self._ledger.live or len(self._ledger.waiting) or len(self._ledger.held)))
            # Runs may be short: the last check of the previous run counts.
            since = workflow.now() - self._checked_at if self._checked_at else _NOW
            await workflow.sleep(max(_NOW, policies.CHECK_JOBS_EVERY - since))
            self._checked_at = None
            gone = await workflow.execute_activity_method(
                Notifier.check_jobs,
                ClusterName(cluster=self._cluster),
                task_queue=names.control_queue(self._cluster),
                start_to_close_timeout=policies.CHECK_JOBS,
                heartbeat_timeout=policies.CHECK_JOBS,
                retry_policy=policies.UNTIL_DONE,
            )
            self._forget(gone.keys)
            self._checked_at = workflow.now()
            if workflow.patched("reasons"):
                await self._send_reasons()

    async def _send_reasons(self) -> None:
        """Sends waiting gangs the reason why they wait now. All gangs of one shape have the same reason."""
        changed, sent = reason_changes(self._ledger, self._sent_reasons)
        reasons = [
            Reason(key=request.key, owner=request.owner, refusal=each.refusal) for each in changed for request in each.requests
        ]
        try:
            while reasons:
                some = _some(reasons)
                reasons = reasons[len(some) :]
                await workflow.execute_activity_method(
                    Notifier.signal_reasons,
                    Reasons(reasons=some),
                    task_queue=names.control_queue(self._cluster),
                    start_to_close_timeout=policies.SIGNAL_OWNERS,
                    retry_policy=policies.ONCE,
                    summary=f"{len(some) + len(reasons)} changed reasons",
                )
        except ActivityError:
            # The reasons are only for display, and a failure must not end the checks: the next check sends them again.
            for each in changed:
                sent.pop(each.shape, None)
        self._sent_reasons = sent

    def _forget(self, keys: tuple[str, ...]) -> None:
        for key in keys:
            self._ledger.forget(key)
        if keys:
            self._settle()

    def _describe(self) -> None:
        ledger = self._ledger
        lines = [f"**{len(ledger.hosts)}** hosts, **{len(ledger.live)}** gangs placed, **{len(ledger.waiting)}** waiting"]
        if len(ledger.held):
            lines.append(f"{len(ledger.held)} held by their users")
        if ledger.paused is not None:
            lines.append(f"**PAUSED** {cut(ledger.paused)}")
        lines += [f"Scale group {group} is paused: {cut(reason)}" for group, reason in ledger.paused_groups.items()]
        lines += [f"- host {host}: {cut(str(closure))}" for host, closure in list(ledger.closed.items())[:20]]
        workflow.set_current_details("\n\n".join(lines))


def _some(news: Iterable[Item]) -> tuple[Item, ...]:
    """Returns the first of the items, as many as one activity sends."""
    return tuple(fitting(((each, size_of(each)) for each in news), MAX_NOTICES))
