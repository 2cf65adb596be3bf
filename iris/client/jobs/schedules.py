"""Client operations on schedules: Temporal schedules that start a job again and again."""

import asyncio
import zoneinfo
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from temporalio.client import (
    Schedule,
    ScheduleActionExecutionStartWorkflow,
    ScheduleActionResult,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleCalendarSpec,
    ScheduleDescription,
    ScheduleHandle,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleRange,
    ScheduleSpec,
    ScheduleState,
    WorkflowExecutionStatus,
    WorkflowFailureError,
)
from temporalio.exceptions import ApplicationError, CancelledError, ChildWorkflowError
from temporalio.service import RPCError, RPCStatusCode

from iris.client.build.options import Duration, duration_of
from iris.client.connect.identity import current_user, full_job_id
from iris.client.connect.rpc import Connection
from iris.messages.scheduled_job import LEFT_OUT, ScheduledJob
from iris.model import names
from iris.model.cron import Excluded, excluded, is_in_whole_hours, parse_cron, zone_of
from iris.model.errors import InvalidValue, NotFound, Rejected
from iris.model.job.checkpoints import FIELD
from iris.model.job.demand_limits import check_demands
from iris.model.job.spec import JobSpec
from iris.model.states import JobState
from iris.model.units import format_duration
from iris.workflows import web_ui
from iris.workflows.search_attributes import keywords

#: Times that were missed no longer ago, such as while the service was away, are made up for.
#: Temporal's default is a year: a laptop that comes back from a holiday would start a job at once.
CATCH_UP = timedelta(hours=1)
#: The shortest time between two runs. A job takes seconds to start; a program that has to run more
#: often loops itself.
SHORTEST = timedelta(seconds=10)


class Overlap(StrEnum):
    """What happens at a time at which the job of the time before has not ended."""

    SKIP = "skip"  # that time is left out
    QUEUE = "queue"  # one run waits for its end; further times are left out
    CANCEL = "cancel"  # it is cancelled; the new one starts at its end


def parse_overlap(name: str) -> Overlap:
    """Returns the overlap of this name.

    Raises:
        InvalidValue: there is none.
    """
    if name not in list(Overlap):
        raise InvalidValue("overlap", name, "is not known", f"write {', '.join(Overlap)}")
    return Overlap(name)


_POLICIES = {
    Overlap.SKIP: ScheduleOverlapPolicy.SKIP,
    Overlap.QUEUE: ScheduleOverlapPolicy.BUFFER_ONE,
    Overlap.CANCEL: ScheduleOverlapPolicy.CANCEL_OTHER,
}


@dataclass(frozen=True)
class When:
    """The times of a schedule: those of cron expressions in a time zone, or one in each interval.

    Where the zone's clock is set forward, a time that it skips has no run; where it is set back, a
    time that comes twice has one.

    Raises:
        InvalidValue: neither or both are given, the interval is too short, the time zone is
            unknown, or an expression never comes.
    """

    #: One expression or several: minute, hour, day, month, weekday.
    cron: str | Sequence[str] = ()
    #: In seconds if it is a number.
    every: Duration | None = None
    time_zone: str = "UTC"

    def __post_init__(self) -> None:
        if bool(self.cron) == (self.interval is not None):
            given = ", ".join(self.expressions) or None
            raise InvalidValue(
                "cron",
                given,
                "or every must be given, and not both",
                'write cron "0 2 * * *", or every "6h"',
            )
        if self.interval is not None and self.interval < SHORTEST:
            raise InvalidValue(
                "every",
                format_duration(self.interval),
                "is too short",
                f"write {format_duration(SHORTEST)} or more",
            )
        known = zoneinfo.available_timezones()
        if known and self.time_zone not in known:
            raise InvalidValue(
                "time-zone",
                self.time_zone,
                "is not a time zone",
                "write UTC, or a name such as Europe/Berlin",
            )
        for expression in self.expressions:
            if (parsed := parse_cron(expression)) is not None and not parsed.is_possible:
                problem = "never comes: no year has such a day"
                raise InvalidValue(
                    "cron",
                    expression,
                    problem,
                    'write a day that its months have, such as "0 2 28 2 *"',
                )

    @property
    def expressions(self) -> tuple[str, ...]:
        return (self.cron,) if isinstance(self.cron, str) and self.cron else tuple(self.cron)

    @property
    def interval(self) -> timedelta | None:
        return duration_of(self.every, "every")

    def __str__(self) -> str:
        if self.interval is not None:
            return f"every {format_duration(self.interval)}"
        return f"{'; '.join(self.expressions)} {self.time_zone}"


@dataclass(frozen=True)
class ScheduledRun:
    """One run of a schedule.

    Args:
        state: that of its job, "RUNNING" also while that waits; `NOT_STARTED`; or `LEFT_OUT`, where
            the clock is set back and shows the time again; None: the service has forgotten it.
        reason: why it ended so; empty if it succeeded.
    """

    scheduled_at: datetime
    started_at: datetime
    state: str | None
    reason: str = ""


@dataclass(frozen=True)
class ScheduleRow:
    """A schedule, in lists.

    Args:
        id: `USER/NAME`, the id of the job that it starts.
        time_zone: that of its cron expressions.
        next_times: the next ones, at most five; none while it is paused.
        last_at: when it last started the job.
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
    """A schedule, and its last runs, the newest first."""

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
            InvalidValue: the service does not understand the times, none of them is still to come,
                or the job demands too much.
            Rejected: there is a schedule of this name.
            Unreachable: the service does not answer.
        """
        check_demands(spec)
        if spec.after:
            remedy = "leave it out; a job in the schedule's job can submit further ones"
            raise InvalidValue(
                "after",
                spec.after[0].name,
                "is one run of a job, and a schedule starts many",
                remedy,
            )
        if spec.from_checkpoint is not None:
            problem = "is looked up when a job is submitted, which the jobs of a schedule are not"
            raise InvalidValue(FIELD, spec.from_checkpoint, problem, "leave it out")
        await self._connection.check_keys()
        from iris.client.secrets.sealing import sealing  # most operations seal nothing

        async with sealing(self._connection.record, spec, names.sealed_for_schedule) as sealed:
            return await self._create(sealed, when, overlap, paused)

    async def _create(
        self, spec: JobSpec, when: When, overlap: Overlap, paused: bool
    ) -> ScheduleRow:
        schedule_id = names.schedule_id(self._cluster, spec.id)
        summary = web_ui.summary(spec)
        attributes = {
            names.SA_CLUSTER: self._cluster,
            names.SA_KIND: names.KIND_SCHEDULE,
            names.SA_USER: spec.user,
        }
        times = _times_of(when, datetime.now(UTC))
        zone = "" if when.interval is not None or times.time_zone_name == "UTC" else when.time_zone
        schedule = Schedule(
            action=ScheduleActionStartWorkflow(
                names.WORKFLOW_TYPES[names.KIND_SCHEDULE],
                ScheduledJob(cluster=self._cluster, spec=spec, time_zone=zone),
                id=schedule_id,
                task_queue=names.control_queue(self._cluster),
                typed_search_attributes=keywords(attributes),
                static_summary=web_ui.escaped(summary),
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
        with self._connection.rpc_errors():
            try:
                handle = await self._connection.client.create_schedule(
                    schedule_id, schedule, memo=memo, search_attributes=keywords(attributes)
                )
            except ScheduleAlreadyRunningError:
                remedy = (
                    f"show it with `iris schedule show {spec.id}`, delete it, or choose another"
                    " name with -n"
                )
                raise Rejected(f"schedule {spec.id} already exists; {remedy}") from None
            except RPCError as error:
                if error.status is not RPCStatusCode.INVALID_ARGUMENT:
                    raise
                remedy = (
                    'write five fields: minute hour day month weekday, such as "0 2 * * *" for two'
                    " o'clock"
                )
                raise InvalidValue(
                    "cron", "; ".join(when.expressions), f"is refused: {error.message}", remedy
                ) from None
            created = await handle.describe()
            if not created.info.next_action_times:
                await handle.delete()
                problem = f"does not come from now on, on the clock of {when.time_zone}"
                raise InvalidValue(
                    "cron",
                    "; ".join(when.expressions),
                    problem,
                    "write a time that is still to come",
                )
        return await self._row(created)

    async def list(self) -> Sequence[ScheduleRow]:
        """Returns the cluster's schedules by their ids.

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
            Unreachable: the service does not answer.
        """
        found = await self._found(name)
        action = found.schedule.action
        if not isinstance(action, ScheduleActionStartWorkflow):
            raise NotFound(f"{name} is not a schedule of Iris")
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
        """Starts no more runs until `resume`, and returns the schedule's id. A run that has started
        continues.

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
        """Starts a run now, also of a paused schedule, and returns the job's id.

        Args:
            name: `NAME` or `USER/NAME`.

        Raises:
            NotFound: there is no such schedule.
            Rejected: the run before has not ended, and the schedule leaves such times out.
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
        """Deletes a schedule with the secrets that it was given, and returns its id. A run that has
        started continues.

        Args:
            name: `NAME` or `USER/NAME`.

        Raises:
            NotFound: there is no such schedule.
            IrisError: the store does not answer, and still has the secrets, sealed.
            Unreachable: the service does not answer.
        """
        found = await self._found(name)
        with self._connection.rpc_errors():
            await self._handle(found.id).delete()
        job = names.job_of_workflow(found.id)
        if not found.info.running_actions:  # otherwise the control plane deletes them later
            from iris.client.secrets.sealing import delete_secrets  # few schedules have some

            await delete_secrets(self._connection.record, names.sealed_for_schedule(job, ""))
        return job

    # -- private
    # ----------------------------------------------------------------------------------------------

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
                        reason="the clock shows this time again, and the job starts then",
                    )
            except WorkflowFailureError as error:
                state, reason = _end_of(error)
                return replace(run, state=state, reason=reason)
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    return run
                raise
        return replace(run, state=JobState.SUCCEEDED.value)


def _times_of(when: When, now: datetime) -> ScheduleSpec:
    """Returns the times for the service.

    What it does at changes of the clock is not the same in all time zones, so expressions of every
    hour are left to UTC, where nothing changes, and times at which no expression comes are
    excluded.
    """
    if when.interval is not None:
        return ScheduleSpec(intervals=[ScheduleIntervalSpec(every=when.interval)])
    times = ScheduleSpec(cron_expressions=list(when.expressions), time_zone_name=when.time_zone)
    crons, zone = [parse_cron(each) for each in when.expressions], zone_of(when.time_zone)
    known = [each for each in crons if each is not None]
    if zone is None or len(known) < len(crons):
        return times
    if all(each.is_of_every_hour for each in known) and is_in_whole_hours(zone, now):
        return replace(times, time_zone_name="UTC")
    return replace(times, skip=[_calendar(each) for each in excluded(known)])


def _calendar(times: Excluded) -> ScheduleCalendarSpec:
    return ScheduleCalendarSpec(
        second=[ScheduleRange(0, 59)],
        minute=[ScheduleRange(minute) for minute in times.minutes],
        hour=[ScheduleRange(hour) for hour in times.hours],
    )


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
