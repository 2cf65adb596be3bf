"""Defines the workflow of a job: it registers with other jobs, waits for its dependencies, runs the
tasks, and reports the end.

A job whose tasks form one gang runs that gang itself, and so does a job of one task: `gang_run.py`
waits for hosts, has the timer after which a job is UNSCHEDULABLE, and runs each attempt. A job of
several independent tasks starts a workflow for each (`independent_tasks.py`), so that no history
grows with the number of tasks and attempts. A large array starts a workflow for each of its parts,
and these start workflows for their tasks (`array_parts.py`). A failed job is a failed workflow and
a cancelled job is a cancelled workflow, so Temporal's lists, colours and buttons keep their usual
meaning.
"""

import asyncio
import contextlib
from collections.abc import Sequence

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from iris.activities.control.sealed_secrets import SealedSecrets
from iris.messages.array_part import PartReport
from iris.messages.dependencies import JobEnd
from iris.messages.job import Attempts, ChildRef, Endpoints, JobInput
from iris.messages.job_secrets import UnneededSecrets
from iris.messages.job_signals import JobMessage
from iris.messages.scheduler import Reason
from iris.messages.task import GangStart, TaskCancellation, TaskProgress
from iris.model import names, store_paths
from iris.model.errors import InvalidValue
from iris.model.job.cancelling import Cancelling
from iris.model.job.demand_limits import check_demands
from iris.model.job.derived_status import status_of, with_cancellations
from iris.model.job.endpoints import Endpoint, changed, visible
from iris.model.job.gangs import Gang
from iris.model.job.requests import Placement
from iris.model.job.secrets import sealed_for
from iris.model.job.spec import Band, Hold
from iris.model.job.status import JobStatus, TaskStatus
from iris.model.states import ENDED, LIVE, JobState, TaskState
from iris.scheduling.ledger.recovery import GangReport
from iris.scheduling.placement.preemption import Eviction
from iris.workflows import policies, web_ui
from iris.workflows.jobs.array_parts import ArrayParts
from iris.workflows.jobs.child_jobs import Children, register
from iris.workflows.jobs.dependencies import Dependencies, Dependents
from iris.workflows.jobs.gang_run import GangRun
from iris.workflows.jobs.independent_tasks import IndependentTasks
from iris.workflows.jobs.notification import notify
from iris.workflows.own_input import check_id, check_reads, foreign, was_started_by_client
from iris.workflows.scheduler_call import uninterrupted
from iris.workflows.search_attributes import ListEntry

#: The maximum number of tasks in the result of a job's workflow. They need some tens of kilobytes.
TASKS_IN_RESULT = 100
#: The maximum number of child jobs in the input of one activity. Their ids need some 50 KiB.
_MOST_CHILDREN = 500


@workflow.defn
class JobWorkflow:
    @workflow.init
    def __init__(self, job: JobInput) -> None:
        info = workflow.info()
        #: The job's tasks and their state at the start of this run. For a refused job, the state is
        #: the final one.
        self._job: Gang = job.model_copy(
            update={
                "run_id": info.first_execution_run_id,
                "submitted_at": job.submitted_at or info.workflow_start_time,
                "tasks": job.tasks or tuple(TaskStatus(index=index) for index in job.spec.indices),
            }
        )
        self._children = Children(job.spec.id, job.children)
        self._dependencies = Dependencies(
            job, self._has_ended, self._describe, self._ready, self._continue_as_new
        )
        self._dependents = Dependents(job.dependents)
        #: Runs the tasks, and contains their current state; None if the job is refused.
        self._run: GangRun | IndependentTasks | ArrayParts | None
        if job.spec.is_gang:
            self._run = GangRun(self._job, self._describe, self._with_others)
        elif job.spec.array is not None and job.spec.array.has_parts(job.spec.replicas):
            self._run = ArrayParts(self._job, self._describe)
        else:
            self._run = IndependentTasks(self._job, self._describe)
        self._listed = ListEntry(self._job.band)
        #: True if the job has changed since its entry in lists of jobs was last updated.
        self._changed = False
        #: The cancellation of the job; None if it is not cancelled.
        self._cancelling: Cancelling | None = None
        #: The endpoints of attempts, including ended ones. The next run of the workflow needs none,
        #: because no attempt runs while the workflow continues as new.
        self._endpoints: tuple[Endpoint, ...] = ()
        self._describe()

    @property
    def _gang(self) -> Gang:
        """The tasks and their state as they are now."""
        return self._run.gang if self._run is not None else self._job

    @workflow.run
    async def run(self, job: JobInput) -> JobStatus:
        _check_own(job)
        # Both end with the workflow.
        asyncio.create_task(self._show_cancellation())  # noqa: RUF006
        asyncio.create_task(self._show_changes())  # noqa: RUF006
        try:
            await self._run_tasks(job)
        except asyncio.CancelledError:
            await self._end_as_cancelled()
            raise
        return await self._end()

    async def _run_tasks(self, job: JobInput) -> None:
        """Registers with other jobs, waits for them, and runs the tasks until they have ended."""
        if self._is_refused(job):
            return
        if refusal := await register(job) or await self._dependencies.wait():
            self._refuse(TaskState.KILLED, refusal)
        elif self._run is not None:
            await self._run.run()

    async def _end_as_cancelled(self) -> None:
        # A job that was cancelled before it started has no tasks that end by themselves.
        if self.status().state in (JobState.PENDING, JobState.HELD):
            self._refuse(TaskState.KILLED, workflow.cancellation_reason() or "cancelled")
        self._describe()
        job, status = self._gang, self.status()
        self._listed.show(status.state)
        self._listed.show_reason(status.state, status.reason)
        await self._children.cancel(job.cluster, f"its parent {job.spec.id} was cancelled")
        await self._dependents.signal_end(job, JobState.KILLED)
        await delete_secrets(job)
        await notify(job, status)

    async def _end(self) -> JobStatus:
        """Reports the end of the tasks, and returns the result of the workflow."""
        job, status = self._gang, self.status()
        succeeded = status.state is JobState.SUCCEEDED
        if not succeeded or self._listed.state is not None:
            self._listed.show(status.state)
        self._listed.show_reason(status.state, status.reason)
        if not succeeded:
            await self._children.cancel(
                job.cluster, f"its parent {job.spec.id} ended {status.state}"
            )
        await self._dependents.signal_end(job, status.state)
        # The children of a job that has succeeded may still need its secrets.
        await delete_secrets(job, self._children.known if succeeded else ())
        await notify(job, status)
        # The result has only the first tasks, to keep the history short. The query returns all.
        end = status.model_copy(update={"tasks": status.tasks[:TASKS_IN_RESULT]})
        if not succeeded:
            raise ApplicationError(status.reason, end, type=status.state, non_retryable=True)
        return end

    @workflow.signal(description="Hosts from the scheduler")
    def placed(self, placement: Placement) -> None:
        self._receive(placement)

    @workflow.signal(description="Progress of the program, from its host")
    def task_progress(self, progress: TaskProgress) -> None:
        self._receive(progress)

    @workflow.update(
        description="Whether the programs of a gang may start; answered when all are prepared",
        # The hosts also learn of the attempt's end by their heartbeats.
        unfinished_policy=workflow.HandlerUnfinishedPolicy.ABANDON,
    )
    async def start_together(self, start: GangStart) -> bool:
        return isinstance(self._run, GangRun) and await self._run.starts(start.claim)

    @workflow.signal(description="Eviction by the scheduler, or hosts that no longer exist")
    def evicted(self, eviction: Eviction) -> None:
        self._receive(eviction)

    @workflow.signal(description="A new reason why the job waits")
    def waits(self, reason: Reason) -> None:
        self._receive(reason)

    @workflow.signal(
        description=(
            "Hold the job: nothing of it starts until it is released; running tasks continue"
        )
    )
    def hold(self, hold: Hold) -> None:
        self._override(hold=hold)

    @workflow.signal(description="Release the job from its hold")
    def release(self) -> None:
        self._override(hold=None)

    @workflow.signal(description="Change the priority of the job")
    def set_priority(self, band: Band) -> None:
        self._override(band=band)

    @workflow.signal(description="Cancel one task of several; the others continue")
    def cancel_task(self, cancellation: TaskCancellation) -> None:
        self._receive(cancellation)

    @workflow.signal(description="A new status of a task of this job")
    def task_changed(self, task: TaskStatus) -> None:
        self._receive(task)

    @workflow.signal(description="A new status of tasks of a part of this array")
    def part_changed(self, report: PartReport) -> None:
        self._receive(report)

    @workflow.signal(description="A job that belongs to this job starts")
    def child_started(self, child: ChildRef) -> None:
        self._children.add(child)

    @workflow.signal(description="A job waits for the end of this job")
    def dependent_waits(self, job: str) -> None:
        self._dependents.add(job)

    @workflow.signal(description="A job for which this job waits has ended")
    def dependency_ended(self, end: JobEnd) -> None:
        self._dependencies.receive(end)

    @workflow.signal(description="A task makes an address known by name, or withdraws it")
    def endpoint_changed(self, endpoint: Endpoint) -> None:
        self._endpoints = changed(self._endpoints, endpoint, self._gang.tasks)

    @workflow.query(description="The current status of the job and its tasks")
    def status(self) -> JobStatus:
        return with_cancellations(
            self._known(), self._cancelling, self._run.cancelling if self._run is not None else {}
        )

    @workflow.query(
        description=(
            "The request or the placement that the job has, for a scheduler that recovers its"
            " ledger"
        )
    )
    def claim(self) -> GangReport:
        return self._run.report if self._run is not None else GangReport()

    @workflow.query(
        description=(
            "The records of all attempts; those of independent tasks are in the tasks' workflows"
        )
    )
    def attempts(self) -> Attempts:
        return Attempts(attempts=self._gang.attempts)

    @workflow.query(description="The endpoints of the attempts that run")
    def endpoints(self) -> Endpoints:
        return Endpoints(endpoints=visible(self._endpoints, self._gang.tasks))

    def _known(self) -> JobStatus:
        """Returns the status without the cancellations that have not taken effect yet."""
        return self._dependencies.shown(status_of(self._gang))

    async def _show_cancellation(self) -> None:
        """Shows the cancellation of the job as soon as it arrives: programs may run on for their
        whole grace period.
        """
        await workflow.wait_condition(lambda: workflow.cancellation_reason() is not None)
        self._cancelling = Cancelling.begun(
            workflow.cancellation_reason(), workflow.now(), self._job.spec.grace
        )
        self._describe()
        if any(task.state in LIVE for task in self._gang.tasks):
            self._listed.show_cancelling(self._cancelling)

    def _receive(self, message: JobMessage) -> None:
        if self._run is not None:
            self._run.receive(message)

    def _override(self, **changes: object) -> None:
        self._receive(self._gang.overrides.model_copy(update=changes))
        self._describe()

    def _is_refused(self, job: JobInput) -> bool:
        """Ends the job as UNSCHEDULABLE if it demands more than the scheduler accepts. Returns
        whether it does.

        Not every client checks the demands before it submits the job.
        """
        if job.tasks:
            return False  # an earlier run of the workflow has checked it
        try:
            check_demands(job.spec)
        except InvalidValue as error:
            self._refuse(TaskState.UNSCHEDULABLE, str(error))
            return True
        return False

    def _refuse(self, state: TaskState, reason: str) -> None:
        """Ends the tasks before they start. Tasks that the user has cancelled alone keep their
        end.
        """
        end = {"state": state, "reason": reason, "finished_at": workflow.now()}
        tasks = tuple(
            task if task.state in ENDED else task.model_copy(update=end)
            for task in self._gang.tasks
        )
        self._job = self._gang.model_copy(update={"tasks": tasks})
        self._run = None
        self._describe()

    def _with_others(self, gang: Gang) -> Gang:
        """Returns the gang with the data about other jobs that the next run needs."""
        others = {"children": self._children.carried, "dependents": self._dependents.carried}
        return gang.model_copy(update={**others, "dependency_ends": self._dependencies.known})

    def _continue_as_new(self) -> None:
        workflow.continue_as_new(self._with_others(self._gang))

    def _has_ended(self) -> bool:
        return all(task.state in ENDED for task in self._gang.tasks)

    def _ready(self) -> None:
        if self._run is not None:
            self._run.ready()

    def _describe(self) -> None:
        refusal, at = (
            (self._run.refusal, self._run.refused_at) if self._run is not None else (None, None)
        )
        workflow.set_current_details(web_ui.job_details(self._job.spec, self.status(), refusal, at))
        self._changed = True

    async def _show_changes(self) -> None:
        """Shows each change in lists of jobs.

        The handlers do not do this themselves: the acceptance of an update is a command, too, and
        their order would have to be the same in a replay. Also, several messages of one workflow
        task are one change.
        """
        while True:
            await workflow.wait_condition(lambda: self._changed)
            self._changed = False
            self._list()

    def _list(self) -> None:
        status = self._known()
        self._listed.show_band(self._gang.band)
        # Show PENDING when the job has to wait, and BUILDING or RUNNING when a host reports it.
        if any(task.state is TaskState.RUNNING for task in status.tasks):
            self._listed.show(JobState.RUNNING)
        elif status.state is JobState.BUILDING:
            # Each independent task has a reason. Only the first one is shown.
            shown = self._listed.state is JobState.BUILDING and not self._job.spec.is_gang
            self._listed.show(JobState.BUILDING)
            self._listed.show_reason(status.state, "" if shown else status.reason)
        elif status.state in (JobState.PENDING, JobState.HELD) and status.reason:
            self._listed.show(status.state)
            waits_for = self._dependencies.listed or (
                self._run.waits_for if self._run is not None else ""
            )
            self._listed.show_reason(
                status.state, status.reason if status.state is JobState.HELD else waits_for
            )


def _check_own(job: JobInput) -> None:
    """Checks that a job's input belongs to its workflow. A client starts a job without a state: the
    state could name jobs of others as children, which end with their parent.

    Raises:
        ApplicationError: it does not.
    """
    check_id(names.job_workflow(job.cluster, job.spec.id))
    if was_started_by_client() and job != JobInput(cluster=job.cluster, spec=job.spec):
        raise foreign(
            "it contains more than the cluster and the specification of a job, and a client may"
            " give no more"
        )
    source = job.spec.from_checkpoint
    if was_started_by_client() and source is not None:
        owner = store_paths.job_of_checkpoints(source.folder)
        if owner is None:
            raise foreign(f"{source.folder!r} is not the folder of a job's checkpoints")
        check_reads(names.job_workflow(job.cluster, owner))


async def delete_secrets(job: Gang, children: Sequence[ChildRef] = ()) -> None:
    """Deletes the values that were sealed for a job that has ended.

    Args:
        children: the job's children, which may outlive it and use its secrets.
    """
    if objects := sealed_for(job.spec.secrets, job.spec.id):
        unneeded = UnneededSecrets(
            cluster=job.cluster, objects=objects, children=tuple(children[-_MOST_CHILDREN:])
        )
        # The job has ended already, so its own cancellation has no effect.
        with contextlib.suppress(asyncio.CancelledError):
            await uninterrupted(_delete(unneeded))


async def _delete(unneeded: UnneededSecrets) -> None:
    # The job does not wait for a store that does not answer: a later sweep of the control plane
    # deletes the values.
    with contextlib.suppress(ActivityError):
        await workflow.execute_activity_method(
            SealedSecrets.delete_secrets,
            unneeded,
            task_queue=names.patient_queue(unneeded.cluster),
            start_to_close_timeout=policies.DELETE_SECRETS,
            schedule_to_close_timeout=policies.DELETE_SECRETS,
            summary="deletes the secrets that were given to the job",
        )
