"""Defines the scheduler: one workflow per cluster that holds the ledger of hosts, placements and
waiting gangs.

The decisions are made in `iris.scheduling.ledger.ledger` and `iris.scheduling.placement.place`.
Messages arrive in batches through the `exchange` update. Its answers have the placements that are
possible at once. Gangs that had to wait are signalled: under load by the control plane whose batch
made room for them, otherwise by an activity.

The handlers are synchronous and never raise. Under load, the workflow could never continue as new
while asynchronous handlers run. A handler that raises fails or blocks the workflow on which the
whole cluster depends.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from iris.activities.control.notifier import Notifier
from iris.activities.control.recovery import RecoveryQueries
from iris.messages.fleet_views import Holdings, QueuePage, QueueView
from iris.messages.quotas import QuotaList, QuotaQuestion
from iris.messages.scheduler import (
    Answer,
    Answers,
    Batch,
    EvictionNotices,
    Message,
    Notices,
    Owners,
    Release,
    SchedulerStart,
    Signalled,
    Snapshot,
    SnapshotPage,
    Totals,
    Uses,
    UsesPage,
)
from iris.messages.wire import Keys
from iris.model import names
from iris.model.job.demand_limits import MESSAGE_BYTES, size_of
from iris.model.job.requests import Placement, Request, Shape
from iris.model.slice.scaling import Wanted
from iris.planners.demand import DemandWatch, unplaced, wanted_of
from iris.planners.ledger_messages import (
    MAX_PLACEMENTS,
    RECOVERING,
    Entered,
    enter,
    serve,
)
from iris.planners.pacing import WAKE_AGAIN, WAKE_EVERY
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.ledger.reason_changes import MAX_SHAPES, reason_changes
from iris.scheduling.ledger.recovery import LedgerRecovery, RecoveryCursor, RecoveryPage
from iris.scheduling.ledger.settled import Settled
from iris.scheduling.ledger.size import FULL, LedgerSize
from iris.scheduling.placement.preemption import Eviction
from iris.scheduling.placement.refusals import Refusal
from iris.scheduling.reasons.forecast import Forecast
from iris.workflows import policies, web_ui
from iris.workflows.jobs.job_checks import JobChecks
from iris.workflows.scheduler import unsent_signals
from iris.workflows.scheduler.background import evict_at_deadlines, store_uses
from iris.workflows.scheduler.fleet_views import holdings_of, queue_of
from iris.workflows.scheduler.quota_views import quotas_of_ledger
from iris.workflows.scheduler.scheduler_views import owners_of, snapshot_of, totals_of, uses_of
from iris.workflows.scheduler.told_by_hosts import vacated_by_sender
from iris.workflows.scheduler.unsent_signals import HandedOver
from iris.workflows.signals import send_signal

#: The most work of a run, after which the run continues as new. One unit is the work to examine one
#: host (`Effort`). A replay repeats all of this work, and nothing is placed meanwhile: ten million
#: units take about three seconds on one core of the benchmark machine. The number of events does
#: not measure the work: every pass adds five events, but a pass over a large cluster costs a
#: thousand times as much as one over a small cluster.
MAX_REPLAY = 10_000_000
#: The pause before another scheduling pass that is due at once (`Settled.stopped`). The pause ends
#: the workflow task.
START_PAUSE = timedelta(milliseconds=1)
News = TypeVar("News", Notices, EvictionNotices)
Notice = TypeVar("Notice", Placement, Eviction)


@workflow.defn
class SchedulerWorkflow:
    @workflow.init
    def __init__(self, start: SchedulerStart) -> None:
        self._cluster = start.cluster
        self._ledger = Ledger(start.ledger)
        info = workflow.info()
        self._size = LedgerSize.at_start(
            info.get_current_history_size(), info.get_current_history_length(), start.ledger_bytes
        )
        self._notices, self._evictions = unsent_signals.unpack(self._ledger, start)
        #: The placements whose owners could not be signalled, by key. `_check_jobs` queues the
        #: signals again.
        self._unsent_notices: dict[str, Placement] = {}
        #: The placements that control planes, and not this workflow, signal to the owners, and for
        #: which they have not confirmed the signals yet.
        self._handed_over = HandedOver()
        #: The evictions whose owners could not be signalled, by key. `_check_jobs` queues the
        #: signals again.
        self._unsent_evictions: dict[str, Eviction] = {}
        self._sent_reasons: dict[str, str] = dict(start.sent_reasons)
        self._checked_at = start.checked_at
        #: True if another scheduling pass is due at once: the last pass was not complete
        #: (`Settled.stopped`), or no pass has run yet although gangs wait.
        self._unsettled = bool(len(self._ledger.waiting))
        #: When the next search for victims of evictions is due; None if no time is set.
        self._again_at: datetime | None = None
        #: The recovery of the ledger; None if the ledger is complete. Nothing is placed during the
        #: recovery.
        self._recovery = LedgerRecovery(self._ledger) if start.recover else None
        self._demand_watch = DemandWatch()
        #: The time that scheduling decisions use. It advances only with events of the workflow (a
        #: batch of messages, a timer, the result of a check), so that a replay decides the same.
        self._time = info.workflow_start_time
        self._describe()

    @workflow.run
    async def run(self, start: SchedulerStart) -> None:
        if self._recovery is not None:
            await _recover_ledger(
                self._cluster, self._recovery, lambda: self._time, self._recovered
            )
            self._recovery, self._unsettled = None, True
        beside = [
            asyncio.create_task(self._check_jobs()),
            asyncio.create_task(self._signal_demand()),
            asyncio.create_task(self._take_back()),
            asyncio.create_task(evict_at_deadlines(self._ledger, self._queue_evictions)),
            asyncio.create_task(
                store_uses(self._cluster, self._ledger.ended_uses, lambda: self._time)
            ),
        ]
        while not self._run_is_long():
            if self._notices:
                await self._send_placements()
            elif self._evictions:
                await self._send_evictions()
            elif self._unsettled:
                self._settle()
                if self._unsettled and not self._notices and not self._spent():
                    await workflow.sleep(START_PAUSE)
            else:
                await self._wait()
        for task in beside:
            task.cancel()
        # There must be no await from here on: every handled message must be in the ledger that the
        # next run gets.
        self._queue_unsent()
        self._notices.update(self._handed_over.unconfirmed())
        self._ledger.now_is(self._time)
        workflow.continue_as_new(
            SchedulerStart(
                cluster=self._cluster,
                ledger=self._ledger.state(),
                ledger_bytes=self._size.carried,
                **unsent_signals.pack(self._ledger, self._notices, self._evictions)._asdict(),
                sent_reasons=self._sent_reasons,
                checked_at=self._checked_at,
            ),
            task_timeout=policies.PLANNER_TASK,
        )

    async def _wait(self) -> None:
        """Waits until a pass or a signal is due.

        A timer runs only while `_again_at` is set: a victim has not run long enough yet, or the
        last search did not examine all gangs.
        """
        armed = self._again_at

        def is_woken() -> bool:
            waits = bool(self._notices or self._evictions) or self._unsettled
            return waits or self._again_at != armed or self._run_is_long()

        try:
            await workflow.wait_condition(
                is_woken, timeout=max(policies.MOMENT, armed - self._time) if armed else None
            )
        except TimeoutError:
            self._again_at, self._time = None, armed or self._time
            self._settle()

    @workflow.update(
        description=(
            "Messages from jobs, slices and operators; the answers contain the placements that are"
            " possible now"
        )
    )
    def exchange(self, batch: Batch) -> Answers:
        now = self._time = workflow.now()
        whole = self._recovery is None
        alone = self._handed_over.received(batch, now)
        if batch.again:
            self._notices.update(self._handed_over.take_back(self._handed_over.unconfirmed()))
        served = serve(self._ledger, batch.messages, now, size=self._size, whole=whole)
        self._ledger.effort.received(len(batch.messages))
        for message, entered in zip(batch.messages, served.entered, strict=True):
            self._entered(message, entered)
        handed = self._handed_over.hand_over(served.notices) if batch.signals else ()
        if served.settled is not None:
            self._settled(served.settled, served.notices[len(handed) :])
        return Answers(
            answers=served.answers,
            placed=handed,
            waiting=len(self._ledger.waiting),
            alone=alone,
        )

    @exchange.validator
    def _takes(self, batch: Batch) -> None:
        """Raises ApplicationError for a batch that is too large to be accepted: the acceptance
        contains a copy of it.
        """
        if (size := size_of(batch)) > MESSAGE_BYTES:
            problem = (
                f"batch: {size:,} bytes are too many for the scheduler; send at most"
                f" {MESSAGE_BYTES:,} bytes of messages at once"
            )
            raise ApplicationError(problem, type="TooLarge", non_retryable=True)

    @workflow.signal(description="Messages that need no answer")
    def deliver(self, batch: Batch) -> None:
        self._deliver(batch.messages)

    @workflow.signal(dynamic=True)
    def told_by_host(self, name: str, arguments: Sequence[RawValue]) -> None:
        """Takes a host's message about itself. Temporal's servers check the host in the name."""
        if (vacated := vacated_by_sender(name, arguments)) is not None:
            self._deliver([vacated])

    def _deliver(self, messages: Sequence[Message]) -> None:
        for message in messages:
            whole = self._recovery is None
            entered = enter(self._ledger, message, size=self._size, whole=whole)
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

    @workflow.query(
        description=(
            "Why no host, present or to be created, could ever serve this request; empty if one"
            " could"
        )
    )
    def never(self, request: Request) -> Answer:
        return Answer(
            refusal=(
                self._ledger.wait_reasons().infeasible(request) if self._recovery is None else None
            )
        )

    @workflow.query(
        description=(
            "For the autoscaler: the unplaced demand by shape, and the idle and broken slices"
        )
    )
    def wanted(self) -> Wanted:
        demand = unplaced(self._ledger) if self._unsettled else self._ledger.demand()
        if self._recovery is not None or demand is None:
            raise RuntimeError(
                "the demand is not known yet, because the scheduler is still placing gangs"
            )
        return wanted_of(self._ledger, workflow.now(), demand)

    @workflow.query(
        description="For metrics: how many gangs wait, why, and how near the limits are"
    )
    def totals(self) -> Totals:
        counts = totals_of(self._ledger, recovering=self._recovery is not None)
        limits = {
            "looks": self._ledger.effort.looks,
            "most_looks": MAX_REPLAY,
            "ledger_bytes": self._size.bytes,
            "full_ledger_bytes": FULL,
        }
        return counts.model_copy(update=limits)

    @workflow.query(description="A page of the uses that are not in the store yet")
    def uses(self, page: UsesPage) -> Uses:
        if self._recovery is not None:
            raise RuntimeError("the scheduler is recovering its ledger")
        return uses_of(self._ledger, page)

    @workflow.query(description="A page of the queue in the order of service, with the reasons")
    def queue(self, page: QueuePage) -> QueueView:
        instead = RECOVERING if self._recovery is not None else None
        return queue_of(self._ledger, page, workflow.now(), instead)

    @workflow.query(description="What the hosts offer and what runs on them, by group and by user")
    def holdings(self) -> Holdings:
        return holdings_of(self._ledger)

    @workflow.query(description="The quotas: what is used, borrowed and lent, and what waits")
    def quotas(self, question: QuotaQuestion) -> QuotaList:
        return quotas_of_ledger(self._ledger, question)

    @workflow.query(description="A page of the owners of requests and placements")
    def owners(self, page: SnapshotPage) -> Owners:
        return owners_of(self._ledger, page)

    def _run_is_long(self) -> bool:
        """Returns whether to continue as new: the history or its replay is long, or the size of the
        ledger has to be measured.
        """
        suggested = workflow.info().is_continue_as_new_suggested()
        return suggested or self._spent() or self._size.stale

    def _spent(self) -> bool:
        # A round of passes must end in the run in which it began: the next run would begin it anew.
        return not self._ledger.passed_over and self._ledger.effort.looks >= MAX_REPLAY

    def _entered(self, message: Message, entered: Entered) -> None:
        """Updates the pending signals and the recovery after a message was entered into the
        ledger.
        """
        unsent_signals.add_evictions(self._evictions, entered.evicted)
        if isinstance(message, Release):
            for queue in (
                self._notices,
                self._evictions,
                self._unsent_notices,
                self._unsent_evictions,
            ):
                queue.pop(message.key, None)
            self._handed_over.forget([message.key])
        if self._recovery is not None:
            self._recovery.received(entered.hosts)

    def _settle(self) -> None:
        if self._recovery is None:
            settled = self._ledger.settle(self._time, MAX_PLACEMENTS)
            self._settled(settled, settled.placed)

    def _settled(self, settled: Settled, notices: Sequence[Placement]) -> None:
        """Queues the placements and evictions of a pass to be signalled."""
        self._unsettled, self._again_at = settled.stopped, settled.again_at
        self._notices.update((placement.key, placement) for placement in notices)
        for placement in settled.placed:
            self._size.placed(placement)
        unsent_signals.add_evictions(self._evictions, settled.evicted)
        self._demand_watch.compare(self._ledger, self._demand())
        self._describe()

    async def _send_placements(self) -> None:
        """Signals placements to the owners that waited for them."""
        notices = unsent_signals.batch(self._notices.values())
        result = await self._signal_owners(
            Notifier.signal_placed, Notices(placements=notices), f"{len(notices)} placed"
        )
        if result is not None:
            _remove_signalled(self._notices, self._unsent_notices, notices, result)

    def _queue_evictions(self, evicted: Sequence[Eviction]) -> None:
        unsent_signals.add_evictions(self._evictions, evicted)

    async def _take_back(self) -> None:
        """Queues the placements that no control plane has confirmed in time: it may have died
        before it signalled them.
        """
        while True:
            await workflow.wait_condition(lambda: bool(self._handed_over))
            handed = self._handed_over.unconfirmed()
            await workflow.sleep(policies.CONFIRM_SIGNALS)
            self._notices.update(self._handed_over.take_back(handed))

    async def _send_evictions(self) -> None:
        """Signals evictions to the owners of the gangs that have to leave or whose hosts are
        gone.
        """
        evictions = unsent_signals.batch(self._evictions.values())
        result = await self._signal_owners(
            Notifier.signal_evicted,
            EvictionNotices(evictions=evictions),
            f"{len(evictions)} evicted",
        )
        if result is not None:
            _remove_signalled(self._evictions, self._unsent_evictions, evictions, result)

    async def _signal_owners(
        self, signal: Callable[[Notifier, News], Awaitable[Signalled]], news: News, summary: str
    ) -> Signalled | None:
        """Sends the signals in one activity. Returns None if the run has become long before the
        activity has ended. The signals are then sent again, usually by the next run.
        """
        sending = workflow.start_activity_method(
            signal,
            news,
            task_queue=names.control_queue(self._cluster),
            start_to_close_timeout=policies.SIGNAL_OWNERS,
            retry_policy=policies.UNTIL_DONE,
            summary=summary,
        )
        await workflow.wait_condition(lambda: sending.done() or self._run_is_long())
        if not sending.done():
            with contextlib.suppress(TimeoutError):
                await workflow.wait_condition(sending.done, timeout=policies.LAST_SIGNALS)
        return await sending if sending.done() else None

    def _recovered(self, page: RecoveryPage, reports: int) -> None:
        self._ledger.effort.received(reports)
        self._size.recovered(page)

    async def _signal_demand(self) -> None:
        """Signals the autoscaler when the demand has changed, with pauses between the signals.

        The signal does not carry the demand: the autoscaler queries it.
        """
        autoscaler = workflow.get_external_workflow_handle(names.autoscaler_workflow(self._cluster))
        while True:
            await workflow.wait_condition(lambda: self._demand_watch.changed)
            self._demand_watch.signalled(self._demand())
            await send_signal(autoscaler, "demand")  # a new autoscaler queries it at its start
            await workflow.sleep(WAKE_EVERY)
            if self._demand_watch.changed and not self._demand_watch.urgent:
                with contextlib.suppress(TimeoutError):
                    await workflow.wait_condition(
                        lambda: self._demand_watch.urgent, timeout=WAKE_AGAIN
                    )

    def _demand(self) -> Mapping[Shape, int]:
        """Returns the demand that the autoscaler gets. While another pass has to run, these are
        only the gangs that are known not to fit.
        """
        if self._unsettled:
            return unplaced(self._ledger) or {}
        return self._ledger.demand()

    async def _check_jobs(self) -> None:
        """Releases what ended workflows still hold, and sends waiting gangs their changed reasons.

        A job releases everything itself, but a terminated job cannot. The service repeats the
        checks, so they add nothing to the history while they find nothing. While gangs wait, a
        timer also advances `_time`: gangs are placed, and their reasons change, as time passes.
        """
        checks = JobChecks(self._cluster, self._forget)

        def is_due() -> bool:
            waits = len(self._ledger.waiting) or self._unsent_notices or self._unsent_evictions
            return bool(waits) or not checks.run or not self._is_used()

        while True:
            await self._next_check()
            checks.start()
            self._queue_unsent()
            await self._send_reasons()
            await workflow.wait_condition(is_due)
            if not self._is_used():
                checks.stop()

    async def _next_check(self) -> None:
        """Waits until the jobs have to be checked."""
        await workflow.wait_condition(self._is_used)
        # Runs may be shorter than the interval, so the last check of the previous run counts.
        began = self._time
        pause = max(
            policies.MOMENT, policies.CHECK_JOBS_EVERY - (began - (self._checked_at or began))
        )
        await workflow.sleep(pause)
        self._checked_at = self._time = max(self._time, began + pause)

    def _is_used(self) -> bool:
        ledger = self._ledger
        placed = bool(ledger.live or ledger.unreleased)
        return placed or bool(len(ledger.waiting) or len(ledger.held))

    def _queue_unsent(self) -> None:
        self._notices.update(self._unsent_notices)
        newer, self._evictions = self._evictions, self._unsent_evictions
        unsent_signals.add_evictions(self._evictions, newer.values())
        self._unsent_notices, self._unsent_evictions = {}, {}

    async def _send_reasons(self) -> None:
        """Sends waiting gangs the reasons that have changed. All gangs of one shape have the same
        reason.
        """
        ledger = self._ledger
        changed, sent = reason_changes(ledger, self._sent_reasons)
        ledger.effort.explained(
            ledger.hosts, ledger.live, ledger.waiting, min(len(sent), MAX_SHAPES)
        )
        try:
            await unsent_signals.send_reasons(
                self._cluster, unsent_signals.reasons_of(ledger, changed)
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                # The run ends. It must start nothing more: the service would reject its end.
                raise asyncio.CancelledError from error
            # A failure must not end the checks, because the reasons are only for display. The next
            # check sends them again.
            for each in changed:
                sent.pop(each.shape, None)
        self._sent_reasons = sent

    def _forget(self, gone: Keys) -> None:
        for key in gone.keys:
            self._ledger.forget(key)
        if gone.keys:
            self._time = max(self._time, gone.at or self._time)
            self._settle()

    def _describe(self) -> None:
        workflow.set_current_details(web_ui.scheduler_details(self._ledger, self._size))


def _remove_signalled(
    waiting: dict[str, Notice], unsent: dict[str, Notice], sent: Sequence[Notice], result: Signalled
) -> None:
    """Removes the signals that were sent from the queue. Signals that were not sent wait for the
    next check of the jobs.
    """
    later = set(result.unsent)
    for each in sent:
        if waiting.get(each.key) != each:
            continue  # released, or replaced by a newer signal, which is sent next
        del waiting[each.key]
        if each.key in later:
            unsent[each.key] = each


async def _recover_ledger(
    cluster: str,
    recovery: LedgerRecovery,
    now: Callable[[], datetime],
    entered: Callable[[RecoveryPage, int], None],
) -> None:
    """Recovers the ledger from the reports of all slices and gangs.

    Args:
        now: returns the time for decisions.
        entered: called for each page of reports that was entered into the ledger, with their
        number.
    """
    if await _enter_reports(cluster, recovery, now, entered):
        # New workflows are in the service's lists after a moment. The second round finds those that
        # began just before the first one.
        await workflow.sleep(policies.LIST_LAG)
        await _enter_reports(cluster, recovery, now, entered)


async def _enter_reports(
    cluster: str,
    recovery: LedgerRecovery,
    now: Callable[[], datetime],
    entered: Callable[[RecoveryPage, int], None],
) -> int:
    """Queries slices and gangs page by page and enters their reports. Returns the number of hosts
    and gangs.
    """
    cursor, found = RecoveryCursor(cluster=cluster), 0
    while True:
        recovery.request_page()
        requested_at = now()
        page = await workflow.execute_activity_method(
            RecoveryQueries.query_page,
            cursor,
            task_queue=names.control_queue(cluster),
            start_to_close_timeout=policies.RECOVERY_QUERIES,
            heartbeat_timeout=policies.OBSERVE,
            retry_policy=policies.UNTIL_DONE,
        )
        reports = recovery.enter(page, requested_at)
        found += reports
        entered(page, reports)
        if not page.token:
            return found
        cursor = cursor.model_copy(update={"token": page.token})
