"""Decides how a gang gets from its submission to its end. `iris.workflows.jobs.gang_run` acts on
these decisions and has one step for each state.

    BACKOFF ──▶ HELD ──▶ WAITING ──▶ RUNNING ──▶ RELEASING ──▶ ENDED
       ▲  └────────────────▲ └──────────────────────▲ │
       └──────────────────────────────────────────────┘

Every path from WAITING and RUNNING leads through RELEASING, so a gang that has ended has no request
and no hosts. The table is in `iris.model.job.gangs`. If a placement and the scheduling timeout
arrive at the same time, the first one that the workflow handles counts. The release after the
timeout also releases such a placement.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Self

from iris.model import names
from iris.model.host import idle_gpus
from iris.model.host.idle_gpus import IdleReport
from iris.model.job.attempts import Account, AttemptRecord, TaskOutcome, kept, member_ends
from iris.model.job.gangs import WAITS_FOR, Gang, GangEvent, GangState, move_gang
from iris.model.job.requests import Placement, Request
from iris.model.job.spec import Overrides
from iris.model.job.status import TaskStatus
from iris.model.states import TaskState, move_task
from iris.model.units import format_duration
from iris.scheduling.jobs import retries
from iris.scheduling.ledger.recovery import GangReport
from iris.scheduling.placement.phrases import counted
from iris.scheduling.placement.refusals import Refusal

#: The delay before a gang sends a request with a new key, if the scheduler did not accept the old
#: key.
NEW_KEY_DELAY = timedelta(seconds=1)
#: The pause before a gang sends its request again, when the scheduler's ledger is full. It doubles
#: each time, up to `MAX_LEDGER_FULL`.
LEDGER_FULL = timedelta(seconds=30)
MAX_LEDGER_FULL = timedelta(minutes=16)
#: If the delay before the next attempt is at least this long, the gang's status shows when that
#: attempt begins.
SHOWN_DELAY = timedelta(seconds=10)
#: The limit on hosts that the reason in a gang's status names.
NAMED_HOSTS = 2
_NOBODY: frozenset[int] = frozenset()
#: The states that a task on a host passes through, in order.
_PROGRESS = (TaskState.ASSIGNED, TaskState.BUILDING, TaskState.RUNNING)
#: The fields of `GangLifecycle` that are reset when an attempt begins.
_NOTHING_YET: dict[str, Any] = {
    "offer": None,
    "eviction": "",
    "gone": {},
    "outcomes": (),
    "forgotten": False,
    "refusal": None,
}


@dataclass(frozen=True)
class GangLifecycle:
    """A gang and the state of its current attempt. Each method that changes it stands for an event,
    and returns the lifecycle after the event.

    Raises:
        IllegalMove: the gang's state does not accept the event.
    """

    gang: Gang
    state: GangState = GangState.BACKOFF
    #: How long the gang stays in the state BACKOFF before its next attempt.
    delay: timedelta = timedelta(0)
    #: Why the gang makes another attempt after the state BACKOFF. The tasks' status shows this text
    #: in BACKOFF, followed by the time of that attempt if the delay is long. It is empty before the
    #: first attempt, and when the delay is over.
    retried_after: str = ""
    #: The start of the part of the current hold that `Gang.held_for` does not include yet; None if
    #: the gang is not on hold.
    held_since: datetime | None = None
    #: True if the user's latest overrides (priority band, hold) still have to be sent to the
    #: scheduler.
    amended: bool = False
    #: True if an earlier run of the gang's workflow has already sent the request to the scheduler.
    #: Then this run sends the request again with the same key, which changes nothing.
    repeated: bool = False
    #: The open request at the scheduler; None if there is none.
    request: Request | None = None
    #: The hosts of the attempt; None if the attempt has no hosts, or has released them.
    placement: Placement | None = None
    #: When the gang last took hosts; None before the first time.
    placed_at: datetime | None = None
    #: The hosts that the scheduler offers to the waiting gang, until the gang takes them; None if
    #: there is no offer.
    offer: Placement | None = None
    #: Why the scheduler evicts the gang; empty if it does not. If the programs end for another
    #: reason, it becomes empty again.
    eviction: str = ""
    #: The hosts of the attempt whose machines no longer exist, as (id, incarnation), each with the
    #: reason why its slice ended.
    gone: Mapping[tuple[str, str], str] = field(default_factory=dict)
    #: The tasks, by their indexes in the gang, whose programs are prepared: they wait for the
    #: programs of the gang's other tasks, or run already.
    prepared: frozenset[int] = frozenset()
    #: The reports of the tasks whose GPUs are idle now, by their indexes in the gang.
    idle: Mapping[int, IdleReport] = field(default_factory=dict)
    #: The outcomes of all tasks, once all have ended.
    outcomes: tuple[TaskOutcome, ...] = ()
    #: True if the scheduler does not accept the key of the request. Then the gang sends a new
    #: request with another key.
    forgotten: bool = False
    #: Why the gang waits; None if it does not wait, or the scheduler has not answered yet.
    refusal: Refusal | None = None

    def ready(self, now: datetime) -> Self:
        """Begins to count the time that the gang waits for hosts, because the last job that it
        depends on has ended.
        """
        held_since = now if self.gang.overrides.hold is not None else None
        return replace(self._with(ready_at=now, held_for=timedelta(0)), held_since=held_since)

    # Steps of the workflow.

    def waited(self) -> Self:
        """Ends the delay before an attempt, and no longer shows the time of its end."""
        first = self.gang.first
        shown = (
            bool(self.retried_after)
            and first.state is TaskState.PENDING
            and first.reason.startswith(self.retried_after)
        )
        gang = self.gang.with_tasks(reason=self.retried_after) if shown else self.gang
        return replace(self, gang=gang, delay=timedelta(0), retried_after="")

    def begin(self, key: str) -> Self:
        """Begins an attempt. A held gang sends its request after the hold, unless the scheduler has
        the request already.
        """
        now, hold, repeated = self.waited(), self.gang.overrides.hold, self.gang.first.key == key
        if hold is not None and not repeated:
            gang = now.gang.with_tasks(key=key, reason=str(hold))
            return now._move(GangEvent.HOLD, gang=gang, repeated=False, **_NOTHING_YET)
        gang, amended = now.gang.with_tasks(key=key), repeated and self.amended
        return now._move(
            GangEvent.BEGIN, gang=gang, repeated=repeated, amended=amended, **_NOTHING_YET
        )

    def unheld(self) -> Self:
        """Continues an attempt that began while the user held the gang."""
        return self._move(GangEvent.BEGIN, amended=False)

    def requested(self, request: Request) -> Self:
        """Records that the request is sent.

        The user's overrides are sent after the request: a request has no field for a hold, and a
        repeated request has no effect.
        """
        return self._move(
            GangEvent.ASK,
            request=request,
            amended=self.amended or self.gang.overrides.hold is not None,
        )

    def refused(self, refusal: Refusal | None, before: str = "") -> Self:
        """Shows why there are no hosts yet. A held gang shows its hold instead.

        Args:
            before: why the gang is retried; empty in the first attempt.
        """
        if refusal is None or self.gang.overrides.hold is not None:
            return self
        reason = f"{refusal.message}; {before}" if before else refusal.message
        return self._move(
            GangEvent.REFUSE, gang=self.gang.with_tasks(reason=reason), refusal=refusal
        )

    def turned_away(self) -> Self:
        """Records that the scheduler has not accepted the request. The workflow sends it again
        later, with the overrides of that time.
        """
        return replace(self, request=None, amended=False)

    def placed(self, placement: Placement, now: datetime) -> Self:
        """Takes the hosts for the next attempt."""
        blank = {"reason": "", "exit_code": None, "started_at": None, "finished_at": None}
        tasks = tuple(
            task.model_copy(
                update={
                    "state": move_task(task.state, TaskState.ASSIGNED),
                    "host": seat.host_id,
                    "attempt": self.gang.first.attempt + 1,
                    **blank,
                }
            )
            for task, seat in zip(self.gang.tasks, placement.seat_of_each_task, strict=True)
        )
        gang = self.gang.model_copy(update={"tasks": tasks})
        return self._move(
            GangEvent.PLACE,
            gang=gang,
            request=None,
            placement=placement,
            placed_at=now,
            refusal=None,
            prepared=_NOBODY,
            idle={},
        )

    def forget(self) -> Self:
        """Gives up the request's key, because the scheduler does not accept it. That happens after
        a reset of the gang's workflow.
        """
        return self._move(GangEvent.FORGET, forgotten=True)

    def timed_out(self) -> Self:
        return self._move(GangEvent.TIME_OUT)

    def finished(self, outcomes: list[TaskOutcome], eviction: str) -> Self:
        """Records the tasks' outcomes.

        Args:
            eviction: why the scheduler evicted the gang; empty if no eviction ended the tasks.
        """
        return self._move(GangEvent.FINISH, outcomes=tuple(outcomes), eviction=eviction)

    def cancelled(self, reason: str, now: datetime) -> Self:
        """Cancels the gang. A gang without request and hosts ends; any other gang releases them
        first.
        """
        ended = self._killed(reason, now) if self.state is GangState.BACKOFF else self
        return ended._move(GangEvent.CANCEL)

    def released(self, refusal: Refusal | None, cancelled: str | None, now: datetime) -> Self:
        """Decides whether there is another attempt, once the request or the hosts are released.

        Args:
            refusal: why the gang waited, if it still waited for hosts.
            cancelled: why the workflow is cancelled; None if it is not. An attempt that succeeded
                counts in spite of the cancellation.
        """
        empty = replace(self, request=None, placement=None)
        result = retries.judge(self.outcomes, self.eviction) if self.outcomes else None
        if cancelled is not None and (
            result is None or result.outcome.state is not TaskState.SUCCEEDED
        ):
            killed = empty._killed(cancelled, now)
            return (killed._recorded(result, Account.NONE, now) if result else killed)._move(
                GangEvent.END
            )
        if self.forgotten:
            # The key is used up: the next attempt has the next number.
            gang = self.gang.with_tasks(attempt=self.gang.first.attempt + 1)
            return empty._move(GangEvent.RETRY, gang=gang, delay=NEW_KEY_DELAY)
        result = result or retries.judge(self._unschedulable(refusal))
        decision = retries.decide(self.gang.spec, self.gang.first, result)
        after = empty._with(tasks=tuple(retries.after(self.gang.tasks, result, decision, now)))
        after = after._recorded(result, decision.account, now) if self.outcomes else after
        if not decision.retry:
            return after._move(GangEvent.END)
        # The siblings of the culprit were ended because of it, and retry with it.
        again = move_task(after.gang.tasks[result.culprit].state, TaskState.PENDING)
        why = f"retry after: {result.outcome.reason}"
        shown = (
            f"{why}; attempt {self.gang.first.attempt + 1} at {now + decision.delay:%H:%M:%S} UTC"
        )
        gang = after.gang.with_tasks(
            state=again, reason=shown if decision.delay >= SHOWN_DELAY else why
        )
        spoilt_by = retries.hosts_after(self.placement, self.outcomes).spoilt_by
        spoilt_by = spoilt_by or retries.unprepared(self.placement, self.outcomes)
        gang = gang.model_copy(update={"avoided": retries.avoided_after(gang.avoided, spoilt_by)})
        return after._move(GangEvent.RETRY, gang=gang, delay=decision.delay, retried_after=why)

    # Signals.

    def offered(self, placement: Placement) -> Self:
        """Records hosts that the scheduler offers. Hosts for an earlier attempt are ignored: that
        attempt has released its key.
        """
        return (
            self._move(GangEvent.OFFER, offer=placement)
            if placement.key == self.gang.first.key
            else self
        )

    def evicted(self, key: str, reason: str) -> Self:
        """Records that the scheduler evicts the gang, for a gang of a higher band or for an
        operator.
        """
        return self._move(GangEvent.EVICT, eviction=reason) if key == self.gang.first.key else self

    def hosts_gone(self, key: str, hosts: Iterable[tuple[str, str]], reason: str) -> Self:
        """Records that the machines of these hosts of the attempt no longer exist."""
        if key != self.gang.first.key:
            return self
        return self._move(GangEvent.LOSE, gone={**dict.fromkeys(hosts, reason), **self.gone})

    def explained(self, key: str, refusal: Refusal) -> Self:
        """Shows a new reason why the gang waits."""
        first = self.gang.first
        if (
            key != first.key
            or first.state is not TaskState.PENDING
            or self.gang.overrides.hold is not None
        ):
            return self
        return self._move(
            GangEvent.EXPLAIN, gang=self.gang.with_tasks(reason=refusal.message), refusal=refusal
        )

    def progressed(
        self,
        member_key: str,
        state: TaskState,
        at: datetime,
        reason: str = "",
        *,
        prepared: bool = False,
        idle: IdleReport | None = None,
    ) -> Self:
        """Records that a host prepares or runs a program. A late report, or a report of an earlier
        attempt, has no effect.

        Args:
            reason: the step of the preparation, or what the host waits for after the program's end.
            prepared: True if the program is prepared and waits for the programs of the gang's other
                tasks. Then the task's state stays.
            idle: the host's report that the task's GPUs are idle; None if they are not.
        """
        places = (
            place
            for place, task in enumerate(self.gang.tasks)
            if self.member_key(task) == member_key
        )
        place = next(places, None)
        if place is None or self.gang.tasks[place].state not in _PROGRESS:
            return self
        if prepared:
            after = self._move(GangEvent.PROGRESS, prepared=self.prepared | {place})
        else:
            after = self._moved_on(place, state, at, reason)
        if idle != self.idle.get(place):
            others = {each: known for each, known in self.idle.items() if each != place}
            reports = others if idle is None else {**others, place: idle}
            after = after._move(GangEvent.PROGRESS, idle=reports)
        return after._with_barrier()

    def _moved_on(self, place: int, state: TaskState, at: datetime, doing: str) -> Self:
        task = self.gang.tasks[place]
        if _PROGRESS.index(state) < _PROGRESS.index(task.state):
            return self
        building = state is TaskState.BUILDING
        reason = self._why_building(task, doing) if building else doing
        if state is task.state and (reason == task.reason or (building and place in self.prepared)):
            return self
        moved = state if state is task.state else move_task(task.state, state)
        started_at = at if state is TaskState.RUNNING else task.started_at
        status = task.model_copy(
            update={"state": moved, "started_at": started_at, "reason": reason}
        )
        return self._move(GangEvent.PROGRESS, gang=self.gang.with_task(place, status))

    def _why_building(self, task: TaskStatus, doing: str) -> str:
        """Returns the step of the preparation and, after failed set-ups, why it is repeated."""
        if not task.setups or not self.gang.attempts:
            return doing
        last = self.gang.attempts[-1]
        again = f"attempt {task.attempt}: {doing}" if doing else f"attempt {task.attempt}"
        return f"{again}; attempt {last.number}: {last.reason}"

    def _with_barrier(self) -> Self:
        """Shows in the reason of each prepared task for which hosts it waits; an empty reason once
        it waits for none.
        """
        waits, gang = self.waits_for_hosts, self.gang
        for place in sorted(self.prepared):
            task = gang.tasks[place]
            if task.state is TaskState.BUILDING and task.reason != waits:
                gang = gang.with_task(place, task.model_copy(update={"reason": waits}))
        return self if gang is self.gang else self._move(GangEvent.PROGRESS, gang=gang)

    def overridden(self, overrides: Overrides, now: datetime) -> Self:
        """Applies the user's overrides: another band, a hold, or the end of a hold."""
        before, hold, first = self.gang.overrides.hold, overrides.hold, self.gang.first
        gang = self.carried(now).model_copy(update={"overrides": overrides})
        if first.state is TaskState.PENDING and hold is not None:
            gang = gang.with_tasks(reason=str(hold))
        elif (
            first.state is TaskState.PENDING and before is not None and first.reason == str(before)
        ):
            gang = gang.with_tasks(reason="")
        return self._move(
            GangEvent.OVERRIDE, gang=gang, held_since=now if hold else None, amended=True
        )

    # Views.

    @property
    def all_prepared(self) -> bool:
        """Whether the programs of all tasks may start."""
        tasks = self.gang.tasks
        return len(self.prepared) == len(tasks) or any(
            task.state is TaskState.RUNNING for task in tasks
        )

    @property
    def idle_reason(self) -> str:
        """Why the attempt ends, because the GPUs of all its tasks are idle; otherwise empty."""
        rule = self.gang.spec.stop_idle
        if rule is None or rule.only_warns or len(self.idle) < len(self.gang.tasks):
            return ""
        return idle_gpus.idle_reason(rule, list(self.idle.values()))

    @property
    def waits_for_hosts(self) -> str:
        """The hosts for which prepared tasks wait, as a reason; empty if they wait for none."""
        if not self.prepared or self.all_prepared:
            return ""
        late = [task for place, task in enumerate(self.gang.tasks) if place not in self.prepared]
        hosts, slow = (
            len({task.host for task in self.gang.tasks}),
            list(dict.fromkeys(task.host or "" for task in late)),
        )
        named = ", ".join(slow[:NAMED_HOSTS]) + (
            f" and {len(slow) - NAMED_HOSTS} more" if len(slow) > NAMED_HOSTS else ""
        )
        return f"{WAITS_FOR} {len(slow)} of {counted(hosts, 'host')}: {named}"

    def carried(self, now: datetime) -> Gang:
        """Returns the gang for the workflow's next run. Its `held_for` includes the current
        hold.
        """
        held = now - self.held_since if self.held_since is not None else timedelta(0)
        return self.gang.model_copy(update={"held_for": self.gang.held_for + held})

    def time_left(self, now: datetime) -> timedelta | None:
        """Returns the rest of the scheduling timeout; None if the gang may wait without limit.

        The clock runs from submission to the first placement, but not while the gang is held,
        depends on other jobs, or waits for its place within the limit of an array.
        """
        gang = self.gang
        if gang.spec.scheduling_timeout is None or gang.first.host or gang.overrides.hold:
            return None
        return max(
            timedelta(0), gang.could_ask_at + gang.spec.scheduling_timeout + gang.held_for - now
        )

    @property
    def interrupted(self) -> bool:
        """Whether the workflow of a gang that waits must act: on an offer, or on new overrides."""
        return self.offer is not None or self.amended

    def member_key(self, task: TaskStatus) -> str:
        """Returns the key by which a task's host identifies the current attempt. It contains the
        same run as the gang's key.
        """
        run = (self.gang.first.key or "").rpartition("/")[2]
        return names.attempt_key(names.attempt_id(self.gang.spec.id, task.index, task.attempt), run)

    @property
    def report(self) -> GangReport:
        """The gang's request or hosts, for a scheduler that recovers its ledger."""
        band = {"band": self.gang.band}
        return GangReport(
            request=self.request.model_copy(update=band) if self.request else None,
            held=self.gang.overrides.hold is not None,
            placement=self.placement.model_copy(update=band) if self.placement else None,
        )

    def _move(self, event: GangEvent, **changes: Any) -> Self:
        """Returns the lifecycle in its next state, with these changes; unchanged if the event is
        ignored.
        """
        after = move_gang(self.state, event)
        return self if after is None else replace(self, state=after, **changes)

    def _with(self, **changes: object) -> Self:
        return replace(self, gang=self.gang.model_copy(update=changes))

    def _killed(self, reason: str, now: datetime) -> Self:
        codes = [outcome.exit_code for outcome in self.outcomes] or [None] * len(self.gang.tasks)
        tasks = tuple(
            task.model_copy(
                update={
                    "state": move_task(task.state, TaskState.KILLED),
                    "reason": reason or "cancelled",
                    "exit_code": code,
                    "finished_at": now,
                }
            )
            for task, code in zip(self.gang.tasks, codes, strict=True)
        )
        return self._with(tasks=tasks)

    def _unschedulable(self, refusal: Refusal | None) -> list[TaskOutcome]:
        why = (
            refusal.message if refusal else self.gang.first.reason or "the scheduler gave no reason"
        )
        waited = format_duration(self.gang.spec.scheduling_timeout or timedelta())
        outcome = TaskOutcome(
            state=TaskState.UNSCHEDULABLE,
            reason=f"no host within the scheduling timeout of {waited}: {why}",
        )
        return [outcome] * len(self.gang.tasks)

    def _recorded(self, result: retries.AttemptResult, account: Account, now: datetime) -> Self:
        """Adds the record of an attempt that had hosts."""
        tasks = self.gang.tasks
        record = AttemptRecord(
            number=self.gang.first.attempt,
            hosts=tuple(task.host or "" for task in tasks),
            placed_at=self.placed_at or now,
            started_at=min(
                (each.started_at for each in result.outcomes if each.started_at), default=None
            ),
            ended_at=now,
            account=account,
            reason=tasks[result.culprit].reason,
            ends=member_ends([task.index for task in tasks], result.outcomes),
        )
        return self._with(attempts=kept([*self.gang.attempts, record]))
