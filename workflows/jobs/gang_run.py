"""Runs a gang from its submission to its end, for a job that is one gang and for each independent
task.

The state of a gang alone decides what its workflow does. `iris.scheduling.jobs.gang_lifecycle`
decides the states. This module has one method for each state, which waits, sends a request to the
scheduler, runs the programs, or releases the hosts. `_wait_for_hosts` has the timer after which a
job is UNSCHEDULABLE.
"""

import asyncio
import builtins
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime

from temporalio import workflow

from iris.messages.job_signals import JobMessage
from iris.messages.scheduler import Amend, Answer, Ask, Reason
from iris.messages.task import TaskProgress
from iris.model.job.cancelling import Cancelling
from iris.model.job.gangs import Gang, GangState
from iris.model.job.requests import Placement
from iris.model.job.spec import Overrides
from iris.model.states import TaskState
from iris.planners.messages_sent import ask_of, release_of
from iris.scheduling.jobs.gang_lifecycle import (
    LEDGER_FULL,
    MAX_LEDGER_FULL,
    SHOWN_DELAY,
    GangLifecycle,
)
from iris.scheduling.ledger.recovery import GangReport
from iris.scheduling.placement.preemption import Eviction
from iris.scheduling.placement.refusals import TURNED_AWAY, Refusal, RefusalCode
from iris.workflows import policies
from iris.workflows.jobs.gang_attempt import GangAttempt
from iris.workflows.scheduler_call import exchange, uninterrupted


class GangRun:
    """Runs the attempts of a gang. `gang` contains the current state of the gang.

    Args:
        gang: the input of the workflow. The next run of the workflow gets it in its current state.
        changed: called after each change of a task's status.
        carried: returns the gang together with everything else that the next run of the workflow
            needs.
    """

    def __init__(
        self,
        gang: Gang,
        changed: Callable[[], None],
        carried: Callable[[Gang], Gang] = lambda gang: gang,
    ) -> None:
        self._lifecycle = GangLifecycle(
            gang, held_since=workflow.now() if gang.overrides.hold else None
        )
        self._changed = changed
        self._carried = carried
        #: When `refusal`, the reason why the gang waits, last changed; None if it has not changed
        #: in this run of the workflow.
        self.refused_at: datetime | None = None
        #: The cancellations of single tasks. There are none, because a task of a gang is not
        #: cancelled alone.
        self.cancelling: Mapping[int, Cancelling] = {}
        self._attempt: GangAttempt | None = None

    @property
    def gang(self) -> Gang:
        return self._lifecycle.gang

    @property
    def refusal(self) -> Refusal | None:
        """The scheduler's reason why the gang waits; None if it does not wait."""
        return self._lifecycle.refusal

    @property
    def waits_for(self) -> str:
        """Why the gang waits, as lists show it; empty if it does not wait.

        For a refusal it is the code, because the message changes too often for lists. A gang that
        waits for its next attempt has no refusal: then it is the reason, which does not change.
        """
        if self.refusal is not None:
            return self.refusal.code
        now = self._lifecycle
        return (
            self.gang.first.reason
            if now.state is GangState.BACKOFF and now.delay >= SHOWN_DELAY
            else ""
        )

    @property
    def report(self) -> GangReport:
        """The gang's request or hosts, for a scheduler that recovers its ledger."""
        return self._lifecycle.report

    def ready(self) -> None:
        """Begins to count the time that the gang waits for hosts: its dependencies are met."""
        self._set(self._lifecycle.ready(workflow.now()))

    def receive(self, message: JobMessage) -> None:
        """Records a signal, for which `run` may wait. Messages about independent tasks are
        ignored.
        """
        now = self._lifecycle
        match message:
            case Placement():
                self._set(now.offered(message))
            case Eviction(key=key, reason=reason):
                if message.gone:
                    now = now.hosts_gone(key, message.gone, message.why_gone)
                self._set(now.evicted(key, reason) if reason else now)
            case Reason(key=key, refusal=refusal):
                self._set(now.explained(key, refusal))
            case TaskProgress(key=key, state=state, at=at, reason=reason):
                prepared, idle = message.prepared, message.idle
                self._set(now.progressed(key, state, at, reason, prepared=prepared, idle=idle))
            case Overrides():
                self._set(now.overridden(message, workflow.now()))

    async def starts(self, claim: str) -> bool:
        """Waits until all programs of an attempt may start. Returns False if the attempt ends
        before.

        Args:
            claim: the scheduler's key of the attempt's placement.
        """
        await workflow.wait_condition(lambda: self._attempt is not None)
        attempt = self._attempt
        assert attempt is not None
        if attempt.claim != claim:
            return False  # the question is about an earlier attempt
        await workflow.wait_condition(lambda: attempt.over or self._lifecycle.all_prepared)
        return not attempt.over

    async def run(self) -> None:
        """Runs attempts until the gang has ended.

        Raises:
            asyncio.CancelledError: the workflow was cancelled. The tasks are KILLED then, and the
                gang has neither a request nor hosts.
        """
        act: dict[GangState, Callable[[], Awaitable[None]]] = {
            GangState.BACKOFF: self._begin_attempt,
            GangState.HELD: self._wait_for_end_of_hold,
            GangState.WAITING: self._wait_for_hosts,
            GangState.RUNNING: self._run_programs,
            GangState.RELEASING: self._release,
        }
        # No `finally`: it would also run when a worker drops the workflow from its cache, and would
        # then issue commands.
        while self._lifecycle.state is not GangState.ENDED:
            try:
                await act[self._lifecycle.state]()
            except asyncio.CancelledError:
                self._set(
                    self._lifecycle.cancelled(workflow.cancellation_reason() or "", workflow.now())
                )
        if self.gang.first.state is TaskState.KILLED and workflow.cancellation_reason() is not None:
            raise asyncio.CancelledError

    # One method for each state. It ends with the event that ends the state.

    async def _begin_attempt(self) -> None:
        if self._lifecycle.delay:
            await workflow.sleep(self._lifecycle.delay)
            self._set(self._lifecycle.waited())
        if self._lifecycle.outcomes and workflow.info().is_continue_as_new_suggested():
            self._continue_as_new()
        self._set(self._lifecycle.begin(self._ask().request.key))

    async def _wait_for_end_of_hold(self) -> None:
        await workflow.wait_condition(lambda: self.gang.overrides.hold is None)
        self._set(self._lifecycle.unheld())

    async def _wait_for_hosts(self) -> None:
        answer = await self._send_request()
        before, pause = (
            "" if self._lifecycle.repeated else self.gang.first.reason,
            LEDGER_FULL,
        )
        while answer.placement is None:
            if _has_code(answer, RefusalCode.UNKNOWN):
                self._set(self._lifecycle.forget())
                return
            self._set(self._lifecycle.refused(answer.refusal, before))
            left = self._lifecycle.time_left(workflow.now())
            if left is not None:
                left = max(policies.MOMENT, left)
            if full := _has_code(answer, *TURNED_AWAY):
                self._set(self._lifecycle.turned_away())
                full = self.gang.overrides.hold is None and (left is None or pause < left)
            try:
                await workflow.wait_condition(
                    lambda: (
                        self._lifecycle.interrupted
                        or workflow.info().is_continue_as_new_suggested()
                    ),
                    timeout=pause if full else left,
                    timeout_summary="asks again" if full else "scheduling timeout",
                )
            except builtins.TimeoutError:
                if full:
                    answer, pause = (
                        await self._send_request(),
                        min(2 * pause, MAX_LEDGER_FULL),
                    )
                    continue
                self._set(self._lifecycle.timed_out())
                return
            if self._lifecycle.offer is not None:
                self._set(self._lifecycle.placed(self._lifecycle.offer, workflow.now()))
                return
            if not self._lifecycle.amended:
                # The next run sends the same request, and so keeps its place in the queue.
                self._continue_as_new()
            if self._lifecycle.request is None and self.gang.overrides.hold is not None:
                # The scheduler has no request to hold. It gets one when the user releases the gang.
                continue
            answer, before = await self._send_overrides(), ""
            if _has_code(answer, RefusalCode.UNKNOWN):
                # The ledger was lost, and the new one does not have this gang yet.
                answer = await self._send_request()
        self._set(self._lifecycle.placed(answer.placement, workflow.now()))

    async def _run_programs(self) -> None:
        sender = asyncio.create_task(self._keep_sending_overrides())
        attempt = self._attempt = GangAttempt(lambda: self._lifecycle)
        outcomes = await attempt.outcomes()
        sender.cancel()
        self._set(self._lifecycle.finished(outcomes, attempt.eviction))

    async def _release(self) -> None:
        release = release_of(self._lifecycle, cancelled=workflow.cancellation_reason() is not None)
        refusal = None
        # A cancellation arrives here only when the hosts are released already.
        with contextlib.suppress(asyncio.CancelledError):
            refusal = (await uninterrupted(exchange(self.gang.cluster, release))).refusal
        self._set(self._lifecycle.released(refusal, workflow.cancellation_reason(), workflow.now()))

    # Messages to the scheduler.

    @property
    def _key(self) -> str:
        assert self.gang.first.key is not None
        return self.gang.first.key

    def _ask(self) -> Ask:
        info = workflow.info()
        return ask_of(self.gang, info.first_execution_run_id, info.workflow_id)

    async def _send_request(self) -> Answer:
        ask = self._ask()
        self._set(self._lifecycle.requested(ask.request))
        # A timeout must not pass unnoticed meanwhile.
        patient = self._lifecycle.time_left(workflow.now()) is None
        return await exchange(self.gang.cluster, ask, patient=patient)

    async def _send_overrides(self) -> Answer:
        self._set(replace(self._lifecycle, amended=False))
        gang = self.gang
        held = gang.overrides.hold is not None
        return await exchange(
            gang.cluster, Amend(key=self._key, band=gang.band, held=held, changed_at=workflow.now())
        )

    async def _keep_sending_overrides(self) -> None:
        """Sends the user's changes while the gang runs: its band decides which gangs evict it."""
        while True:
            await workflow.wait_condition(lambda: self._lifecycle.amended)
            await self._send_overrides()

    def _continue_as_new(self) -> None:
        workflow.continue_as_new(self._carried(self._lifecycle.carried(workflow.now())))

    def _set(self, lifecycle: GangLifecycle) -> None:
        before, self._lifecycle = self._lifecycle, lifecycle
        if lifecycle.refusal is not before.refusal:
            self.refused_at = workflow.now()
        if lifecycle.gang.tasks is not before.gang.tasks:
            self._changed()


def _has_code(answer: Answer, *codes: RefusalCode) -> bool:
    return answer.refusal is not None and answer.refusal.code in codes
