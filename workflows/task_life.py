"""One task from PENDING to its end: the story that a job of one task and every task of a larger job have in common.

    wait for a host  ->  run there  ->  give the host back  ->  account for the outcome  ->  again, or the end

Whoever holds a reservation gives it back on every path out of here, cancellation included.
"""

import asyncio
import builtins
from collections.abc import Callable
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutError, TimeoutType, is_cancelled_exception

from iris import names, retries
from iris.activities.tasks import Tasks
from iris.jobs import JobSpec, TaskOutcome, TaskStatus
from iris.placement import Placement, Refusal, Request
from iris.states import TaskState, move_task
from iris.units import format_duration
from iris.workflows import policies
from iris.workflows.exchange import exchange, uninterrupted
from iris.workflows.messages import Ask, Release, RunTask, TaskInput, TaskProgress


class TaskLife:
    """The story and what is known so far; `status` is always current.

    Args:
        task: which task, and what was asked of it.
        changed: called after each change of the status.
        renew: called between attempts once the history is long; continues as new, so it does not return.
    """

    def __init__(self, task: TaskInput, changed: Callable[[], None], renew: Callable[[], None]) -> None:
        self._task = task
        self._changed = changed
        self._renew = renew
        self._placed: Placement | None = None
        self.status = task.status or TaskStatus(index=task.index)

    @property
    def _spec(self) -> JobSpec:
        return self._task.spec

    # Handlers: they record, and the story goes on by itself.

    def placed(self, placement: Placement) -> None:
        """The scheduler found a host. A placement for another attempt is stale: that attempt has released its key."""
        if placement.key == self.status.key:
            self._placed = placement

    def progressed(self, progress: TaskProgress) -> None:
        """The host says that the program is being prepared or runs."""
        order = (TaskState.ASSIGNED, TaskState.BUILDING, TaskState.RUNNING)
        now = self.status.state
        if progress.key != self.status.key or now not in order or order.index(progress.state) <= order.index(now):
            return
        started = progress.at if progress.state is TaskState.RUNNING else self.status.started_at
        self._update(state=move_task(now, progress.state), started_at=started)

    # The story.

    async def run(self) -> TaskStatus:
        """Attempt after attempt until the task has ended.

        Raises:
            asyncio.CancelledError: the workflow was cancelled; the status is KILLED by then and nothing is held.
        """
        try:
            return await self._attempts()
        except asyncio.CancelledError:
            self._killed()
            raise

    async def _attempts(self) -> TaskStatus:
        while True:
            outcome = await self._attempt()
            if workflow.cancellation_reason() is not None and outcome.state is not TaskState.SUCCEEDED:
                self._killed(outcome)
                raise asyncio.CancelledError
            decision = retries.decide(self._spec, self.status, outcome)
            self._account(outcome, decision)
            if not decision.retry:
                return self.status
            self._update(state=move_task(self.status.state, TaskState.PENDING), reason=f"retry after: {outcome.reason}")
            if decision.delay:
                await workflow.sleep(decision.delay)
            if workflow.info().is_continue_as_new_suggested():
                self._renew()

    def _killed(self, outcome: TaskOutcome | None = None) -> None:
        if self.status.state is TaskState.KILLED:
            return
        self._update(
            state=move_task(self.status.state, TaskState.KILLED),
            reason=workflow.cancellation_reason() or "cancelled",
            exit_code=outcome.exit_code if outcome else None,
            finished_at=workflow.now(),
        )

    async def _attempt(self) -> TaskOutcome:
        """One try: a host, the program on it, and the host given back, whatever happens."""
        number = self.status.attempt + 1
        attempt = names.attempt_id(self._spec.id, self.status.index, number)
        request = Request(
            key=names.attempt_key(attempt, workflow.info().first_execution_run_id),
            owner=workflow.info().workflow_id,
            task=names.task_id(self._spec.id, self.status.index),
            resources=self._spec.resources,
            band=self._spec.band,
            submitted_at=self._task.submitted_at,
        )
        self._placed = None
        self._update(key=request.key)
        outcome, refusal, cancelled = None, None, False
        # No `finally`: that also runs when a worker drops a workflow from its memory, and would then say things to the server.
        try:
            placement = await self._wait_for_host(request)
            if placement is not None:
                outcome = await self._run_on(placement, number)
        except asyncio.CancelledError:
            cancelled = True
        try:
            refusal = (await uninterrupted(exchange(self._task.cluster, Release(key=request.key)))).refusal
        except asyncio.CancelledError:
            # The host has been given back by now. What the attempt came to is known, and is not thrown away.
            cancelled = outcome is None
        if cancelled:
            raise asyncio.CancelledError
        return outcome or self._unschedulable(refusal)

    async def _wait_for_host(self, request: Request) -> Placement | None:
        """The host, or None when the time for finding one is over.

        If the placement and the timer meet, whichever this workflow sees first counts; the release that follows undoes the other.
        """
        answer = await exchange(self._task.cluster, Ask(request=request))
        if answer.placement is not None:
            return answer.placement
        if answer.refusal is not None:
            before = f"; {self.status.reason}" if self.status.reason else ""
            self._update(reason=f"{answer.refusal.message}{before}")
        try:
            await workflow.wait_condition(
                lambda: self._placed is not None, timeout=self._time_left(), timeout_summary="scheduling timeout"
            )
        except builtins.TimeoutError:
            return None
        return self._placed

    def _time_left(self) -> timedelta | None:
        """The clock runs from submission to the first placement; after that a task waits as long as it must."""
        if self._spec.scheduling_timeout is None or self.status.attempt > 0:
            return None
        return max(timedelta(0), self._task.submitted_at + self._spec.scheduling_timeout - workflow.now())

    async def _run_on(self, placement: Placement, number: int) -> TaskOutcome:
        spec = self._spec
        self._update(
            state=move_task(self.status.state, TaskState.ASSIGNED),
            attempt=number,
            host=placement.host_id,
            reason="",
            exit_code=None,
            started_at=None,
            finished_at=None,
        )
        try:
            running = workflow.start_activity_method(
                Tasks.run_task,
                RunTask(
                    key=placement.key,
                    owner=workflow.info().workflow_id,
                    job=spec.id,
                    index=self.status.index,
                    attempt=number,
                    num_tasks=spec.replicas,
                    incarnation=placement.incarnation,
                    command=spec.command,
                    env=spec.env,
                    workdir=spec.workdir,
                    timeout=spec.timeout,
                    grace=spec.grace,
                    logs=names.attempt_logs(spec.id, self._task.run_id, self.status.index, number),
                ),
                task_queue=names.host_queue(self._task.cluster, placement.host_id),
                schedule_to_start_timeout=policies.SCHEDULE_TO_START,
                start_to_close_timeout=spec.timeout + spec.grace + policies.TIMEOUT_MARGIN
                if spec.timeout
                else policies.NO_TIMEOUT,
                heartbeat_timeout=policies.HEARTBEAT,
                retry_policy=policies.ONCE,
                # The host is free when the process is dead, not when its death was asked for.
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                summary=f"attempt {number} on {placement.host_id}",
            )
            return await _kept(running)
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise asyncio.CancelledError from error
            return self._outcome_of(error, placement)

    def _outcome_of(self, error: ActivityError, placement: Placement) -> TaskOutcome:
        """What an attempt came to whose host did not say so itself."""
        state, reason = TaskState.WORKER_FAILED, f"host {placement.host_id}: {error.cause or error}"
        if isinstance(error.cause, TimeoutError):
            if error.cause.type is TimeoutType.SCHEDULE_TO_START:
                waited = format_duration(policies.SCHEDULE_TO_START)
                return TaskOutcome(state=state, reason=f"host {placement.host_id} did not take the task within {waited}")
            if error.cause.type is TimeoutType.HEARTBEAT:
                reason = f"host {placement.host_id} was lost: nothing heard of the task for {format_duration(policies.HEARTBEAT)}"
            else:
                state, reason = (
                    TaskState.FAILED,
                    f"ran longer than its timeout of {format_duration(self._spec.timeout or timedelta())}",
                )
        elif isinstance(error.cause, ApplicationError):
            reason = f"host {placement.host_id}: {error.cause.message}"
        return TaskOutcome(state=state, reason=reason, started_at=self.status.started_at, finished_at=workflow.now())

    def _account(self, outcome: TaskOutcome, decision: retries.RetryDecision) -> None:
        paid = {
            retries.Account.FAILURES: {"failures": self.status.failures + 1, "undelivered": 0},
            retries.Account.PREEMPTIONS: {"preemptions": self.status.preemptions + 1, "undelivered": 0},
            retries.Account.UNDELIVERED: {"undelivered": self.status.undelivered + 1},
            retries.Account.NOBODY: {},
        }[decision.account]
        self._update(
            state=move_task(self.status.state, outcome.state),
            reason=decision.reason or outcome.reason,
            exit_code=outcome.exit_code,
            started_at=outcome.started_at or self.status.started_at,
            finished_at=outcome.finished_at or workflow.now(),
            **paid,
        )

    def _unschedulable(self, refusal: Refusal | None) -> TaskOutcome:
        why = refusal.message if refusal else self.status.reason or "the scheduler gave no reason"
        waited = format_duration(self._spec.scheduling_timeout or timedelta())
        return TaskOutcome(state=TaskState.UNSCHEDULABLE, reason=f"no host within the scheduling timeout of {waited}: {why}")

    def _update(self, **changes: object) -> None:
        self.status = self.status.model_copy(update=changes)
        self._changed()


async def _kept(running: workflow.ActivityHandle[TaskOutcome]) -> TaskOutcome:
    """The outcome, even if a cancellation comes with it: awaited as usual, the SDK would then drop what the host has reported."""
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        # Once all that has arrived with it is handled.
        await workflow.wait_condition(lambda: True)
        if not running.done():
            running.cancel()
        return await running
