"""Defines the job's workflow: it asks for hosts, waits, runs, accounts for the outcome, releases, rolls up the state, and ends.

A job whose tasks form one gang runs that gang itself, and so does a job of one task. A job of several independent tasks starts a
`TaskWorkflow` for each, so that no history grows with the number of tasks times attempts. A failed job is a failed workflow and a
cancelled job is a cancelled workflow, so Temporal's lists, colours and buttons keep their usual meaning.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ApplicationError, ChildWorkflowError, WorkflowAlreadyStartedError, is_cancelled_exception

from iris.activities.control.job_tasks import JobTasks
from iris.messages.job import Attempts, ChildRef, Endpoints, JobInput
from iris.messages.scheduler import Reason
from iris.messages.task import TaskCancellation, TaskInput, TaskOverrides, TaskProgress, TaskRefs
from iris.model import names
from iris.model.bounds import check_demands
from iris.model.endpoints import Endpoint, changed, visible
from iris.model.errors import InvalidValue
from iris.model.gangs import Gang
from iris.model.job_status import status_of
from iris.model.jobs import Band, JobStatus, TaskStatus
from iris.model.overrides import Hold, Overrides
from iris.model.requests import Placement
from iris.model.states import ENDED, JobState, TaskState
from iris.scheduling.preemption import Eviction
from iris.scheduling.recovery import GangReport
from iris.workflows import policies, web_ui
from iris.workflows.family import Children, register
from iris.workflows.gang_run import GangRun
from iris.workflows.search_attributes import ListEntry, keywords, show_band
from iris.workflows.task import TaskWorkflow

#: Children started by one workflow task. Each start carries the job's specification, and all of them go in one 4 MiB request.
STARTS_AT_ONCE = 32
#: The pause between two tries to start a task whose workflow id is still in use.
NAME_IN_USE = timedelta(seconds=5)
#: The most tasks in the workflow's result: some tens of kilobytes.
TASKS_IN_RESULT = 100
T = TypeVar("T", bound=TaskRefs)


@workflow.defn
class JobWorkflow:
    @workflow.init
    def __init__(self, job: JobInput) -> None:
        info = workflow.info()
        #: The tasks and their state; of a job that is one gang, `_run` has it.
        self._job = job.model_copy(
            update={
                "run_id": info.first_execution_run_id,
                "submitted_at": job.submitted_at or info.workflow_start_time,
                "tasks": job.tasks or tuple(TaskStatus(index=index) for index in range(job.spec.replicas)),
            }
        )
        self._child_jobs = Children(job.children)
        self._run = GangRun(self._job, self._describe, self._with_children) if job.spec.is_gang else None
        self._listed = ListEntry()
        #: Of attempts that run, or ran. No attempt runs while the workflow continues as new, so the next run needs none.
        self._endpoints: tuple[Endpoint, ...] = ()
        #: The reason of the tasks that the job ends; None: it ends none.
        self._end_reason: str | None = None
        #: Why the user cancels tasks, by index, while the others continue.
        self._cancelled: dict[int, str] = {}
        #: The coroutines that run the tasks, by index.
        self._running: dict[int, asyncio.Task[None]] = {}
        #: The overrides that all tasks' workflows have; None: some of them have older ones.
        self._sent_overrides: Overrides | None = job.overrides
        self._children: dict[int, workflow.ChildWorkflowHandle[TaskWorkflow, TaskStatus]] = {}
        #: Runs while tasks of an earlier job of this name still end; no task is started meanwhile.
        self._earlier_tasks: asyncio.Task[None] | None = None
        self._describe()

    @property
    def _gang(self) -> Gang:
        """The tasks and their state as they are now."""
        return self._run.gang if self._run is not None else self._job

    @workflow.run
    async def run(self, job: JobInput) -> JobStatus:
        try:
            if self._is_refused(job):
                pass
            elif refusal := await register(job):
                self._refuse(TaskState.KILLED, refusal)
            elif self._run is not None:
                await self._run.run()
            else:
                await self._run_tasks()
        except asyncio.CancelledError:
            if self.status().state in (JobState.PENDING, JobState.HELD):  # it was cancelled before it had begun
                self._refuse(TaskState.KILLED, workflow.cancellation_reason() or "cancelled")
            self._describe()
            status = self.status()
            self._listed.show(status.state)
            self._listed.show_reason(status.state, status.reason)
            await self._child_jobs.cancel(job.cluster, f"its parent {job.spec.id} was cancelled")
            raise
        status = self.status()
        if status.state is not JobState.SUCCEEDED or self._listed.state is not None:
            self._listed.show(status.state)
        self._listed.show_reason(status.state, status.reason)
        if status.state is not JobState.SUCCEEDED:
            await self._child_jobs.cancel(job.cluster, f"its parent {job.spec.id} ended {status.state}")
        # The result has only the first tasks, to keep the history short; the query has all of them.
        end = status.model_copy(update={"tasks": status.tasks[:TASKS_IN_RESULT]})
        if status.state is not JobState.SUCCEEDED:
            raise ApplicationError(status.reason, end, type=status.state, non_retryable=True)
        return end

    @workflow.signal(description="Hosts from the scheduler")
    def placed(self, placement: Placement) -> None:
        if self._run is not None:
            self._run.receive(placement)

    @workflow.signal(description="Progress of the program, from its host")
    def task_progress(self, progress: TaskProgress) -> None:
        if self._run is not None:
            self._run.receive(progress)

    @workflow.signal(description="Eviction by the scheduler")
    def evicted(self, eviction: Eviction) -> None:
        if self._run is not None:
            self._run.receive(eviction)

    @workflow.signal(description="A new reason why the job waits")
    def waits(self, reason: Reason) -> None:
        if self._run is not None:
            self._run.receive(reason)

    @workflow.signal(description="Hold the job: nothing of it starts until it is released; running tasks continue")
    def hold(self, hold: Hold) -> None:
        self._override(hold=hold)

    @workflow.signal(description="Release the job from its hold")
    def release(self) -> None:
        self._override(hold=None)

    @workflow.signal(description="Change the priority of the job")
    def set_priority(self, band: Band) -> None:
        show_band(band)
        self._override(band=band)

    @workflow.signal(description="Cancel one task of several; the others continue")
    def cancel_task(self, cancellation: TaskCancellation) -> None:
        index = cancellation.index
        if self._run is None and index < len(self._job.tasks) and self._job.tasks[index].state not in ENDED:
            self._cancelled.setdefault(index, cancellation.reason)
            if index in self._running:
                self._running[index].cancel()

    @workflow.signal(description="A job that belongs to this job starts")
    def child_started(self, child: ChildRef) -> None:
        self._child_jobs.add(child)

    @workflow.signal(description="A task makes an address known by name, or withdraws it")
    def endpoint_changed(self, endpoint: Endpoint) -> None:
        self._endpoints = changed(self._endpoints, endpoint, self._gang.tasks)

    @workflow.signal(description="A new status of a task of this job")
    def task_changed(self, task: TaskStatus) -> None:
        if self._job.tasks[task.index].state not in ENDED:  # a signal may arrive after the end
            self._set_task(task)

    @workflow.query(description="The current status of the job and its tasks")
    def status(self) -> JobStatus:
        return status_of(self._gang)

    @workflow.query(description="The request or the placement that the job has, for a scheduler that recovers its ledger")
    def claim(self) -> GangReport:
        return self._run.report if self._run is not None else GangReport()

    @workflow.query(description="The records of all attempts; those of independent tasks are in the tasks' workflows")
    def attempts(self) -> Attempts:
        return Attempts(attempts=self._gang.attempts)

    @workflow.query(description="The endpoints of the attempts that run")
    def endpoints(self) -> Endpoints:
        return Endpoints(endpoints=visible(self._endpoints, self._gang.tasks))

    def _override(self, **changes: object) -> None:
        overrides = self._gang.overrides.model_copy(update=changes)
        if self._run is not None:
            self._run.receive(overrides)
        else:
            self._job = self._job.model_copy(update={"overrides": overrides})
        self._describe()

    def _is_refused(self, job: JobInput) -> bool:
        """Ends the job as UNSCHEDULABLE if it demands more than the scheduler accepts; returns whether it did.

        Not every client checks the demands before it submits the job.
        """
        if job.tasks:
            return False  # an earlier run has asked
        try:
            check_demands(job.spec)
        except InvalidValue as error:
            if not workflow.patched("demands"):
                return False
            self._refuse(TaskState.UNSCHEDULABLE, str(error))
            return True
        return False

    def _refuse(self, state: TaskState, reason: str) -> None:
        """Ends all tasks before they have begun."""
        self._job = self._job.with_tasks(state=state, reason=reason, finished_at=workflow.now())
        self._run = None
        self._describe()

    def _with_children(self, gang: Gang) -> Gang:
        return gang.model_copy(update={"children": self._child_jobs.known})

    # Jobs of independent tasks: each task has its own workflow.

    async def _run_tasks(self) -> None:
        """Runs every task to its end. Once the job's state is decided, it ends the others."""
        starts = asyncio.Semaphore(STARTS_AT_ONCE)
        asyncio.create_task(self._send_overrides())  # noqa: RUF006 - it ends with the workflow
        running = [
            asyncio.create_task(self._run_task(task.index, starts)) for task in self._job.tasks if task.finished_at is None
        ]
        try:
            while running:
                done, running = await workflow.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if not task.cancelled():  # by the user, alone
                        task.result()
                if running and (status := self.status()).state.ended:
                    self._end_reason = f"the job ended {status.state}: {status.reason}"
                    await self._end(running)
                    return
        except asyncio.CancelledError:
            self._end_reason = workflow.cancellation_reason() or "cancelled"
            await self._end(running)
            raise

    async def _send_overrides(self) -> None:
        """Sends the user's changes to the tasks."""
        while True:
            await workflow.wait_condition(lambda: self._job.overrides is not self._sent_overrides)
            overrides = self._sent_overrides = self._job.overrides
            if workflow.patched("overrides-at-once"):
                changed = TaskOverrides(**self._refs(self._children).model_dump(), overrides=overrides)
                if changed.indices:
                    await self._on_tasks(JobTasks.override_tasks, changed)
                continue
            for child in list(self._children.values()):
                with contextlib.suppress(ApplicationError):  # the task has ended
                    await child.signal(TaskWorkflow.override, overrides)

    async def _end(self, running: list[asyncio.Task[None]]) -> None:
        for task in (*running, *([self._earlier_tasks] if self._earlier_tasks is not None else [])):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _run_task(self, index: int, starts: asyncio.Semaphore) -> None:
        if index in self._cancelled:
            self._set_task(self._ended(index))
            return
        if (this := asyncio.current_task()) is not None:
            self._running[index] = this
        try:
            child, overrides = await self._start_task(index, starts)
            self._children[index] = child
            if overrides is not self._job.overrides:  # they changed during the start
                self._sent_overrides = None
            status = await child
        except ChildWorkflowError as error:
            status = self._status_of(index, error)
        except asyncio.CancelledError:
            # Cancelled before the task was started.
            self._set_task(self._ended(index))
            raise
        finally:
            self._children.pop(index, None)
            self._running.pop(index, None)
        self._set_task(status)

    async def _start_task(
        self, index: int, starts: asyncio.Semaphore
    ) -> tuple[workflow.ChildWorkflowHandle[TaskWorkflow, TaskStatus], Overrides]:
        """Starts the task's workflow. Returns it, and the overrides that it was started with."""
        while True:
            try:
                async with starts:
                    while self._earlier_tasks is not None:
                        await asyncio.shield(self._earlier_tasks)
                    overrides = self._job.overrides
                    return await self._start_child(index), overrides
            except WorkflowAlreadyStartedError:
                # A task of an earlier job of this name, which was terminated, is still ending.
                if not workflow.patched("earlier-tasks"):
                    await workflow.sleep(NAME_IN_USE)
                elif self._earlier_tasks is None:
                    self._earlier_tasks = asyncio.create_task(self._wait_for_earlier_tasks(index))

    async def _wait_for_earlier_tasks(self, index: int) -> None:
        """Waits once for all tasks of the earlier job, and shows that as the reason of one task."""
        task = self._job.tasks[index]
        self._set_task(task.model_copy(update={"reason": "a task of an earlier job of this name has not ended yet"}))
        not_started = [each.index for each in self._job.tasks if each.finished_at is None and each.index not in self._children]
        await self._on_tasks(JobTasks.await_earlier_tasks, self._refs(not_started))
        if self._job.tasks[index].finished_at is None:  # the user has not cancelled it
            self._set_task(task)
        self._earlier_tasks = None

    async def _start_child(self, index: int) -> workflow.ChildWorkflowHandle[TaskWorkflow, TaskStatus]:
        return await workflow.start_child_workflow(
            TaskWorkflow.run,
            self._task_input(index),
            id=names.task_workflow(self._job.cluster, names.task_id(self._job.spec.id, index)),
            parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
            cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
            static_summary=f"task {index} of {self._job.spec.replicas}",
            search_attributes=keywords(
                {
                    names.SA_CLUSTER: self._job.cluster,
                    names.SA_KIND: names.KIND_TASK,
                    names.SA_USER: self._job.spec.user,
                    names.SA_PARENT: self._job.spec.id,
                    names.SA_PRIORITY: self._job.band,
                }
            ),
        )

    def _refs(self, indices: Iterable[int]) -> TaskRefs:
        return TaskRefs(cluster=self._job.cluster, job=self._job.spec.id, indices=tuple(indices))

    async def _on_tasks(self, act: Callable[[JobTasks, T], Awaitable[None]], tasks: T) -> None:
        """Performs an activity that takes as long as the slowest of the tasks."""
        await workflow.execute_activity_method(
            act,
            tasks,
            task_queue=names.patient_queue(self._job.cluster),
            start_to_close_timeout=policies.NO_TIMEOUT,
            heartbeat_timeout=policies.HEARTBEAT,
            retry_policy=policies.UNTIL_DONE,
        )

    def _status_of(self, index: int, error: ChildWorkflowError) -> TaskStatus:
        cause = error.cause
        if isinstance(cause, ApplicationError) and cause.details:
            return TaskStatus.model_validate(cause.details[0])
        if is_cancelled_exception(error):
            return self._ended(index)
        return self._ended(index, f"its workflow ended: {cause or error}")

    def _ended(self, index: int, reason: str | None = None) -> TaskStatus:
        """Returns the end of a task that was cancelled, alone or with its job, or whose workflow ended for another `reason`."""
        alone = reason is None and (index in self._cancelled or self._end_reason is None)
        end = {
            "state": TaskState.CANCELLED if alone else TaskState.KILLED,
            "reason": reason or (self._cancelled.get(index, "cancelled") if alone else self._end_reason),
            "finished_at": workflow.now(),
        }
        return self._job.tasks[index].model_copy(update=end)

    def _task_input(self, index: int) -> TaskInput:
        return TaskInput(
            cluster=self._job.cluster,
            spec=self._job.spec,
            index=index,
            parent=workflow.info().workflow_id,
            run_id=self._job.run_id,
            submitted_at=self._job.submission,
            tasks=(self._job.tasks[index],),
            overrides=self._job.overrides,
        )

    # Display.

    def _set_task(self, task: TaskStatus) -> None:
        self._job = self._job.with_task(task.index, task)
        self._describe()

    def _describe(self) -> None:
        status = self.status()
        workflow.set_current_details(web_ui.job_details(self._job.spec, status, self._run.refusal if self._run else None))
        # Show PENDING once the job has to wait, and RUNNING once a host has reported it.
        states = {task.state for task in status.tasks}
        if TaskState.RUNNING in states or (TaskState.BUILDING in states and workflow.patched("true-states")):
            self._listed.show(JobState.RUNNING)
        elif status.state in (JobState.PENDING, JobState.HELD) and status.reason:
            waits_again = status.state is JobState.PENDING and any(task.host for task in status.tasks)
            if not waits_again or workflow.patched("true-states"):
                self._listed.show(status.state)
                self._listed.show_reason(status.state, status.reason if status.state is JobState.HELD else self._waits_for())

    def _waits_for(self) -> str:
        """Returns the code of the scheduler's reason, whose message changes too often for lists; empty if there is none yet."""
        if self._run is not None:
            return self._run.refusal.code if self._run.refusal is not None else ""
        return next((task.code for task in self._job.tasks if task.state is TaskState.PENDING and task.code), "")
