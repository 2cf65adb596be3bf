"""A gang from PENDING to its end: the story of a job whose tasks go together, and of every task that goes its own way.

    wait for hosts  ->  run on them  ->  give them back  ->  account for the outcome  ->  again, or the end

Whoever holds a reservation gives it back on every path out of here, cancellation included.
"""

import asyncio
import builtins
from collections.abc import Callable
from datetime import datetime, timedelta

from temporalio import workflow

from iris import retries
from iris.attempts import Account, AttemptRecord, kept, member_ends
from iris.faults import BEYOND_THE_HOST
from iris.gangs import Placement, Request, request_for
from iris.jobs import Band, JobSpec, TaskOutcome, TaskStatus
from iris.preemption import Eviction
from iris.refusals import Refusal, RefusalCode
from iris.roll import Claim
from iris.states import TaskState, move_task
from iris.units import format_duration
from iris.wishes import Wishes
from iris.workflows.exchange import exchange, uninterrupted
from iris.workflows.messages import Amend, Answer, Ask, Reason, Release, TaskProgress
from iris.workflows.on_hosts import Gang, OnHosts


class GangLife:
    """The story and what is known so far; `gang` is always current.

    Args:
        gang: the tasks that go together; changed as the story goes.
        changed: called after each change of a task's status.
        renew: called between attempts once the history is long; continues as new, so it does not return.
    """

    def __init__(self, gang: Gang, changed: Callable[[], None], renew: Callable[[], None]) -> None:
        self.gang = gang
        self._changed = changed
        self._renew = renew
        self._placed: Placement | None = None
        #: What the scheduler has been asked for and has not been given back: a request, or hosts.
        self._asked: Request | None = None
        self._held_hosts: Placement | None = None
        self._placed_at: datetime = workflow.now()
        #: The tasks of the present attempt, by what their hosts know them by.
        self._members: dict[str, int] = {}
        #: Why the scheduler takes the hosts away; empty while it does not.
        self._evicted = ""
        #: The wishes are newer than what the scheduler knows.
        self._amended = False
        self._held_since = workflow.now() if gang.wishes.hold else None

    @property
    def _spec(self) -> JobSpec:
        return self.gang.spec

    @property
    def _first(self) -> TaskStatus:
        """The tasks of a gang differ in where they run and how they end, and in nothing else."""
        return self.gang.tasks[0]

    @property
    def claim(self) -> Claim:
        """What the gang waits for or holds, for a scheduler that has lost its book."""
        band = {"band": self._band}
        return Claim(
            request=self._asked.model_copy(update=band) if self._asked else None,
            held=self.gang.wishes.hold is not None,
            placement=self._held_hosts.model_copy(update=band) if self._held_hosts else None,
        )

    # Handlers: they record, and the story goes on by itself.

    def placed(self, placement: Placement) -> None:
        """The scheduler found hosts. A placement for another attempt is stale: that attempt has released its key."""
        if placement.key == self._first.key:
            self._placed = placement

    def evicted(self, eviction: Eviction) -> None:
        """The scheduler needs the hosts for a stronger gang, or an operator does."""
        if eviction.key == self._first.key:
            self._evicted = eviction.reason

    def waits(self, reason: Reason) -> None:
        """Why the gang waits is not what it was."""
        if reason.key == self._first.key and self._first.state is TaskState.PENDING and not self.gang.wishes.hold:
            self._update(reason=reason.refusal.message)

    def progressed(self, progress: TaskProgress) -> None:
        """The host says that the program is being prepared or runs."""
        order = (TaskState.ASSIGNED, TaskState.BUILDING, TaskState.RUNNING)
        place = self._members.get(progress.key)
        if place is None:
            return  # an earlier attempt
        task = self.gang.tasks[place]
        if task.state in order and order.index(progress.state) > order.index(task.state):
            started = progress.at if progress.state is TaskState.RUNNING else task.started_at
            self.gang.tasks[place] = task.model_copy(
                update={"state": move_task(task.state, progress.state), "started_at": started}
            )
            self._changed()

    def wish(self, wishes: Wishes) -> None:
        """The user changes the band, or holds the gang back, or lets it go."""
        before = self.gang.wishes.hold
        self._count_hold()
        self.gang.wishes = wishes
        self._held_since = workflow.now() if wishes.hold else None
        self._amended = True
        if self._first.state is TaskState.PENDING:
            if wishes.hold:
                self._update(reason=str(wishes.hold))
            elif before is not None and self._first.reason == str(before):
                self._update(reason="")

    def _count_hold(self) -> None:
        """Add the hold until now to those before."""
        if self._held_since is not None:
            self.gang.held_for += workflow.now() - self._held_since
            self._held_since = workflow.now()

    # The story.

    async def run(self) -> None:
        """Attempt after attempt until the gang has ended.

        Raises:
            asyncio.CancelledError: the workflow was cancelled; the tasks are KILLED by then and nothing is held.
        """
        try:
            await self._attempts()
        except asyncio.CancelledError:
            self._killed()
            raise

    async def _attempts(self) -> None:
        while True:
            verdict = await self._attempt()
            if workflow.cancellation_reason() is not None and verdict.outcome.state is not TaskState.SUCCEEDED:
                self._killed(verdict)
                self._record(verdict, Account.NOBODY)
                raise asyncio.CancelledError
            decision = retries.decide(self._spec, self._first, verdict)
            self.gang.tasks = retries.after(self.gang.tasks, verdict, decision, workflow.now())
            self._changed()
            self._record(verdict, decision.account)
            if not decision.retry:
                return
            # The siblings of a culprit were ended for its sake, and go again with it.
            again = move_task(self.gang.tasks[verdict.culprit].state, TaskState.PENDING)
            self._update(state=again, reason=f"retry after: {verdict.outcome.reason}")
            if decision.delay:
                await workflow.sleep(decision.delay)
            if workflow.info().is_continue_as_new_suggested():
                self._count_hold()
                self._renew()

    async def _attempt(self) -> retries.Verdict:
        """One try: hosts, the programs on them, and the hosts given back, whatever happens."""
        number = self._first.attempt + 1
        request = request_for(
            self._spec,
            index=self._first.index,
            attempt=number,
            run_id=workflow.info().first_execution_run_id,
            owner=workflow.info().workflow_id,
            submitted_at=self.gang.submitted_at,
            band=self._band,
        )
        self._placed, self._evicted = None, ""
        again = self._first.key == request.key  # an earlier run of this workflow has asked
        self._update(key=request.key)
        placement, outcomes, refusal, cancelled = None, None, None, False
        evicted = ""
        # No `finally`: that also runs when a worker drops a workflow from its memory, and would then say things to the server.
        try:
            placement = await self._wait_for_hosts(request, again=again)
            if placement is not None:
                outcomes, evicted = await self._run_on(placement, number)
        except asyncio.CancelledError:
            cancelled = True
        try:
            refusal = (await uninterrupted(exchange(self.gang.cluster, _release(request.key, placement, outcomes)))).refusal
        except asyncio.CancelledError:
            # The hosts have been given back by now. What the attempt came to is known, and is not thrown away.
            cancelled = outcomes is None
        self._asked, self._held_hosts = None, None
        if cancelled:
            raise asyncio.CancelledError
        return retries.judge(outcomes, evicted) if outcomes else retries.judge(self._unschedulable(refusal))

    async def _wait_for_hosts(self, request: Request, *, again: bool) -> Placement | None:
        """The hosts, or None when the time for finding them is over.

        If the placement and the timer meet, whichever this workflow sees first counts; the release that follows undoes the other.
        """
        if again:
            # Asking again changes nothing of what the scheduler has: what is wished now is said afterwards.
            self._amended = self._amended or self.gang.wishes.hold is not None
        else:
            if self.gang.wishes.hold:
                self._update(reason=str(self.gang.wishes.hold))
                await workflow.wait_condition(lambda: self.gang.wishes.hold is None)
                request = request.model_copy(update={"band": self._band})
            self._amended = False
        self._asked = request
        answer = await exchange(self.gang.cluster, Ask(request=request))
        before = f"; {self._first.reason}" if self._first.reason else ""
        while answer.placement is None:
            if answer.refusal is not None and not self.gang.wishes.hold:
                self._update(reason=f"{answer.refusal.message}{before}")
            try:
                await workflow.wait_condition(
                    lambda: self._placed is not None or self._amended or workflow.info().is_continue_as_new_suggested(),
                    timeout=self._time_left(),
                    timeout_summary="scheduling timeout",
                )
            except builtins.TimeoutError:
                return None
            if self._placed is not None:
                return self._placed
            if not self._amended:
                self._count_hold()
                self._renew()  # the next run asks with the same key, and so keeps its place
            answer = await self._amend(request.key)
            before = ""
            if answer.refusal is not None and answer.refusal.code is RefusalCode.UNKNOWN:
                # The book was lost, and this gang is not in the new one yet.
                request = self._asked = request.model_copy(update={"band": self._band})
                answer = await exchange(self.gang.cluster, Ask(request=request))
                self._amended = self._amended or self.gang.wishes.hold is not None
        return answer.placement

    async def _amend(self, key: str) -> Answer:
        self._amended = False
        held = self.gang.wishes.hold is not None
        return await exchange(self.gang.cluster, Amend(key=key, band=self._band, held=held, said_at=workflow.now()))

    @property
    def _band(self) -> Band:
        return self.gang.wishes.band or self._spec.band

    def _time_left(self) -> timedelta | None:
        """The clock runs from submission to the first placement, but not while the job is held; after that a gang waits as long
        as it must."""
        if self._spec.scheduling_timeout is None or self._first.attempt > 0 or self.gang.wishes.hold:
            return None
        left = self.gang.submitted_at + self._spec.scheduling_timeout + self.gang.held_for - workflow.now()
        return max(timedelta(0), left)

    async def _run_on(self, placement: Placement, number: int) -> tuple[list[TaskOutcome], str]:
        """How every task ended, once all have, and why the hosts were taken away if that is what ended them."""
        for place, (task, seat) in enumerate(zip(self.gang.tasks, placement.seats, strict=True)):
            changes = {"state": move_task(task.state, TaskState.ASSIGNED), "host": seat.host_id, "attempt": number}
            blank = {"reason": "", "exit_code": None, "started_at": None, "finished_at": None}
            self.gang.tasks[place] = task.model_copy(update=changes | blank)
        self._members = {self.gang.member_key(task, number): place for place, task in enumerate(self.gang.tasks)}
        self._placed_at = workflow.now()
        self._asked, self._held_hosts = None, placement
        self._changed()
        telling = asyncio.create_task(self._keep_band(placement.key))
        attempt = OnHosts(self.gang, placement, number, lambda: self._evicted)
        outcomes = await attempt.outcomes()
        telling.cancel()
        return outcomes, attempt.evicted

    async def _keep_band(self, key: str) -> None:
        """Whom the gang may evict and who may evict it follows the user's wish while it runs, too."""
        while True:
            await workflow.wait_condition(lambda: self._amended)
            await self._amend(key)

    # What is known.

    def _record(self, verdict: retries.Verdict, account: Account) -> None:
        """Keep what became of the attempt; a wait that never found hosts was none."""
        if not self._first.host or verdict.outcome.state is TaskState.UNSCHEDULABLE:
            return
        tasks = self.gang.tasks
        record = AttemptRecord(
            number=self._first.attempt,
            hosts=tuple(task.host or "" for task in tasks),
            placed_at=self._placed_at,
            started_at=min((each.started_at for each in verdict.outcomes if each.started_at), default=None),
            ended_at=workflow.now(),
            account=account,
            reason=self.gang.tasks[verdict.culprit].reason,
            ends=member_ends([task.index for task in tasks], verdict.outcomes),
        )
        self.gang.attempts = list(kept([*self.gang.attempts, record]))

    def _killed(self, verdict: retries.Verdict | None = None) -> None:
        if self._first.state is TaskState.KILLED:
            return
        for place, task in enumerate(self.gang.tasks):
            changes = {
                "state": move_task(task.state, TaskState.KILLED),
                "reason": workflow.cancellation_reason() or "cancelled",
                "exit_code": verdict.outcomes[place].exit_code if verdict else None,
                "finished_at": workflow.now(),
            }
            self.gang.tasks[place] = task.model_copy(update=changes)
        self._changed()

    def _unschedulable(self, refusal: Refusal | None) -> list[TaskOutcome]:
        why = refusal.message if refusal else self._first.reason or "the scheduler gave no reason"
        waited = format_duration(self._spec.scheduling_timeout or timedelta())
        outcome = TaskOutcome(state=TaskState.UNSCHEDULABLE, reason=f"no host within the scheduling timeout of {waited}: {why}")
        return [outcome] * len(self.gang.tasks)

    def _update(self, **changes: object) -> None:
        """Change what all tasks have in common."""
        self.gang.tasks = [task.model_copy(update=changes) for task in self.gang.tasks]
        self._changed()


def _release(key: str, placement: Placement | None, outcomes: list[TaskOutcome] | None) -> Release:
    """Give the hosts back, and say which of them spoilt the attempt, and of which this life is over: another had begun before the
    attempt came, or it was ended because the host leaves. The host's slice says so, too, but perhaps only when the gang has been
    placed there again."""
    if placement is None or outcomes is None:
        return Release(key=key)
    spoilt: list[str] = []
    over: list[tuple[str, str]] = []
    for seat, outcome in zip(placement.seats, outcomes, strict=True):
        if outcome.refused or outcome.host_leaves:
            over.append((seat.host_id, seat.incarnation))
        elif outcome.fault not in BEYOND_THE_HOST and (outcome.fault or retries.account_of(outcome) is Account.UNDELIVERED):
            spoilt.append(seat.host_id)
    ran = any(outcome.started_at for outcome in outcomes)
    return Release(key=key, spoilt_by=tuple(spoilt), ran=ran, over=tuple(over))
