"""Operations on jobs: submitting, listing, explaining, waiting for and cancelling them."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from iris.activities.control.service import first_run
from iris.client import jobs
from iris.client.connect.identity import current_user
from iris.client.connect.rpc import Connection, memo_of
from iris.client.jobs import submit
from iris.client.jobs.explanation import Explanation, cancelling_of, held_above, reason_of
from iris.client.jobs.find import describe_job, numbered_run, resolve_id, unknown_job
from iris.client.jobs.lists import (
    ChildJobsClient,
    JobFilter,
    JobPage,
    count_by_state,
    count_jobs,
    list_jobs,
    page_of_jobs,
    runs_of,
)
from iris.client.jobs.rows import JobRow, state_of
from iris.client.jobs.status import check_task, overruled, reported_status, task_of
from iris.client.logs.source import LogSource, log_source
from iris.model import names
from iris.model.errors import Rejected, Unreachable, WaitTimeout
from iris.model.job.cancelling import grace_in
from iris.model.job.spec import Band, Hold, JobSpec
from iris.model.job.status import JobStatus
from iris.model.states import ENDED, JobState, TaskState
from iris.model.units import format_duration
from iris.retrying import retry
from iris.scheduling.placement.refusals import Refusal, RefusalCode

if TYPE_CHECKING:
    from iris.client.jobs.submit.start import BatchResult, Submitted
    from iris.client.jobs.submitted import Submission
    from iris.client.jobs.usage import InUse
    from iris.scheduling.reasons.forecast import Forecast
    from iris.usage.budgets import BudgetUse
    from iris.usage.estimate import Estimate
    from iris.usage.summary import JobUse

#: The maximum time that `final_status` waits for an answer of the control plane.
FINAL_STATUS_TIMEOUT = timedelta(seconds=60)
#: The time between two attempts while the service or the control plane does not answer.
RETRY_INTERVAL = timedelta(seconds=1)


class CancelAnswer(NamedTuple):
    """The answer to the request to cancel a job or one of its tasks."""

    #: The state of the job or task if it had already ended, so that nothing was cancelled. None if
    #: it had not ended.
    ended: JobState | TaskState | None
    #: The time that the programs of the job or task have to end.
    grace: timedelta


class JobsClient:
    """Submits, lists, explains, waits for and cancels the jobs of one cluster."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cluster = connection.record
        #: The client that finds child jobs.
        self.child_jobs = ChildJobsClient(connection)

    async def submit(self, spec: JobSpec) -> "Submitted":
        """Starts the job.

        Raises:
            InvalidValue: the job demands more of its hosts than the scheduler can represent.
            Rejected: a live job has this name.
        """
        return await submit.start.start_job(self._connection, spec)

    async def submit_once(self, spec: JobSpec, key: str) -> "BatchResult":
        """Starts the job of a batch, unless a job with its name and this key was started before.

        Raises:
            InvalidValue: the job demands more of its hosts than the scheduler can represent.
            Rejected: another live job has this name.
        """
        return await submit.start.start_once(self._connection, spec, key)

    async def status(
        self, job: str, run_id: str | None = None, index: int | None = None
    ) -> JobStatus:
        """Returns the job's current status. A waiting task's reason is the scheduler's current one.

        Args:
            index: a task whose own workflow is asked, too. A job with independent tasks may not
                know their latest changes.

        Raises:
            NotFound: there is no such job, or it has no such task.
            Unreachable: no control plane answers.
        """
        status, _ = await self.status_and_refusal(job, run_id, index)
        return status

    async def explain(
        self, job: str, index: int | None = None, run_id: str | None = None
    ) -> Explanation:
        """Explains the state of the job, or of its task with that index, and lists the outcome of
        every attempt so far.

        Args:
            run_id: an earlier run. Its attempts are not listed if its tasks were independent.

        Raises:
            NotFound: there is no such job, or it has no such task.
            Unreachable: no control plane answers, and the job has not ended. An ended job is
                explained without its attempts.
        """
        status, refusal = await self.status_and_refusal(job, run_id, index)
        known = await jobs.task_reports.known_attempts(self._connection, status, index, run_id)
        message = refusal.message if refusal else reason_of(status, index)
        if refusal is not None and (remark := await held_above(self._connection, job, refusal)):
            message = f"{message}; {remark}"
        children = tuple(
            await self.child_jobs.children(job, (await self.log_source(job, run_id)).run_id)
        )
        facts = {
            **known._asdict(),
            "cancelling": cancelling_of(status, index),
            "children": children,
        }
        return Explanation(
            id=status.id, state=status.state, message=message, refusal=refusal, **facts
        )

    async def cancel(self, job: str, reason: str = "", run_id: str | None = None) -> CancelAnswer:
        """Requests the job's cancellation. The job is KILLED once its processes are dead.

        Args:
            run_id: cancels only this run, even if a later job has the name. None cancels the latest
                run.

        Raises:
            NotFound: there is no such job.
        """
        described = await describe_job(self._connection, job, run_id)
        grace = grace_in(await memo_of(described))
        if described.status is not WorkflowExecutionStatus.RUNNING:
            return CancelAnswer(state_of(described), grace)
        with self._connection.rpc_errors():
            await self._handle(job, described.run_id).cancel(
                reason=reason or f"cancelled by {current_user()}"
            )
        return CancelAnswer(None, grace)

    async def cancel_task(
        self, job: str, index: int, reason: str = "", run_id: str | None = None
    ) -> CancelAnswer:
        """Requests the cancellation of one task; the job's other tasks continue. The task is
        CANCELLED once its program is dead.

        Args:
            run_id: as for `cancel`.

        Raises:
            NotFound: there is no such job, or it has no such task.
            Rejected: the tasks of the job are a gang, which ends as a whole; or the job has just
                ended.
            Unreachable: no control plane answers.
        """
        described = await describe_job(self._connection, job, run_id)
        spec = await self.submitted_spec(job, described.run_id)
        check_task(job, index, spec.indices)
        if spec.replicas == 1:
            return await self.cancel(job, reason, described.run_id)
        if spec.is_gang:
            raise Rejected(
                f"task {index} of {job} cannot be cancelled alone: its {spec.replicas} tasks are a"
                f" gang, which ends as a whole; to cancel all of them, run `iris cancel {job}`"
            )
        task = task_of(job, index, (await self.status(job, described.run_id, index)).tasks)
        if task.state in ENDED:
            return CancelAnswer(task.state, spec.grace)
        await self._connection.check_keys()
        from iris.messages.task import TaskCancellation  # only this needs it

        cancellation = TaskCancellation(
            index=index, reason=reason or f"cancelled by {current_user()}"
        )
        with self._connection.signal_errors(f"job {job}"):
            await self._handle(job, described.run_id).signal("cancel_task", cancellation)
        return CancelAnswer(None, spec.grace)

    async def hold(self, job: str, reason: str = "", run_id: str | None = None) -> JobStatus:
        """Holds the job: no task of it starts until it is released, and running tasks continue.

        Returns:
            The job's status before the hold.

        Raises:
            NotFound: there is no such job.
            Rejected: the job has ended.
        """
        return await self._signal(job, run_id, "hold", Hold(by=current_user(), reason=reason))

    async def release(self, job: str, run_id: str | None = None) -> JobStatus:
        """Releases a job that is held.

        Raises:
            NotFound: there is no such job.
            Rejected: the job has ended, or is not held.
        """
        status = await self._status_of_live(job, run_id)
        if not status.held:
            raise Rejected(f"job {job} is not held; it is {status.state}")
        return await self._signal(job, run_id, "release")

    async def set_priority(self, job: str, band: Band, run_id: str | None = None) -> JobStatus:
        """Moves the job to another priority band. Running tasks continue in that band.

        Raises:
            NotFound: there is no such job.
            Rejected: the job has ended.
        """
        return await self._signal(job, run_id, "set_priority", band)

    async def wait(
        self, job: str, run_id: str | None = None, timeout: timedelta | None = None
    ) -> JobStatus:
        """Waits until the job has ended and returns its status.

        Raises:
            WaitTimeout: the timeout has expired; the job continues.
            NotFound: there is no such job.
        """
        try:
            async with asyncio.timeout(timeout.total_seconds() if timeout is not None else None):
                await self.wait_until_ended(job, run_id)
        except TimeoutError:
            raise WaitTimeout(
                f"job {job} has not ended within {format_duration(timeout or timedelta())}; it"
                " continues"
            ) from None
        return await self.final_status(job, run_id)

    @retry(Unreachable, every=RETRY_INTERVAL, timeout=FINAL_STATUS_TIMEOUT)
    async def final_status(self, job: str, run_id: str | None = None) -> JobStatus:
        """Returns the status of a job that has ended. Waits for a control plane that is being
        restarted.

        Raises:
            Unreachable: no control plane answered for a minute.
        """
        return await self.status(job, run_id)

    @retry(RPCError, every=RETRY_INTERVAL)
    async def wait_until_ended(self, job: str, run_id: str | None = None) -> None:
        """Returns once the job has ended, with or without success. Retries while the service does
        not answer.

        Raises:
            NotFound: there is no such job.
            Rejected: the service refuses this client.
            Unreachable: the cluster is local and has been stopped.
        """
        try:
            await self._handle(job, run_id).result()
        except WorkflowFailureError:
            return
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise await unknown_job(self._connection, job) from None
            if (refusal := self._connection.lasting_refusal(error)) is not None:
                raise refusal from None
            if self._cluster.supervisor is not None and not self._cluster.alive():
                raise Unreachable(
                    f"cluster {self._cluster.name} was stopped before job {job} had ended"
                ) from None
            raise

    async def run(self, job: str, number: int | None) -> str | None:
        """Returns the id of a run of the job by its number, as `numbered_run` does. Without a
        number, returns None, which stands for the latest run.

        Raises:
            NotFound: the job has no such run.
        """
        return None if number is None else await numbered_run(self._connection, job, number)

    async def runs(self, job: str) -> Sequence[str]:
        """Returns the ids of the job's runs that the service knows, the oldest first.

        Raises:
            Unreachable: the service does not answer.
        """
        return (await runs_of(self._connection, [job])).get(job, [])

    async def resolve_id(self, text: str) -> str:
        """Returns the id of the job that a user names. In a job, a bare name means the job's own
        child first.

        Raises:
            InvalidValue: the text does not name a job.
            Unreachable: the service does not answer.
        """
        return await resolve_id(self._connection, text)

    def page(self, job: str, run_id: str | None = None) -> str:
        """Returns the address of the job's page in Temporal's Web UI. Returns an empty text if the
        cluster has no Web UI.
        """
        return self._connection.page(names.job_workflow(self._cluster.name, job), run_id)

    def dashboard_page(self, job: str) -> str:
        """Returns the address of the job's page in the dashboard. Returns an empty text if the
        cluster has no dashboard that this machine reaches.
        """
        return self._connection.dashboard_page(job)

    async def log_source(self, job: str, run_id: str | None = None) -> LogSource:
        """Returns what a reader of the job's logs needs to know. Asks only the service, so it works
        while no control plane answers.

        Raises:
            NotFound: there is no such job.
        """
        return await log_source(self._connection, job, run_id)

    async def forecast(self, spec: JobSpec) -> "Forecast":
        """Returns what the scheduler would do with the job if it were submitted now. Changes
        nothing.

        Raises:
            InvalidValue: the job demands more of its hosts than the scheduler can represent.
            Unreachable: no control plane answers.
        """
        return await jobs.estimate.forecast_of(self._connection, spec)

    async def estimate(self, spec: JobSpec) -> "Estimate | None":
        """Returns what the job costs at most if each of its tasks runs once until its time limit.
        Returns None if the job has no time limit, or no scale group that could run it has a price.

        Raises:
            InvalidValue: the job demands more of its hosts than the scheduler can represent.
            Unreachable: no control plane or no store answers.
            IrisError: the store cannot be read.
        """
        return await jobs.estimate.estimate_of(self._connection, spec)

    async def budgets(self, user: str) -> "tuple[BudgetUse, ...]":
        """Returns how much is used of each budget that counts the user's jobs, as the control plane
        last saw it.

        Raises:
            Unreachable, IrisError: the store does not answer.
        """
        return await jobs.estimate.budgets_of(self._connection, user)

    async def why_infeasible(self, spec: JobSpec) -> Refusal | None:
        """Returns why no existing host can ever run the job. Returns None if a host can.

        Raises:
            InvalidValue: the job demands more of its hosts than the scheduler can represent.
            Unreachable: no control plane answers.
        """
        return await jobs.trial.why_infeasible(self._connection, spec)

    async def usage(self, status: JobStatus) -> "Sequence[InUse]":
        """Returns the resource use of each task that is on a host now.

        Raises:
            Unreachable: the service does not answer.
        """
        return await jobs.usage.usage_of(self._connection, status)

    async def use_over_time(
        self, job: str, index: int | None = None, run_id: str | None = None
    ) -> "JobUse":
        """Returns the resource use of the job's tasks over time, against what they requested.

        Args:
            index: reads only the use of this task. None reads that of all tasks.
            run_id: an earlier run. None is the latest run.

        Raises:
            NotFound: there is no such job, or it has no such task.
            Unreachable: the service does not answer.
            IrisError: the store does not answer.
        """
        return await jobs.use_over_time.job_use(self._connection, job, index, run_id)

    async def submitted_spec(self, job: str, run_id: str | None = None) -> JobSpec:
        """Returns the specification with which the job was submitted.

        Raises:
            Unreachable: the service does not answer.
        """
        return await jobs.submitted.submitted_spec(self._connection, job, run_id)

    async def submission(self, job: str, run_id: str | None = None) -> "Submission":
        """Returns the specification with which the job was submitted, its current priority, and its
        page in Temporal's Web UI. Asks only the service.

        Raises:
            NotFound: there is no such job.
            Unreachable: the service does not answer.
        """
        return await jobs.submitted.submission_of(self._connection, job, run_id)

    async def list(self, wanted: JobFilter | None = None, *, limit: int = 50) -> list[JobRow]:
        """Lists the cluster's jobs, the newest first.

        Args:
            wanted: None lists all jobs.
            limit: the maximum number of jobs.

        Raises:
            InvalidValue: a user or a tag cannot have this name.
            Unreachable: the service does not answer.
        """
        return await list_jobs(self._connection, wanted or JobFilter(), limit)

    async def count(self, wanted: JobFilter | None = None, *, ended: bool = False) -> int:
        """Returns the number of jobs that have not ended.

        Args:
            ended: counts the jobs that ended in the service's retention period instead.

        Raises:
            InvalidValue: a user or a tag cannot have this name.
            Unreachable: the service does not answer.
        """
        return await count_jobs(self._connection, wanted or JobFilter(), ended=ended)

    async def list_page(
        self,
        wanted: JobFilter | None = None,
        *,
        limit: int = 50,
        start: str = "",
        most: int = 500,
    ) -> JobPage:
        """Lists a part of the cluster's jobs, the newest first. A part costs the same at every
        place of the list.

        Args:
            wanted: None lists all jobs.
            limit: the maximum number of jobs.
            start: the `older` of the part before this one. Empty for the newest jobs.
            most: the maximum number of jobs that are read to find those that the filter takes.

        Raises:
            InvalidValue: a user or a tag cannot have this name, or `start` is no place in the list.
            Unreachable: the service does not answer.
        """
        return await page_of_jobs(self._connection, wanted or JobFilter(), limit, start, most)

    async def count_by_state(self, wanted: JobFilter | None = None) -> dict[JobState, int]:
        """Returns the number of jobs in each state, of those that the service has not forgotten.
        Ignores the filter's states and its text.

        Raises:
            InvalidValue: a user or a tag cannot have this name.
            Unreachable: the service does not answer.
        """
        return await count_by_state(self._connection, wanted or JobFilter())

    async def status_and_refusal(
        self, job: str, run_id: str | None, index: int | None = None
    ) -> tuple[JobStatus, Refusal | None]:
        """Returns the job's current status, and why the task with that index waits. Without an
        index, the reason is the one of the first waiting task.

        Raises:
            NotFound, Unreachable: as `status`.
        """
        described = await describe_job(self._connection, job, run_id)
        status = await reported_status(self._connection, described)
        if index is not None:
            check_task(job, index, [task.index for task in status.tasks])
        if described.status is not WorkflowExecutionStatus.RUNNING:
            return overruled(status, state_of(described)), None
        if status.cancelling is not None:
            return status, None
        if index is not None:
            status = await jobs.task_reports.with_own_status(
                self._connection, status, index, first_run(described)
            )
        tasks_to_explain = [task for task in status.tasks if index is None or task.index == index]
        waits = (
            task
            for task in tasks_to_explain
            if task.state is TaskState.PENDING and task.key and task.cancelling is None
        )
        waiting = next(waits, None)
        if waiting is None or waiting.key is None:
            return status, None
        refusal = await self._connection.query(
            self._connection.scheduler, "explain", Refusal, waiting.key
        )
        if refusal.code in (RefusalCode.UNKNOWN, RefusalCode.HELD):
            return status, None
        # All tasks of a gang have one key in the queue, and wait for one reason.
        changes = {"reason": refusal.message}
        tasks = [
            task.model_copy(update=changes) if task.key == waiting.key else task
            for task in status.tasks
        ]
        one_reason = all(task.key == waiting.key for task in tasks)
        reason = refusal.message if one_reason else f"task {waiting.index}: {refusal.message}"
        return status.model_copy(update={"tasks": tuple(tasks), "reason": reason}), refusal

    def _handle(self, job: str, run_id: str | None = None) -> WorkflowHandle[Any, Any]:
        return self._connection.workflow(names.job_workflow(self._cluster.name, job), run_id)

    async def _status_of_live(self, job: str, run_id: str | None) -> JobStatus:
        """Returns the status of a job that has not ended."""
        described = await describe_job(self._connection, job, run_id)
        if described.status is not WorkflowExecutionStatus.RUNNING:
            raise Rejected(f"job {job} has ended already ({state_of(described)})")
        return await self._connection.query(self._handle(job), "status", JobStatus)

    async def _signal(
        self, job: str, run_id: str | None, signal: str, *arguments: Any
    ) -> JobStatus:
        status = await self._status_of_live(job, run_id)
        await self._connection.check_keys()
        with self._connection.signal_errors(f"job {job}"):
            await self._handle(job).signal(signal, args=arguments)
        return status
