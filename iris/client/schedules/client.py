"""Creates, shows, pauses, triggers and deletes schedules."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from temporalio.client import (
    Schedule,
    ScheduleActionExecutionStartWorkflow,
    ScheduleActionResult,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleDescription,
    ScheduleHandle,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleState,
    WorkflowExecutionStatus,
    WorkflowFailureError,
)
from temporalio.exceptions import ApplicationError, CancelledError, ChildWorkflowError
from temporalio.service import RPCError, RPCStatusCode

from iris.client.connect.identity import current_user, full_job_id
from iris.client.connect.rpc import Connection
from iris.client.schedules.when import Overlap, When, service_times
from iris.client.secrets.sealing import delete_secrets, sealing
from iris.messages.scheduled_job import LEFT_OUT, ScheduledJob
from iris.model import names, store_paths
from iris.model.checkpoint.sources import FIELD
from iris.model.errors import InvalidValue, NotFound, Rejected
from iris.model.job.demand_limits import check_demands
from iris.model.job.spec import JobSpec
from iris.model.states import JobState
from iris.workflows import web_ui
from iris.workflows.search_attributes import keywords

#: The maximum age of a missed start that a schedule makes up for, for instance after the service
#: was down. With Temporal's default of a year, a laptop that is opened after a holiday would start
#: a job at once.
CATCH_UP = timedelta(hours=1)
#: Temporal's overlap policy for each value of `Overlap`.
_POLICIES = {
    Overlap.SKIP: ScheduleOverlapPolicy.SKIP,
    Overlap.QUEUE: ScheduleOverlapPolicy.BUFFER_ONE,
    Overlap.CANCEL: ScheduleOverlapPolicy.CANCEL_OTHER,
}


@dataclass(frozen=True)
class ScheduledRun:
    """One start of a schedule's job, and its outcome.

    Args:
        state: the state of the run's job, which is `RUNNING` also while the job waits for hosts.
            `NOT_STARTED` if an earlier job of this name, which the schedule did not start, has not
            ended. `LEFT_OUT` if no job is started, because the same time comes again when the clock
            is set back. None if the service has forgotten the run.
        reason: why the run ended without success. Empty if it succeeded or has not ended.
    """

    scheduled_at: datetime
    started_at: datetime
    state: str | None
    reason: str = ""


@dataclass(frozen=True)
class ScheduleRow:
    """A schedule as a list shows it.

    Args:
        id: `USER/NAME`, the id of the job that the schedule starts.
        time_zone: the time zone of the cron expressions.
        next_times: the next times at which the schedule starts the job, at most five. Empty while
            the schedule is paused.
        last_at: the time at which the schedule last started the job; None if it has not yet.
    """

    id: str
    when: str
    time_zone: str
    command: str
    paused: bool
    note: str
    next_times: tuple[datetime, ...]
    last_at: datetime | None


@dataclass(frozen=True)
class ScheduleView:
    """A schedule and its last runs. The newest run comes first."""

    row: ScheduleRow
    overlap: Overlap
    spec: JobSpec
    runs: tuple[ScheduledRun, ...]
    skipped: int
    missed: int


class SchedulesClient:
    """Creates, lists, pauses, triggers and deletes the schedules of one cluster."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cluster = connection.record.name

    async def create(
        self, spec: JobSpec, when: When, *, overlap: Overlap = Overlap.SKIP, paused: bool = False
    ) -> ScheduleRow:
        """Creates a schedule that starts the job again and again. It has the name of the job.

        `AsyncIrisClient.schedule` also makes the job.

        Args:
            spec: the job, whose files are in the store.
            when: the times.
            overlap: what happens at a time at which the job of the time before has not ended.
            paused: starts no runs until `resume`.

        Raises:
            InvalidValue: the service does not understand the times, all of them are in the past, or
                the job demands too much.
            Rejected: there is a schedule of this name.
            Unreachable: the service does not answer.
        """
        check_demands(spec)
        if spec.after:
            remedy = "leave it out; a job in the schedule's job can submit further ones"
            raise InvalidValue(
                "after",
                spec.after[0].name,
                "names one run of a job, but a schedule starts many runs",
                remedy,
            )
        if spec.from_checkpoint is not None:
            problem = "can be looked up when a user submits a job, not when a schedule starts it"
            raise InvalidValue(FIELD, spec.from_checkpoint, problem, "leave it out")
        await self._connection.check_keys()
        async with sealing(
            self._connection.record, spec, store_paths.sealed_for_schedule
        ) as sealed:
            return await self._create(sealed, when, overlap, paused)

    async def _create(
        self, spec: JobSpec, when: When, overlap: Overlap, paused: bool
    ) -> ScheduleRow:
        schedule_id = names.schedule_id(self._cluster, spec.id)
        attributes = keywords(
            {
                names.SA_CLUSTER: self._cluster,
                names.SA_KIND: names.KIND_SCHEDULE,
                names.SA_USER: spec.user,
            }
        )
        summary, link = web_ui.summary(spec), self._connection.dashboard_link(spec.id)
        times = service_times(when, datetime.now(UTC))
        in_utc = when.interval is not None or times.time_zone_name == "UTC"
        schedule = Schedule(
            action=ScheduleActionStartWorkflow(
                names.WORKFLOW_TYPES[names.KIND_SCHEDULE],
                ScheduledJob(
                    cluster=self._cluster, spec=spec, time_zone="" if in_utc else when.time_zone
                ),
                id=schedule_id,
                task_queue=names.control_queue(self._cluster),
                typed_search_attributes=attributes,
                memo=None if link is None else {names.MEMO_DETAILS: link},
                static_summary=web_ui.escaped(summary),
                static_details=link,
            ),
            spec=times,
            policy=SchedulePolicy(overlap=_POLICIES[overlap], catchup_window=CATCH_UP),
            state=ScheduleState(
                paused=paused, note=f"created paused by {current_user()}" if paused else ""
            ),
        )
        memo = {
            names.MEMO_COMMAND: summary,
            names.MEMO_WHEN: str(when),
            names.MEMO_TIME_ZONE: when.time_zone,
        }
        with self._connection.rpc_errors(), _creation_errors(spec.id, when):
            handle = await self._connection.client.create_schedule(
                schedule_id, schedule, memo=memo, search_attributes=attributes
            )
            created = await handle.describe()
            if not created.info.next_action_times:
                await handle.delete()
                raise InvalidValue(
                    "cron",
                    "; ".join(when.expressions),
                    f"matches no time from now on, on the clock of {when.time_zone}",
                    "write a time that is still to come",
                )
        return await self._row(created)

    async def list(self) -> Sequence[ScheduleRow]:
        """Returns the cluster's schedules in the order of their ids.

        Raises:
            Unreachable: the service does not answer.
        """
        prefix = names.schedule_id(self._cluster, "")
        with self._connection.rpc_errors():
            found = [each.id async for each in await self._connection.client.list_schedules()]
            handles = [
                self._connection.client.get_schedule_handle(each)
                for each in found
                if each.startswith(prefix)
            ]
            described = await asyncio.gather(*(self._describe(handle) for handle in handles))
        return sorted(
            [await self._row(each) for each in described if each is not None],
            key=lambda row: row.id,
        )

    async def show(self, name: str) -> ScheduleView:
        """Returns a schedule with its last runs.

        Args:
            name: `NAME` or `USER/NAME`.

        Raises:
            NotFound: there is no such schedule.
            Rejected: the schedule is another user's.
            Unreachable: the service does not answer.
        """
        found = await self._found(name)
        action = found.schedule.action
        if not isinstance(action, ScheduleActionStartWorkflow):
            raise NotFound(f"{name} is not a schedule of Iris")
        if not action.args:  # on a cluster with identities
            raise Rejected(
                f"you may not read the job of schedule {names.job_of_workflow(found.id)}: only its"
                " owner and operators may"
            )
        (scheduled,) = await self._connection.client.data_converter.decode(
            action.args, [ScheduledJob]
        )
        runs = await asyncio.gather(
            *(self._run(each) for each in reversed(found.info.recent_actions))
        )
        overlap = next(
            mine for mine, policy in _POLICIES.items() if policy == found.schedule.policy.overlap
        )
        return ScheduleView(
            row=await self._row(found),
            overlap=overlap,
            spec=scheduled.spec,
            runs=tuple(runs),
            skipped=found.info.num_actions_skipped_overlap,
            missed=found.info.num_actions_missed_catchup_window,
        )

    async def pause(self, name: str, note: str = "") -> str:
        """Pauses the schedule, and returns its id. It starts no runs until `resume`. A run that has
        started continues.

        Args:
            name: `NAME` or `USER/NAME`.
            note: why, for the people who look at the schedule.

        Raises:
            NotFound: there is no such schedule.
            Unreachable: the service does not answer.
        """
        found = await self._found(name)
        with self._connection.rpc_errors():
            await self._handle(found.id).pause(note=note or f"paused by {current_user()}")
        return names.job_of_workflow(found.id)

    async def resume(self, name: str) -> str:
        """Ends a pause, and returns the schedule's id. Iris starts no runs for times that
        have passed.

        Args:
            name: `NAME` or `USER/NAME`.

        Raises:
            NotFound: there is no such schedule.
            Unreachable: the service does not answer.
        """
        found = await self._found(name)
        with self._connection.rpc_errors():
            await self._handle(found.id).unpause(note="")
        return names.job_of_workflow(found.id)

    async def trigger(self, name: str) -> str:
        """Starts a run now, even if the schedule is paused, and returns the job's id.

        Args:
            name: `NAME` or `USER/NAME`.

        Raises:
            NotFound: there is no such schedule.
            Rejected: the run before has not ended, and the schedule skips such times.
            Unreachable: the service does not answer.
        """
        found = await self._found(name)
        job = names.job_of_workflow(found.id)
        if (
            found.info.running_actions
            and found.schedule.policy.overlap is ScheduleOverlapPolicy.SKIP
        ):
            raise Rejected(
                f"the last run of {job} has not ended; wait for it with `iris wait {job}`, or `iris"
                f" cancel {job}`"
            )
        with self._connection.rpc_errors():
            await self._handle(found.id).trigger()
        return job

    async def delete(self, name: str) -> str:
        """Deletes a schedule and its secrets, and returns its id. A run that has started continues.

        Args:
            name: `NAME` or `USER/NAME`.

        Raises:
            NotFound: there is no such schedule.
            IrisError: the store does not answer, so the sealed secrets stay in it.
            Unreachable: the service does not answer.
        """
        found = await self._found(name)
        with self._connection.rpc_errors():
            await self._handle(found.id).delete()
        job = names.job_of_workflow(found.id)
        if not found.info.running_actions:  # otherwise the control plane deletes them later
            await delete_secrets(self._connection.record, store_paths.sealed_for_schedule(job, ""))
        return job

    def _handle(self, schedule_id: str) -> ScheduleHandle:
        return self._connection.client.get_schedule_handle(schedule_id)

    async def _describe(self, handle: ScheduleHandle) -> ScheduleDescription | None:
        try:
            return await handle.describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise

    async def _found(self, name: str) -> ScheduleDescription:
        job = full_job_id(name)
        with self._connection.rpc_errors():
            found = await self._describe(self._handle(names.schedule_id(self._cluster, job)))
        if found is None:
            raise NotFound(f"there is no schedule {job}; list all with `iris schedule list`")
        return found

    async def _row(self, found: ScheduleDescription) -> ScheduleRow:
        memo = await found.memo()
        state, info = found.schedule.state, found.info
        return ScheduleRow(
            id=names.job_of_workflow(found.id),
            when=str(memo.get(names.MEMO_WHEN, "")),
            time_zone=str(
                memo.get(names.MEMO_TIME_ZONE) or found.schedule.spec.time_zone_name or "UTC"
            ),
            command=str(memo.get(names.MEMO_COMMAND, "")),
            paused=state.paused,
            note=state.note or "",
            next_times=() if state.paused else tuple(info.next_action_times[:5]),
            last_at=max((each.started_at for each in info.recent_actions), default=None),
        )

    async def _run(self, result: ScheduleActionResult) -> ScheduledRun:
        run = ScheduledRun(result.scheduled_at, result.started_at, state=None)
        if not isinstance(result.action, ScheduleActionExecutionStartWorkflow):
            return run
        handle = self._connection.workflow(
            result.action.workflow_id, result.action.first_execution_run_id
        )
        with self._connection.rpc_errors():
            try:
                if (await handle.describe()).status is WorkflowExecutionStatus.RUNNING:
                    return replace(run, state=JobState.RUNNING.value)
                if await handle.result() == LEFT_OUT:
                    return replace(
                        run,
                        state=LEFT_OUT,
                        reason=(
                            "the clock is set back and shows this time twice; the job starts the"
                            " second time"
                        ),
                    )
            except WorkflowFailureError as error:
                state, reason = _end_of(error)
                return replace(run, state=state, reason=reason)
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    return run
                raise
        return replace(run, state=JobState.SUCCEEDED.value)


@contextmanager
def _creation_errors(job: str, when: When) -> Iterator[None]:
    """Converts the service's refusals of a new schedule to errors for the user."""
    try:
        yield
    except ScheduleAlreadyRunningError:
        raise Rejected(
            f"schedule {job} already exists; show it with `iris schedule show {job}`, delete it, or"
            " choose another name with -n"
        ) from None
    except RPCError as error:
        if error.status is not RPCStatusCode.INVALID_ARGUMENT:
            raise
        raise InvalidValue(
            "cron",
            "; ".join(when.expressions),
            f"is refused: {error.message}",
            'write five fields: minute hour day month weekday, such as "0 2 * * *" for two'
            " o'clock",
        ) from None


def _end_of(error: WorkflowFailureError) -> tuple[str, str]:
    """Returns the state and the reason of a run that did not succeed."""
    cause: BaseException | None = error.cause
    if isinstance(cause, ChildWorkflowError):
        cause = cause.cause
    if isinstance(cause, ApplicationError):
        return cause.type or JobState.FAILED.value, cause.message
    return JobState.KILLED.value, (
        "cancelled" if isinstance(cause, CancelledError) else str(cause or error)
    )
