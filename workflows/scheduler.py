"""The scheduler: one workflow per cluster that holds the book of hosts, placements and waiting tasks.

It decides nothing itself (`iris.ledger`, `iris.placement` do). Messages come in batches through the `exchange` update, whose
answer carries what could be placed at once; those that had to wait are told by signals, sent by an activity.

The handlers are synchronous and never raise: an async handler starves continue-as-new under load, and a raising one fails or
wedges the workflow on which everything waits.
"""

import asyncio

from temporalio import workflow

from iris import names
from iris.activities.notices import Couriers
from iris.hosts import headroom
from iris.ledger import Ledger
from iris.placement import Placement, Refusal, Request
from iris.resources import Resources
from iris.workflows import policies
from iris.workflows.messages import (
    Answer,
    Answers,
    Ask,
    Batch,
    ClusterRef,
    HostLost,
    HostView,
    Message,
    Notices,
    Owner,
    Owners,
    Release,
    SchedulerStart,
    SliceDown,
    SliceUp,
    Snapshot,
    SnapshotPage,
)

#: Placed by one pass: some hundred milliseconds of the two seconds that a workflow task may take without yielding.
MAX_PLACEMENTS = 1_000
#: Signals sent by one activity: a second's work, and a payload of some hundred kilobytes.
MAX_NOTICES = 500


@workflow.defn
class SchedulerWorkflow:
    @workflow.init
    def __init__(self, start: SchedulerStart) -> None:
        self._cluster = start.cluster
        self._ledger = Ledger(start.ledger)
        self._notices: dict[str, Placement] = {notice.key: notice for notice in start.notices}
        #: The last pass stopped at its limit: there may be more to place.
        self._unsettled = bool(self._ledger.queue)
        self._describe()

    @workflow.run
    async def run(self, start: SchedulerStart) -> None:
        checks = asyncio.create_task(self._check_jobs())
        while True:
            await workflow.wait_condition(
                lambda: bool(self._notices) or self._unsettled or workflow.info().is_continue_as_new_suggested()
            )
            if workflow.info().is_continue_as_new_suggested():
                break
            if self._notices:
                await self._tell()
            if self._unsettled:
                self._settle()
        checks.cancel()
        # No await between here and the end: whatever has been handled is in the book, and the book goes along.
        workflow.continue_as_new(
            SchedulerStart(cluster=self._cluster, ledger=self._ledger.state(), notices=tuple(self._notices.values()))
        )

    @workflow.update(description="Messages from jobs and slices; answered with what can be placed now")
    def exchange(self, batch: Batch) -> Answers:
        asked: dict[str, None] = {}
        refusals: dict[str, Refusal] = {}
        explained: dict[Resources, Refusal] = {}
        for message in batch.messages:
            if isinstance(message, Release) and message.key in self._ledger.queue:
                refusals[message.key] = self._explain(message.key, explained)
            self._enter(message)
            if isinstance(message, Ask):
                asked[message.request.key] = None
        self._settle(told_by_answer=asked)
        explained = {}
        return Answers(answers=tuple(self._answer(message, refusals, explained) for message in batch.messages))

    @workflow.signal(description="Messages from senders that need no answer")
    def deliver(self, batch: Batch) -> None:
        for message in batch.messages:
            self._enter(message)
        self._settle()

    @workflow.query(description="Hosts with what is free on them, a page at a time")
    def snapshot(self, page: SnapshotPage) -> Snapshot:
        running: dict[str, list[Placement]] = {}
        for placement in self._ledger.live.values():
            running.setdefault(placement.host_id, []).append(placement)
        shown = list(self._ledger.hosts.values())[page.offset : page.offset + page.limit]
        views = []
        for host in shown:
            here = running.get(host.id, [])
            free = headroom(host, (placement.resources for placement in here))
            views.append(HostView(host=host, free=free, running=tuple(placement.task for placement in here)))
        return Snapshot(
            hosts=tuple(views),
            total_hosts=len(self._ledger.hosts),
            waiting=len(self._ledger.queue),
            running=len(self._ledger.live),
        )

    @workflow.query(description="Why the request with this key has no host")
    def explain(self, key: str) -> Refusal:
        return self._ledger.explain(key)

    @workflow.query(description="Who waits for or holds something, a page at a time")
    def owners(self, page: SnapshotPage) -> Owners:
        book: list[Placement | Request] = [*self._ledger.live.values(), *self._ledger.queue.values()]
        shown = book[page.offset : page.offset + page.limit]
        return Owners(owners=tuple(Owner(key=entry.key, owner=entry.owner) for entry in shown), total=len(book))

    def _enter(self, message: Message) -> None:
        match message:
            case Ask(request=request):
                self._ledger.ask(request)
            case Release(key=key):
                self._ledger.forget(key)
                self._notices.pop(key, None)
            case SliceUp(hosts=hosts):
                self._ledger.hosts_up(hosts)
            case SliceDown(lives=lives):
                self._ledger.slice_down(lives)
            case HostLost(host_id=host_id, incarnation=incarnation):
                self._ledger.host_lost(host_id, incarnation)

    def _settle(self, told_by_answer: dict[str, None] | None = None) -> None:
        placed = self._ledger.settle(MAX_PLACEMENTS)
        self._unsettled = len(placed) == MAX_PLACEMENTS
        for placement in placed:
            if not told_by_answer or placement.key not in told_by_answer:
                self._notices[placement.key] = placement
        self._describe()

    def _explain(self, key: str, explained: dict[Resources, Refusal]) -> Refusal:
        """Why the request waits; within a batch, worked out once for all that ask for the same. The query is exact."""
        request = self._ledger.queue.get(key)
        if request is None:
            return self._ledger.explain(key)
        if request.resources not in explained:
            explained[request.resources] = self._ledger.explain(key)
        return explained[request.resources]

    def _answer(self, message: Message, refusals: dict[str, Refusal], explained: dict[Resources, Refusal]) -> Answer:
        if isinstance(message, Release):
            return Answer(refusal=refusals.get(message.key))
        if not isinstance(message, Ask):
            return Answer()
        key = message.request.key
        if (placement := self._ledger.live.get(key)) is not None:
            return Answer(placement=placement)
        return Answer(refusal=self._explain(key, explained))

    async def _tell(self) -> None:
        """Signal the owners of what was placed while they waited; whoever is gone has no use for it."""
        notices = list(self._notices.values())[:MAX_NOTICES]
        gone = await workflow.execute_activity_method(
            Couriers.tell_placed,
            Notices(placements=tuple(notices)),
            task_queue=names.control_queue(self._cluster),
            start_to_close_timeout=policies.TELL,
            retry_policy=policies.UNTIL_DONE,
            summary=f"{len(notices)} placed",
        )
        for notice in notices:
            self._notices.pop(notice.key, None)
        self._forget(gone.keys)

    async def _check_jobs(self) -> None:
        """Free what ended workflows still hold. A job gives everything back itself; one that was terminated cannot."""
        while True:
            await workflow.wait_condition(lambda: bool(self._ledger.live or self._ledger.queue))
            await workflow.sleep(policies.CHECK_JOBS_EVERY)
            gone = await workflow.execute_activity_method(
                Couriers.check_jobs,
                ClusterRef(cluster=self._cluster),
                task_queue=names.control_queue(self._cluster),
                start_to_close_timeout=policies.CHECK_JOBS,
                heartbeat_timeout=policies.CHECK_JOBS,
                retry_policy=policies.UNTIL_DONE,
            )
            self._forget(gone.keys)

    def _forget(self, keys: tuple[str, ...]) -> None:
        for key in keys:
            self._ledger.forget(key)
        if keys:
            self._settle()

    def _describe(self) -> None:
        hosts, waiting, running = len(self._ledger.hosts), len(self._ledger.queue), len(self._ledger.live)
        workflow.set_current_details(f"**{hosts}** hosts, **{running}** tasks placed, **{waiting}** waiting")
