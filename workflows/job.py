"""A job: ask, wait, run, account, release, roll up, end.

A job of one task lives that task's life itself. A job of several gives each task a `TaskWorkflow`, so that no history grows with
the number of tasks times attempts. A job that failed is a failed workflow and a cancelled one is cancelled, so Temporal's own
lists, colours and buttons mean what they say.
"""

import asyncio
from datetime import timedelta
from typing import NoReturn

from temporalio import workflow
from temporalio.exceptions import ApplicationError, ChildWorkflowError, WorkflowAlreadyStartedError, is_cancelled_exception

from iris import details, names
from iris.jobs import JobStatus, TaskStatus
from iris.placement import Placement
from iris.states import ENDED, JobState, TaskState, roll_up
from iris.workflows.attributes import keywords, show_state
from iris.workflows.messages import JobInput, TaskInput, TaskProgress
from iris.workflows.task import TaskWorkflow
from iris.workflows.task_life import TaskLife

#: Children started by one workflow task: each start carries the job's specification, and all of them go in one 4 MiB request.
STARTS_AT_ONCE = 32
#: Between two tries to start a task whose id is still in use.
NAME_IN_USE = timedelta(seconds=5)
#: Some tens of kilobytes.
TASKS_IN_RESULT = 100


@workflow.defn
class JobWorkflow:
    @workflow.init
    def __init__(self, job: JobInput) -> None:
        self._job = job
        self._submitted_at = job.submitted_at or workflow.info().workflow_start_time
        self._tasks = list(job.tasks) or [TaskStatus(index=index) for index in range(job.spec.replicas)]
        #: What lists show; a short job is spared the events until it has ended otherwise than well.
        self._shown_state: JobState | None = None
        #: What tasks that are ended by their job show as their reason.
        self._why_ended = "cancelled"
        self._life = TaskLife(self._task_input(0), self._life_changed, self._renew) if job.spec.replicas == 1 else None
        self._describe()

    @workflow.run
    async def run(self, job: JobInput) -> JobStatus:
        try:
            if self._life is not None:
                await self._life.run()
            else:
                await self._run_tasks()
        except asyncio.CancelledError:
            self._describe()
            self._show(self.status().state)
            raise
        status = self.status()
        if status.state is not JobState.SUCCEEDED or self._shown_state is not None:
            self._show(status.state)
        # The history keeps the end of a large job short; the query has all of it.
        end = status.model_copy(update={"tasks": status.tasks[:TASKS_IN_RESULT]})
        if status.state is not JobState.SUCCEEDED:
            raise ApplicationError(status.reason, end, type=status.state, non_retryable=True)
        return end

    @workflow.signal(description="The scheduler found a host")
    def placed(self, placement: Placement) -> None:
        if self._life is not None:
            self._life.placed(placement)

    @workflow.signal(description="The host says how far the program is")
    def task_progress(self, progress: TaskProgress) -> None:
        if self._life is not None:
            self._life.progressed(progress)

    @workflow.signal(description="A task of this job has got further")
    def task_changed(self, task: TaskStatus) -> None:
        if self._tasks[task.index].state not in ENDED:  # news may come after the end
            self._set_task(task)

    @workflow.query(description="The job and its tasks as they are now")
    def status(self) -> JobStatus:
        started = [task.started_at for task in self._tasks if task.started_at]
        finished = [task.finished_at for task in self._tasks if task.finished_at]
        has_run = any(task.attempt for task in self._tasks)
        state = roll_up((task.state for task in self._tasks), has_run=has_run, max_task_failures=self._job.spec.max_task_failures)
        return JobStatus(
            id=self._job.spec.id,
            state=state,
            reason=self._reason(state),
            user=self._job.spec.user,
            submitted_at=self._submitted_at,
            started_at=min(started, default=None),
            finished_at=max(finished, default=None) if state.ended else None,
            tasks=tuple(self._tasks),
        )

    # One task: the job lives its life.

    def _life_changed(self) -> None:
        assert self._life is not None
        self._set_task(self._life.status)

    def _renew(self) -> NoReturn:
        workflow.continue_as_new(
            JobInput(cluster=self._job.cluster, spec=self._job.spec, submitted_at=self._submitted_at, tasks=tuple(self._tasks))
        )

    # Several tasks: each has a workflow of its own.

    async def _run_tasks(self) -> None:
        """Every task to its end; once the job's state is decided, the others are ended too."""
        starts = asyncio.Semaphore(STARTS_AT_ONCE)
        running = [asyncio.create_task(self._run_task(task.index, starts)) for task in self._tasks if task.finished_at is None]
        try:
            while running:
                done, running = await workflow.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                if running and (status := self.status()).state.ended:
                    self._why_ended = f"the job ended {status.state}: {status.reason}"
                    await self._end(running)
                    return
        except asyncio.CancelledError:
            self._why_ended = workflow.cancellation_reason() or "cancelled"
            await self._end(running)
            raise

    async def _end(self, running: list[asyncio.Task[None]]) -> None:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _run_task(self, index: int, starts: asyncio.Semaphore) -> None:
        try:
            child = await self._start_task(index, starts)
            status = await child
        except ChildWorkflowError as error:
            status = self._status_of(index, error)
        except asyncio.CancelledError:
            # Cancelled before it was started.
            self._set_task(self._ended(index, self._why_ended))
            raise
        self._set_task(status)

    async def _start_task(self, index: int, starts: asyncio.Semaphore) -> workflow.ChildWorkflowHandle[TaskWorkflow, TaskStatus]:
        while True:
            try:
                async with starts:
                    return await self._start_child(index)
            except WorkflowAlreadyStartedError:
                # A task of an earlier job of this name, which was terminated, is still being ended.
                await workflow.sleep(NAME_IN_USE)

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
                    names.SA_PRIORITY: self._job.spec.band,
                }
            ),
        )

    def _status_of(self, index: int, error: ChildWorkflowError) -> TaskStatus:
        cause = error.cause
        if isinstance(cause, ApplicationError) and cause.details:
            return TaskStatus.model_validate(cause.details[0])
        if is_cancelled_exception(error):
            return self._ended(index, self._why_ended)
        return self._ended(index, f"its workflow ended: {cause or error}")

    def _ended(self, index: int, reason: str) -> TaskStatus:
        return self._tasks[index].model_copy(update={"state": TaskState.KILLED, "reason": reason, "finished_at": workflow.now()})

    def _task_input(self, index: int) -> TaskInput:
        return TaskInput(
            cluster=self._job.cluster,
            spec=self._job.spec,
            index=index,
            parent=workflow.info().workflow_id,
            run_id=workflow.info().first_execution_run_id,
            submitted_at=self._submitted_at,
            status=self._tasks[index],
        )

    # What is shown.

    def _set_task(self, task: TaskStatus) -> None:
        self._tasks[task.index] = task
        self._describe()

    def _describe(self) -> None:
        status = self.status()
        workflow.set_current_details(details.job_details(self._job.spec, status))
        # PENDING is shown once it has to wait, RUNNING once a host has reported it.
        if any(task.state is TaskState.RUNNING for task in self._tasks):
            self._show(JobState.RUNNING)
        elif status.state is JobState.PENDING and status.reason:
            self._show(JobState.PENDING)

    def _show(self, state: JobState) -> None:
        if state is not self._shown_state:
            self._shown_state = state
            show_state(state)

    def _reason(self, state: JobState) -> str:
        """The first task's reason that explains the state, with the task's number where there are several."""
        explains = {
            JobState.PENDING: (TaskState.PENDING,),
            JobState.FAILED: (TaskState.FAILED,),
            JobState.KILLED: (TaskState.KILLED,),
            JobState.WORKER_FAILED: (TaskState.WORKER_FAILED, TaskState.PREEMPTED),
            JobState.UNSCHEDULABLE: (TaskState.UNSCHEDULABLE,),
            JobState.RUNNING: (TaskState.PENDING,),
        }.get(state, ())
        for task in self._tasks:
            if task.state in explains and task.reason:
                return task.reason if len(self._tasks) == 1 else f"{self._limit(state)}task {task.index}: {task.reason}"
        return ""

    def _limit(self, state: JobState) -> str:
        """The limit that failed a job of several tasks."""
        if state is not JobState.FAILED:
            return ""
        failed = sum(task.state is TaskState.FAILED for task in self._tasks)
        return f"{failed} failed, more than max_task_failures {self._job.spec.max_task_failures}; "
