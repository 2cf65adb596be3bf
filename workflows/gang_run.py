"""Runs a gang from PENDING to its end, for a job that is one gang and for each independent task.

    wait for hosts  ->  run on them  ->  release them  ->  account for the outcome  ->  retry or end

Every path releases the hosts it holds, cancellation included.
"""

import asyncio
import builtins
from collections.abc import Callable
from datetime import datetime, timedelta

from temporalio import workflow

from iris.messages.scheduler import Amend, Answer, Ask, Reason, Release
from iris.messages.task import TaskProgress
from iris.model.attempts import Account, AttemptRecord, kept, member_ends
from iris.model.faults import BEYOND_THE_HOST
from iris.model.jobs import Band, JobSpec, TaskOutcome, TaskStatus
from iris.model.overrides import Overrides
from iris.model.requests import Placement, Request, request_for
from iris.model.states import TaskState, move_task
from iris.model.units import format_duration
from iris.scheduling import retries
from iris.scheduling.preemption import Eviction
from iris.scheduling.recovery import Claim
from iris.scheduling.refusals import Refusal, RefusalCode
from iris.workflows import policies
from iris.workflows.gang_attempt import Gang, GangAttempt
from iris.workflows.scheduler_call import exchange, uninterrupted


class _Forgotten(Exception):
    """Raised when the scheduler neither queues the request nor holds hosts for it, although the gang has asked."""


class GangRun:
    """Runs the attempts of a gang and keeps its state; `gang` is always current.

    Args:
        gang: the tasks that go together; the run changes it.
        changed: called after each change of a task's status.
        renew: called between attempts or during a wait once the history is long; continues as new, so it does not return.
    """

    def __init__(self, gang: Gang, changed: Callable[[], None], renew: Callable[[], None]) -> None:
        self.gang = gang
        self._changed = changed
        self._renew = renew
        self._placed: Placement | None = None
        #: What the gang has at the scheduler: an open request or hosts, and neither after the release.
        self._asked: Request | None = None
        self._held_hosts: Placement | None = None
        self._placed_at: datetime = workflow.now()
        #: The index in `gang.tasks` of each task of the current attempt, by the key that its host uses.
        self._members: dict[str, int] = {}
        #: The reason of the scheduler's eviction; empty while there is none.
        self._evicted = ""
        #: The user's overrides are newer than what the scheduler has.
        self._amended = False
        self._held_since = workflow.now() if gang.wishes.hold else None

    @property
    def _spec(self) -> JobSpec:
        return self.gang.spec

    @property
    def _first(self) -> TaskStatus:
        """The first task. The tasks of a gang differ only in their hosts and their outcomes."""
        return self.gang.tasks[0]

    @property
    def claim(self) -> Claim:
        """The gang's request or hosts, for a scheduler that recovers its ledger."""
        band = {"band": self._band}
        return Claim(
            request=self._asked.model_copy(update=band) if self._asked else None,
            held=self.gang.wishes.hold is not None,
            placement=self._held_hosts.model_copy(update=band) if self._held_hosts else None,
        )

    # Called by signal handlers: these methods only record, and the waiting coroutines continue.

    def placed(self, placement: Placement) -> None:
        """Records the hosts. A placement for another attempt is stale: that attempt has released its key."""
        if placement.key == self._first.key:
            self._placed = placement

    def evicted(self, eviction: Eviction) -> None:
        """Records that the scheduler takes the hosts away, for a gang of a higher band or for an operator."""
        if eviction.key == self._first.key:
            self._evicted = eviction.reason

    def waits(self, reason: Reason) -> None:
        """Shows the new reason why the gang waits."""
        if reason.key == self._first.key and self._first.state is TaskState.PENDING and not self.gang.wishes.hold:
            self._update(reason=reason.refusal.message)

    def progressed(self, progress: TaskProgress) -> None:
        """Records that the host prepares or runs the program."""
        order = (TaskState.ASSIGNED, TaskState.BUILDING, TaskState.RUNNING)
        place = self._members.get(progress.key)
        if place is None:
            return  # from an earlier attempt
        task = self.gang.tasks[place]
        if task.state in order and order.index(progress.state) > order.index(task.state):
            started = progress.at if progress.state is TaskState.RUNNING else task.started_at
            self.gang.tasks[place] = task.model_copy(
                update={"state": move_task(task.state, progress.state), "started_at": started}
            )
            self._changed()

    def wish(self, wishes: Overrides) -> None:
        """Applies the user's overrides: another band, a hold, or the end of a hold."""
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
        """Adds the time of the current hold until now to `held_for`."""
        if self._held_since is not None:
            self.gang.held_for += workflow.now() - self._held_since
            self._held_since = workflow.now()

    # Attempts.

    async def run(self) -> None:
        """Runs attempts until the gang has ended.

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
            if verdict is None:
                await workflow.sleep(policies.ASK_ANEW)
                continue
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
            # The siblings of the culprit were ended because of it, and retry with it.
            again = move_task(self.gang.tasks[verdict.culprit].state, TaskState.PENDING)
            self._update(state=again, reason=f"retry after: {verdict.outcome.reason}")
            if decision.delay:
                await workflow.sleep(decision.delay)
            if workflow.info().is_continue_as_new_suggested():
                self._count_hold()
                self._renew()

    async def _attempt(self) -> retries.Verdict | None:
        """Runs one attempt: waits for hosts, runs the programs, and releases the hosts in every case.

        Returns None if the scheduler has forgotten the attempt, as after a reset of the job's workflow. The attempt's key is used
        up then: the next attempt has the next number.
        """
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
        placement, outcomes, refusal = None, None, None
        cancelled = forgotten = False
        evicted = ""
        # No `finally`: it would also run when a worker drops the workflow from its cache, and would then issue commands.
        try:
            placement = await self._wait_for_hosts(request, again=again)
            if placement is not None:
                outcomes, evicted = await self._run_on(placement, number)
        except asyncio.CancelledError:
            cancelled = True
        except _Forgotten:
            forgotten = True
        try:
            refusal = (await uninterrupted(exchange(self.gang.cluster, _release(request.key, placement, outcomes)))).refusal
        except asyncio.CancelledError:
            # The hosts are released by now. Outcomes that are known are kept.
            cancelled = outcomes is None
        self._asked, self._held_hosts = None, None
        if cancelled:
            raise asyncio.CancelledError
        if forgotten:
            self._update(attempt=number)
            return None
        return retries.judge(outcomes, evicted) if outcomes else retries.judge(self._unschedulable(refusal))

    async def _wait_for_hosts(self, request: Request, *, again: bool) -> Placement | None:
        """Returns the hosts, or None after the scheduling timeout.

        If the placement and the timer meet, the one that this workflow sees first counts; the release that follows undoes the
        other.

        Raises:
            _Forgotten: the scheduler does not accept the request under this key.
        """
        if again:
            # Asking again changes nothing at the scheduler: an `Amend` afterwards sends the current overrides.
            self._amended = self._amended or self.gang.wishes.hold is not None
        else:
            if self.gang.wishes.hold:
                self._update(reason=str(self.gang.wishes.hold))
                await workflow.wait_condition(lambda: self.gang.wishes.hold is None)
                request = request.model_copy(update={"band": self._band})
            self._amended = False
        answer = await self._ask(request)
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
                self._renew()  # the next run asks with the same key, and so keeps its place in the queue
            answer = await self._amend(request.key)
            before = ""
            if _unknown(answer):
                # The ledger was lost, and the new one does not have this gang yet.
                request = request.model_copy(update={"band": self._band})
                answer = await self._ask(request)
                self._amended = self._amended or self.gang.wishes.hold is not None
        return answer.placement

    async def _ask(self, request: Request) -> Answer:
        self._asked = request
        answer = await exchange(self.gang.cluster, Ask(request=request))
        if _unknown(answer):
            raise _Forgotten
        return answer

    async def _amend(self, key: str) -> Answer:
        self._amended = False
        held = self.gang.wishes.hold is not None
        return await exchange(self.gang.cluster, Amend(key=key, band=self._band, held=held, said_at=workflow.now()))

    @property
    def _band(self) -> Band:
        return self.gang.wishes.band or self._spec.band

    def _time_left(self) -> timedelta | None:
        """Returns the rest of the scheduling timeout; None if the gang may wait without limit.

        The clock runs from submission to the first placement, but not while the job is held.
        """
        if self._spec.scheduling_timeout is None or self._first.host or self.gang.wishes.hold:
            return None
        left = self.gang.submitted_at + self._spec.scheduling_timeout + self.gang.held_for - workflow.now()
        return max(timedelta(0), left)

    async def _run_on(self, placement: Placement, number: int) -> tuple[list[TaskOutcome], str]:
        """Runs the programs. Returns every task's outcome once all have ended, and the reason of the eviction if that ended
        them."""
        for place, (task, seat) in enumerate(zip(self.gang.tasks, placement.seats, strict=True)):
            changes = {"state": move_task(task.state, TaskState.ASSIGNED), "host": seat.host_id, "attempt": number}
            blank = {"reason": "", "exit_code": None, "started_at": None, "finished_at": None}
            self.gang.tasks[place] = task.model_copy(update=changes | blank)
        self._members = {self.gang.member_key(task, number): place for place, task in enumerate(self.gang.tasks)}
        self._placed_at = workflow.now()
        self._asked, self._held_hosts = None, placement
        self._changed()
        telling = asyncio.create_task(self._keep_band(placement.key))
        attempt = GangAttempt(self.gang, placement, number, lambda: self._evicted)
        outcomes = await attempt.outcomes()
        telling.cancel()
        return outcomes, attempt.evicted

    async def _keep_band(self, key: str) -> None:
        """Sends the user's changes to the scheduler while the gang runs.

        The band decides which gangs it may evict and which gangs may evict it.
        """
        while True:
            await workflow.wait_condition(lambda: self._amended)
            await self._amend(key)

    # Records and changes of state.

    def _record(self, verdict: retries.Verdict, account: Account) -> None:
        """Keeps the record of an attempt. A wait that never found hosts is not an attempt."""
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
        """Changes fields that all tasks have in common."""
        self.gang.tasks = [task.model_copy(update=changes) for task in self.gang.tasks]
        self._changed()


def _unknown(answer: Answer) -> bool:
    return answer.refusal is not None and answer.refusal.code is RefusalCode.UNKNOWN


def _release(key: str, placement: Placement | None, outcomes: list[TaskOutcome] | None) -> Release:
    """Returns the message that releases the hosts of an attempt.

    It names the hosts that spoilt the attempt, and the incarnations that are over: another one had begun before the attempt came,
    or the attempt ended because the host leaves. The host's slice reports that too, but perhaps only after the gang was placed
    there again.
    """
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
