"""Runs one attempt of a gang on its hosts: one activity per task, until every task has ended."""

import asyncio
import builtins
import contextlib
from collections.abc import Callable
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    TimeoutError,
    TimeoutType,
    is_cancelled_exception,
)

from iris.activities.host.attempt.activity import HOST_LEAVES, HOST_REFUSED, TaskActivity
from iris.messages.task import Rank, RunTask
from iris.model import names, store_paths
from iris.model.host.faults import GANG_TIMEOUT
from iris.model.job.attempts import TaskOutcome
from iris.model.job.gangs import Gang
from iris.model.job.status import TaskStatus
from iris.model.states import TaskState
from iris.model.units import MIB, format_duration
from iris.scheduling.jobs.gang_lifecycle import GangLifecycle
from iris.workflows import policies

#: The maximum number of bytes of activity inputs that one workflow task starts. Each input carries
#: the command and its environment, and all inputs go in one request, which Temporal limits to 4
#: MiB.
START_BYTES = 2 * MIB
#: The pause after activities with `START_BYTES` of inputs were started, so that another workflow
#: task starts the next activities.
START_PAUSE = timedelta(milliseconds=1)
_NOT_STARTED = TaskOutcome(state=TaskState.KILLED, reason="cancelled")


class GangAttempt:
    """One attempt of a gang. The first task that does not succeed ends the others: a gang runs
    together or not at all.

    The programs start together, when every host has prepared its program. Each host reports when
    its program is prepared (`GangLifecycle.progressed`), and asks whether it may start the program
    (`GangRun.starts`).

    Args:
        current: returns the current lifecycle of the gang, which already has its hosts.
    """

    def __init__(self, current: Callable[[], GangLifecycle]) -> None:
        placement = current().placement
        assert placement is not None
        self._current = current
        self._placement = placement
        self._seats = placement.seat_of_each_task
        self._ends: list[asyncio.Task[TaskOutcome]] = []
        #: Why the scheduler took the hosts away, if an eviction ended the attempt; otherwise empty.
        self.eviction = ""
        #: Why the attempt ends, if the GPUs of all its tasks are idle; otherwise empty.
        self._idle = ""
        #: True if the attempt is ending. No program of the attempt starts any more.
        self.over = False
        #: The positions in the gang of the tasks whose hosts were not ready in time, although hosts
        #: of other tasks were.
        self._late: frozenset[int] = frozenset()

    @property
    def claim(self) -> str:
        """The scheduler's key of the attempt's placement."""
        return self._placement.key

    @property
    def _gang(self) -> Gang:
        return self._current().gang

    async def outcomes(self) -> list[TaskOutcome]:
        """Runs all tasks until they have ended, and returns their outcomes. A cancellation of the
        workflow ends all tasks.
        """
        at_once = max(1, START_BYTES // len(self._gang.spec.model_dump_json()))
        running: list[workflow.ActivityHandle[TaskOutcome]] = []
        try:
            for place in range(len(self._seats)):
                if place and place % at_once == 0:
                    await workflow.sleep(START_PAUSE)
                running.append(self._start(place))
                self._ends.append(asyncio.create_task(self._end_of(running[place], place)))
            await self._until_decided()
        except asyncio.CancelledError:
            # Handle the messages that arrived together with the cancellation first: they count.
            await workflow.wait_condition(lambda: True)
        self.over = True
        for handle in running:
            if not handle.done():
                handle.cancel()
        ends = asyncio.gather(*self._ends)
        # The tasks are already ending, and their outcomes count.
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(ends)
        ended = [self._explained(place, end) for place, end in enumerate(await ends)]
        return [*ended, *[_NOT_STARTED] * (len(self._seats) - len(ended))]

    async def _until_decided(self) -> None:
        """Waits until the end of the attempt is decided: by the end of a task, by an eviction,
        because all GPUs are idle, or because a host is not ready in time.

        A host is late if it is not ready within the limit of a set-up after the first host is
        ready. Its own set-up has taken at least that long then.
        """
        if len(self._seats) > 1:
            await workflow.wait_condition(lambda: bool(self._current().prepared) or self._decided())
            limit = self._gang.spec.environment.setup_timeout
            try:
                if not self._starts_or_ends():
                    await workflow.wait_condition(
                        self._starts_or_ends, timeout=limit, timeout_summary="the slowest host"
                    )
            except builtins.TimeoutError:
                self._late = frozenset(range(len(self._seats))) - self._current().prepared
                return
        await workflow.wait_condition(self._decided)

    def _starts_or_ends(self) -> bool:
        return self._current().all_prepared or self._decided()

    def _decided(self) -> bool:
        ended = [end.result() for end in self._ends if end.done()]
        unsuccessful = any(outcome.state is not TaskState.SUCCEEDED for outcome in ended)
        if unsuccessful or len(ended) == len(self._ends):
            return True
        self.eviction = self._current().eviction
        self._idle = "" if self.eviction else self._current().idle_reason
        return bool(self.eviction or self._idle)

    def _start(self, place: int) -> workflow.ActivityHandle[TaskOutcome]:
        gang, spec = self._gang, self._gang.spec
        task, seat = gang.tasks[place], self._seats[place]
        ended_by = (
            spec.timeout + spec.grace + policies.TIMEOUT_MARGIN
            if spec.timeout
            else policies.NO_TIMEOUT
        )
        return workflow.start_activity_method(
            TaskActivity.run_task,
            RunTask(
                key=self._current().member_key(task),
                placement_key=self._placement.key,
                owner=workflow.info().workflow_id,
                job=spec.id,
                index=task.index,
                attempt=task.attempt,
                num_tasks=spec.num_tasks,
                array=spec.array,
                incarnation=seat.incarnation,
                command=spec.command,
                env=spec.env,
                secrets=spec.secrets,
                workdir=spec.workdir,
                timeout=spec.timeout,
                grace=spec.grace,
                stop_idle=spec.stop_idle,
                logs=store_paths.attempt_logs(spec.id, gang.run_id, task.index, task.attempt),
                rank=self._rank(place),
                contact=self._placement.contact,
                resources=spec.resources,
                bundle=spec.bundle,
                call=spec.call,
                environment=spec.environment,
                image=spec.image,
                ports=spec.ports,
                outputs=store_paths.attempt_outputs(spec.id, gang.run_id, task.index, task.attempt),
                checkpoints=store_paths.task_checkpoints(spec.id, gang.run_id, task.index),
                from_checkpoint=(
                    spec.from_checkpoint.saves_of(task.index)
                    if spec.from_checkpoint is not None
                    else ""
                ),
            ),
            task_queue=names.host_queue(gang.cluster, seat.host_id),
            schedule_to_start_timeout=policies.SCHEDULE_TO_START,
            start_to_close_timeout=ended_by,
            heartbeat_timeout=self._placement.contact.heartbeat_timeout,
            retry_policy=policies.ONCE,
            # The host is free when the process is dead, not already when its end is requested.
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=f"attempt {task.attempt} on {seat.host_id}",
        )

    def _rank(self, place: int) -> Rank | None:
        together = self._gang.spec.coscheduling
        if together is None:
            return None
        seats = self._seats
        return Rank(
            coordinator=self._placement.coordinator,
            num_slices=together.groups,
            slice_index=seats[place].group,
            tasks_per_slice=len(seats) // together.groups,
        )

    def _explained(self, place: int, end: TaskOutcome) -> TaskOutcome:
        """Returns the outcome of a task. If the attempt ended it, the outcome says why."""
        if end.state is not TaskState.KILLED:
            return end
        if self._idle:  # a failure of the program's own, as after a timeout
            return end.model_copy(update={"state": TaskState.FAILED, "reason": self._idle})
        return self._late_end(place) if place in self._late else end

    def _late_end(self, place: int) -> TaskOutcome:
        """Returns the outcome of a task whose host was not ready in time."""
        task, limit = (
            self._gang.tasks[place],
            format_duration(self._gang.spec.environment.setup_timeout),
        )
        reason = (
            f"set-up failed: host {task.host} was not ready {limit} after the first one of its gang"
            " (--setup-timeout)"
        )
        reason = f"{reason}: {task.reason}" if task.reason else reason
        return TaskOutcome(
            state=TaskState.WORKER_FAILED,
            reason=reason,
            fault=GANG_TIMEOUT,
            finished_at=workflow.now(),
        )

    def _host_of(self, place: int) -> tuple[str, str]:
        """Returns the (host, incarnation) of a task."""
        return self._seats[place].host_id, self._seats[place].incarnation

    def _is_gone(self, place: int) -> bool:
        return self._host_of(place) in self._current().gone

    def _gone_end(self, place: int) -> TaskOutcome:
        """Returns the outcome of a task whose machine no longer exists."""
        task, why = self._gang.tasks[place], self._current().gone[self._host_of(place)]
        return TaskOutcome(
            state=TaskState.WORKER_FAILED,
            reason=(
                f"host {task.host} was lost: the platform confirms that its machine is gone: {why}"
            ),
            started_at=task.started_at,
            finished_at=workflow.now(),
            host_leaves=True,
        )

    async def _end_of(
        self, running: workflow.ActivityHandle[TaskOutcome], place: int
    ) -> TaskOutcome:
        """Returns the outcome of a task. It is known when its host reports it, or when the platform
        confirms that the machine is gone: then no report comes any more.
        """
        await workflow.wait_condition(lambda: running.done() or self._is_gone(place))
        if not running.done():
            # The SDK handles the signals of a workflow task before the results of its activities.
            with contextlib.suppress(builtins.TimeoutError):
                await workflow.wait_condition(running.done, timeout=policies.MOMENT)
        if not running.done():
            # The attempt does not wait for the activity, which ends with its heartbeat timeout.
            running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            return self._gone_end(place)
        try:
            return await running
        except ActivityError as error:
            if is_cancelled_exception(error):
                return TaskOutcome(state=TaskState.KILLED, reason="cancelled")
            return self._outcome_of(error, self._gang.tasks[place])

    def _outcome_of(self, error: ActivityError, task: TaskStatus) -> TaskOutcome:
        """Returns the outcome of a task whose host did not report one."""
        host = f"host {task.host}"
        state, reason, kind = TaskState.WORKER_FAILED, f"{host}: {error.cause or error}", None
        if isinstance(error.cause, TimeoutError):
            if error.cause.type is TimeoutType.SCHEDULE_TO_START:
                waited = format_duration(policies.SCHEDULE_TO_START)
                return TaskOutcome(
                    state=state, reason=f"{host} did not start the task within {waited}"
                )
            if error.cause.type is TimeoutType.HEARTBEAT:
                reason = (
                    f"{host} was lost: no heartbeat of the task for"
                    f" {format_duration(self._placement.contact.heartbeat_timeout)}"
                )
            else:
                limit = format_duration(self._gang.spec.timeout or timedelta())
                state, reason = TaskState.FAILED, f"ran longer than its timeout of {limit}"
        elif isinstance(error.cause, ApplicationError):
            reason, kind = f"{host}: {error.cause.message}", error.cause.type
        return TaskOutcome(
            state=state,
            reason=reason,
            started_at=task.started_at,
            finished_at=workflow.now(),
            refused=kind in (HOST_REFUSED, HOST_LEAVES),
            host_leaves=kind == HOST_LEAVES,
        )
