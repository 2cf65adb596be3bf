"""A job: ask, wait, run, account, release, roll up, end.

A job whose tasks form one gang lives that gang's life itself; so does a job of one task. A job of several that go their own ways
gives each a `TaskWorkflow`, so that no history grows with the number of tasks times attempts. A job that failed is a failed
workflow and a cancelled one is cancelled, so Temporal's own lists, colours and buttons mean what they say.
"""

import asyncio
import contextlib
from datetime import timedelta
from typing import NoReturn

from temporalio import workflow
from temporalio.exceptions import ApplicationError, ChildWorkflowError, WorkflowAlreadyStartedError, is_cancelled_exception

from iris import details, names
from iris.gangs import Placement
from iris.jobs import Band, JobStatus, TaskStatus
from iris.preemption import Eviction
from iris.roll import Claim
from iris.states import ENDED, JobState, TaskState, roll_up
from iris.wishes import Hold, Wishes
from iris.workflows.attributes import keywords, show_band, show_state
from iris.workflows.gang_life import GangLife
from iris.workflows.messages import Attempts, JobInput, Reason, TaskInput, TaskProgress
from iris.workflows.on_hosts import Gang
from iris.workflows.task import TaskWorkflow

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
        self._wishes = job.wishes
        #: Which wishes all tasks' workflows have been told; None: some of them have older ones.
        self._passed_on: Wishes | None = job.wishes
        self._children: dict[int, workflow.ChildWorkflowHandle[TaskWorkflow, TaskStatus]] = {}
        self._life: GangLife | None = None
        if job.spec.replicas == 1 or job.spec.coscheduling is not None:
            gang = Gang(
                cluster=job.cluster,
                spec=job.spec,
                run_id=workflow.info().first_execution_run_id,
                submitted_at=self._submitted_at,
                tasks=self._tasks,
                wishes=job.wishes,
                held_for=job.held_for,
                attempts=list(job.attempts),
            )
            self._life = GangLife(gang, self._life_changed, self._renew)
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

    @workflow.signal(description="The scheduler takes the hosts away")
    def evicted(self, eviction: Eviction) -> None:
        if self._life is not None:
            self._life.evicted(eviction)

    @workflow.signal(description="Why the job waits is not what it was")
    def waits(self, reason: Reason) -> None:
        if self._life is not None:
            self._life.waits(reason)

    @workflow.signal(description="Start nothing of this job until it is released; what runs runs on")
    def hold(self, hold: Hold) -> None:
        self._wish(self._wishes.model_copy(update={"hold": hold}))

    @workflow.signal(description="The job may start again")
    def release(self) -> None:
        self._wish(self._wishes.model_copy(update={"hold": None}))

    @workflow.signal(description="Serve the job in another band")
    def set_priority(self, band: Band) -> None:
        show_band(band)
        self._wish(self._wishes.model_copy(update={"band": band}))

    @workflow.signal(description="A task of this job has got further")
    def task_changed(self, task: TaskStatus) -> None:
        if self._tasks[task.index].state not in ENDED:  # news may come after the end
            self._set_task(task)

    @workflow.query(description="The job and its tasks as they are now")
    def status(self) -> JobStatus:
        started = [task.started_at for task in self._tasks if task.started_at]
        finished = [task.finished_at for task in self._tasks if task.finished_at]
        has_run = any(task.attempt for task in self._tasks)
        state = roll_up(
            (task.state for task in self._tasks),
            has_run=has_run,
            max_task_failures=self._job.spec.max_task_failures,
            held=self._wishes.hold is not None,
        )
        return JobStatus(
            id=self._job.spec.id,
            state=state,
            reason=self._reason(state),
            user=self._job.spec.user,
            held=self._wishes.hold is not None,
            submitted_at=self._submitted_at,
            started_at=min(started, default=None),
            finished_at=max(finished, default=None) if state.ended else None,
            tasks=tuple(self._tasks),
        )

    @workflow.query(description="What it waits for or holds, itself")
    def claim(self) -> Claim:
        return self._life.claim if self._life is not None else Claim()

    @workflow.query(description="What became of every attempt; of a job whose tasks go their own ways, ask the tasks")
    def attempts(self) -> Attempts:
        return Attempts(attempts=tuple(self._life.gang.attempts) if self._life is not None else ())

    def _wish(self, wishes: Wishes) -> None:
        self._wishes = wishes
        if self._life is not None:
            self._life.wish(wishes)
        self._describe()

    # One gang: the job lives its life.

    def _life_changed(self) -> None:
        assert self._life is not None
        self._tasks = self._life.gang.tasks
        self._describe()

    def _renew(self) -> NoReturn:
        assert self._life is not None
        gang = self._life.gang
        workflow.continue_as_new(
            JobInput(
                cluster=gang.cluster,
                spec=gang.spec,
                submitted_at=gang.submitted_at,
                tasks=tuple(gang.tasks),
                wishes=gang.wishes,
                held_for=gang.held_for,
                attempts=tuple(gang.attempts),
            )
        )

    # Several tasks: each has a workflow of its own.

    async def _run_tasks(self) -> None:
        """Every task to its end; once the job's state is decided, the others are ended too."""
        starts = asyncio.Semaphore(STARTS_AT_ONCE)
        asyncio.create_task(self._pass_on())  # noqa: RUF006 - it ends with the workflow
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

    async def _pass_on(self) -> None:
        """Tell the tasks what the user has changed."""
        while True:
            await workflow.wait_condition(lambda: self._wishes is not self._passed_on)
            wishes = self._passed_on = self._wishes
            for child in list(self._children.values()):
                with contextlib.suppress(ApplicationError):  # it has ended
                    await child.signal(TaskWorkflow.wish, wishes)

    async def _end(self, running: list[asyncio.Task[None]]) -> None:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _run_task(self, index: int, starts: asyncio.Semaphore) -> None:
        try:
            child, given = await self._start_task(index, starts)
            self._children[index] = child
            if given is not self._wishes:  # they changed while it was being started
                self._passed_on = None
            status = await child
        except ChildWorkflowError as error:
            status = self._status_of(index, error)
        except asyncio.CancelledError:
            # Cancelled before it was started.
            self._set_task(self._ended(index, self._why_ended))
            raise
        finally:
            self._children.pop(index, None)
        self._set_task(status)

    async def _start_task(
        self, index: int, starts: asyncio.Semaphore
    ) -> tuple[workflow.ChildWorkflowHandle[TaskWorkflow, TaskStatus], Wishes]:
        """The task's workflow, and the wishes that it was started with."""
        while True:
            try:
                async with starts:
                    given = self._wishes
                    return await self._start_child(index), given
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
                    names.SA_PRIORITY: self._wishes.band or self._job.spec.band,
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
            wishes=self._wishes,
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
        elif status.state in (JobState.PENDING, JobState.HELD) and status.reason:
            self._show(status.state)

    def _show(self, state: JobState) -> None:
        if state is not self._shown_state:
            self._shown_state = state
            show_state(state)

    def _reason(self, state: JobState) -> str:
        """The first task's reason that explains the state, with the task's number where there are several."""
        if state is JobState.HELD:
            return str(self._wishes.hold)
        explains = {
            JobState.PENDING: (TaskState.PENDING,),
            JobState.FAILED: (TaskState.FAILED,),
            JobState.KILLED: (TaskState.KILLED,),
            JobState.WORKER_FAILED: (TaskState.WORKER_FAILED, TaskState.PREEMPTED),
            JobState.UNSCHEDULABLE: (TaskState.UNSCHEDULABLE,),
            JobState.RUNNING: (TaskState.PENDING,),
        }.get(state, ())
        tasks = self._tasks
        together = self._life is not None
        if self._life is not None and state.ended and self._life.gang.attempts:
            # The one that brought down the others explains the end; theirs only point to it.
            last = self._life.gang.attempts[-1]
            tasks = sorted(tasks, key=lambda task: task.reason != last.reason)
        for task in tasks:
            if task.state in explains and task.reason:
                alone = len(tasks) == 1 or (together and state not in (JobState.FAILED, JobState.WORKER_FAILED))
                return task.reason if alone else f"{self._limit(state)}task {task.index}: {task.reason}"
        return ""

    def _limit(self, state: JobState) -> str:
        """The limit that failed a job of several tasks."""
        if state is not JobState.FAILED or self._life is not None:
            return ""
        failed = sum(task.state is TaskState.FAILED for task in self._tasks)
        return f"{failed} failed, more than max_task_failures {self._job.spec.max_task_failures}; "
