"""The scheduler: one workflow per cluster that holds the book of hosts, placements and waiting tasks.

It decides nothing itself (`iris.ledger`, `iris.placement` do). Messages come in batches through the `exchange` update, whose
answer carries what could be placed at once; those that had to wait are told by signals, sent by an activity.

The handlers are synchronous and never raise: an async handler starves continue-as-new under load, and a raising one fails or
wedges the workflow on which everything waits.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Container, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from iris import names
from iris.activities.notices import Couriers
from iris.activities.rollcall import RollCall
from iris.forecast import Forecast
from iris.gangs import Placement, Request, Shape
from iris.ledger import Ledger
from iris.preemption import Eviction
from iris.reasons import news
from iris.refusals import Refusal, RefusalCode
from iris.roll import Gathering, RollPage
from iris.scale_plan import Wanted
from iris.workflows import policies
from iris.workflows.entries import enter
from iris.workflows.messages import (
    Amend,
    Answer,
    Answers,
    Ask,
    Batch,
    ClusterRef,
    EvictionNotices,
    Keys,
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
from iris.workflows.views import broken_slices, owners_of, reserve_of, snapshot_of, wanted_of

#: Placed by one pass: some hundred milliseconds of the two seconds that a workflow task may take without yielding.
MAX_PLACEMENTS = 1_000
#: Signals sent by one activity: a second's work, and a payload of some hundred kilobytes.
MAX_NOTICES = 500
_NOW = timedelta(0)
#: Between two signals to the autoscaler that something else waits.
WAKE_EVERY = timedelta(seconds=1)
#: Between two passes of which the first had to stop: a workflow task's end.
BREATH = timedelta(milliseconds=1)
News = TypeVar("News", Notices, EvictionNotices)
Notice = TypeVar("Notice", Placement, Eviction)
GATHERING = Refusal(code=RefusalCode.QUEUED, message="the scheduler was started anew and asks everybody what they have and hold")


@workflow.defn
class SchedulerWorkflow:
    @workflow.init
    def __init__(self, start: SchedulerStart) -> None:
        self._cluster = start.cluster
        self._ledger = Ledger(start.ledger)
        self._notices: dict[str, Placement] = {notice.key: notice for notice in start.notices}
        self._evictions: dict[str, Eviction] = {eviction.key: eviction for eviction in start.evictions}
        self._told: dict[str, str] = dict(start.told)
        self._checked_at = start.checked_at
        #: There may be more to place: the last pass stopped at its limit, or there was none yet.
        self._unsettled = bool(len(self._ledger.waiting))
        #: When somebody may be evicted who may not be yet.
        self._again_at: datetime | None = None
        #: The book is being put together: nothing is placed before it is whole.
        self._gathering = Gathering(self._ledger) if start.call_roll else None
        #: What waited when the autoscaler was last woken, and whether it should be woken again.
        self._known_demand: dict[Shape, int] = {}
        self._known_broken: set[str] = set()
        self._known_reserve: set[str] = set()
        self._known_pauses: tuple[bool, frozenset[str]] = (False, frozenset())
        self._demand_changed = False
        self._describe()

    @workflow.run
    async def run(self, start: SchedulerStart) -> None:
        if self._gathering is not None:
            await self._call_roll()
        beside = [asyncio.create_task(self._check_jobs())]
        if workflow.patched("demand"):
            beside.append(asyncio.create_task(self._tell_demand()))
        while not workflow.info().is_continue_as_new_suggested():
            if self._notices:
                await self._tell()
            elif self._evictions:
                await self._evict()
            elif self._unsettled:
                self._settle()
                if self._unsettled and not self._notices:
                    await workflow.sleep(BREATH)
            else:
                await self._wait()
        for task in beside:
            task.cancel()
        # No await between here and the end: whatever has been handled is in the book, and the book goes along.
        workflow.continue_as_new(
            SchedulerStart(
                cluster=self._cluster,
                ledger=self._ledger.state(),
                notices=tuple(self._notices.values()),
                evictions=tuple(self._evictions.values()),
                told=self._told,
                checked_at=self._checked_at,
            )
        )

    async def _wait(self) -> None:
        """Until there is something to do; a timer runs only while somebody waits for a victim to have run long enough."""
        armed = self._again_at

        def something() -> bool:
            waits = bool(self._notices or self._evictions) or self._unsettled
            return waits or self._again_at != armed or workflow.info().is_continue_as_new_suggested()

        try:
            await workflow.wait_condition(something, timeout=max(_NOW, armed - workflow.now()) if armed else None)
        except TimeoutError:
            self._again_at = None
            self._settle()

    @workflow.update(description="Messages from jobs, slices and operators; answered with what can be placed now")
    def exchange(self, batch: Batch) -> Answers:
        # Why those who give up were waiting is looked up while they are still in the book.
        withdrawn = [
            message.key for message in batch.messages if isinstance(message, Release) and message.key in self._ledger.waiting
        ]
        refusals = dict(zip(withdrawn, self._ledger.inquiry.explain_all(withdrawn), strict=True))
        problems = [self._enter(message) for message in batch.messages]
        asked = [message for message in batch.messages if isinstance(message, Ask | Amend)]
        asking = {message.request.key if isinstance(message, Ask) else message.key: None for message in asked}
        self._settle(told_by_answer=asking)
        waiting = [key for key in asking if key not in self._ledger.live]
        refusals.update(zip(waiting, self._ledger.inquiry.explain_all(waiting), strict=True))
        answers = []
        for message, problem in zip(batch.messages, problems, strict=True):
            key = message.request.key if isinstance(message, Ask) else getattr(message, "key", "")
            placement = self._ledger.live.get(key) if isinstance(message, Ask | Amend) else None
            refusal = refusals.get(key)
            if self._gathering is not None and refusal is not None and refusal.code is not RefusalCode.UNKNOWN:
                refusal = GATHERING
            answers.append(Answer(placement=placement, refusal=None if placement else refusal, problem=problem))
        return Answers(answers=tuple(answers))

    @workflow.signal(description="Messages from senders that need no answer")
    def deliver(self, batch: Batch) -> None:
        for message in batch.messages:
            self._enter(message)
        self._settle()

    @workflow.query(description="Hosts with what is free on them, a page at a time")
    def snapshot(self, page: SnapshotPage) -> Snapshot:
        return snapshot_of(self._ledger, page)

    @workflow.query(description="Why the request with this key has no host")
    def explain(self, key: str) -> Refusal:
        return self._ledger.explain(key) if self._gathering is None else GATHERING

    @workflow.query(description="What would become of this request if it were asked now; nothing is changed")
    def forecast(self, request: Request) -> Forecast:
        return self._ledger.forecast(request, workflow.now())

    @workflow.query(description="Why no host there is could ever serve this request, if none could")
    def never(self, request: Request) -> Answer:
        return Answer(refusal=self._ledger.inquiry.never(request) if self._gathering is None else None)

    @workflow.query(description="For the autoscaler: what could not be placed, by shape, and which slices have nothing to do")
    def wanted(self) -> Wanted:
        if self._gathering is not None or self._unsettled:
            raise RuntimeError("the scheduler is still placing what fits")
        return wanted_of(self._ledger, workflow.now())

    @workflow.query(description="Who waits for or holds something, a page at a time")
    def owners(self, page: SnapshotPage) -> Owners:
        return owners_of(self._ledger, page)

    def _enter(self, message: Message) -> str:
        """Write it into the book; what is wrong with it, if it cannot be."""
        entered = enter(self._ledger, message, whole=self._gathering is None)
        self._evictions.update((each.key, each) for each in entered.evicted)
        if isinstance(message, Release):
            self._notices.pop(message.key, None)
            self._evictions.pop(message.key, None)
        if self._gathering is not None:
            self._gathering.heard(entered.hosts)
        return entered.problem

    def _settle(self, told_by_answer: Container[str] = ()) -> None:
        if self._gathering is not None:
            return
        settled = self._ledger.settle(workflow.now(), MAX_PLACEMENTS)
        self._unsettled, self._again_at = settled.stopped, settled.again_at
        self._notices.update((placement.key, placement) for placement in settled.placed if placement.key not in told_by_answer)
        self._evictions.update((eviction.key, eviction) for eviction in settled.evicted)
        if not settled.stopped:
            self._watch_demand()
        self._describe()

    async def _tell(self) -> None:
        """Signal the owners of what was placed while they waited."""
        notices = tuple(self._notices.values())[:MAX_NOTICES]
        gone = await self._tell_owners(Couriers.tell_placed, Notices(placements=notices), f"{len(notices)} placed")
        self._were_told(self._notices, notices, gone)

    async def _evict(self) -> None:
        """Signal the owners of what has to make room."""
        evictions = tuple(self._evictions.values())[:MAX_NOTICES]
        gone = await self._tell_owners(Couriers.tell_evicted, EvictionNotices(evictions=evictions), f"{len(evictions)} evicted")
        self._were_told(self._evictions, evictions, gone)

    async def _tell_owners(self, tell: Callable[[Couriers, News], Awaitable[Keys]], news: News, summary: str) -> Keys:
        """The keys whose owners are gone."""
        return await workflow.execute_activity_method(
            tell,
            news,
            task_queue=names.control_queue(self._cluster),
            start_to_close_timeout=policies.TELL,
            retry_policy=policies.UNTIL_DONE,
            summary=summary,
        )

    def _were_told(self, waiting: dict[str, Notice], told: Sequence[Notice], gone: Keys) -> None:
        """They need not be told again; whoever is gone has no use for it, and holds nothing."""
        for each in told:
            waiting.pop(each.key, None)
        self._forget(gone.keys)

    async def _call_roll(self) -> None:
        """Ask all slices and gangs what they have and hold: the book may have been lost with an earlier workflow."""
        assert self._gathering is not None
        if await self._enter_roll(self._gathering):
            # Lists of workflows lag behind by moments, so whoever began just before is found by asking again.
            await workflow.sleep(policies.LIST_LAG)
            await self._enter_roll(self._gathering)
        self._gathering = None
        self._unsettled = True

    async def _enter_roll(self, gathering: Gathering) -> int:
        """How many answered."""
        page, found = RollPage(cluster=self._cluster), 0
        while True:
            gathering.ask()
            asked_at = workflow.now()
            roll = await workflow.execute_activity_method(
                RollCall.call_roll,
                page,
                task_queue=names.control_queue(self._cluster),
                start_to_close_timeout=policies.CALL_ROLL,
                heartbeat_timeout=policies.OBSERVE,
                retry_policy=policies.UNTIL_DONE,
            )
            found += gathering.enter(roll, asked_at)
            if not roll.token:
                return found
            page = page.model_copy(update={"token": roll.token})

    async def _tell_demand(self) -> None:
        """Wake the autoscaler when something else waits than it knows of. It asks what; how often it is woken is bounded."""
        autoscaler = workflow.get_external_workflow_handle(names.autoscaler_workflow(self._cluster))
        while True:
            await workflow.wait_condition(lambda: self._demand_changed)
            self._known_demand, self._demand_changed = dict(self._ledger.demand()), False
            with contextlib.suppress(ApplicationError):  # there is none; a new one asks at once
                await autoscaler.signal("demand")
            await workflow.sleep(WAKE_EVERY)

    def _watch_demand(self) -> None:
        """Whether the autoscaler should know: more waits for something than when it was last woken, or nobody does any more; a
        slice cannot do its work; one of a group that keeps a reserve is idle no longer; a pause began or has ended."""
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
        """Free what ended workflows still hold, and tell those who wait when the reason has changed.

        A job gives everything back itself; one that was terminated cannot.
        """
        while True:
            await workflow.wait_condition(lambda: bool(self._ledger.live or len(self._ledger.waiting) or len(self._ledger.held)))
            # Runs may be short: the time of the one before counts.
            since = workflow.now() - self._checked_at if self._checked_at else _NOW
            await workflow.sleep(max(_NOW, policies.CHECK_JOBS_EVERY - since))
            self._checked_at = None
            gone = await workflow.execute_activity_method(
                Couriers.check_jobs,
                ClusterRef(cluster=self._cluster),
                task_queue=names.control_queue(self._cluster),
                start_to_close_timeout=policies.CHECK_JOBS,
                heartbeat_timeout=policies.CHECK_JOBS,
                retry_policy=policies.UNTIL_DONE,
            )
            self._forget(gone.keys)
            self._checked_at = workflow.now()
            if workflow.patched("reasons"):
                await self._tell_reasons()

    async def _tell_reasons(self) -> None:
        """Let those who wait show why they wait now. By shape: it is the same for all who want the same."""
        changed, told = news(self._ledger, self._told)
        reasons = [
            Reason(key=request.key, owner=request.owner, refusal=each.refusal) for each in changed for request in each.requests
        ]
        try:
            for start in range(0, len(reasons), MAX_NOTICES):
                await workflow.execute_activity_method(
                    Couriers.tell_reasons,
                    Reasons(reasons=tuple(reasons[start : start + MAX_NOTICES])),
                    task_queue=names.control_queue(self._cluster),
                    start_to_close_timeout=policies.TELL,
                    retry_policy=policies.ONCE,
                    summary=f"{len(reasons)} wait for another reason",
                )
        except ActivityError:
            # Only for show, and nothing to end the checks for: the next look tells them again.
            for each in changed:
                told.pop(each.shape, None)
        self._told = told

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
            lines.append(f"**PAUSED** {ledger.paused}")
        lines += [f"Scale group {group} is paused: {reason}" for group, reason in ledger.paused_groups.items()]
        lines += [f"- host {host}: {closure}" for host, closure in list(ledger.closed.items())[:20]]
        workflow.set_current_details("\n\n".join(lines))
