"""Runs the tasks of a job of several independent tasks: each in a workflow of its own, until the
state of the whole job is decided.

`SeparateTasks` is also the base class of `ArrayParts`.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from datetime import datetime

from temporalio import workflow
from temporalio.exceptions import (
    ApplicationError,
    ChildWorkflowError,
    WorkflowAlreadyStartedError,
    is_cancelled_exception,
)

from iris.activities.control.job_tasks import JobTasks
from iris.messages.job_signals import JobMessage
from iris.messages.task import TaskCancellation, TaskInput, TaskOverrides, TaskRefs
from iris.model import names
from iris.model.job.cancelling import Cancelling
from iris.model.job.derived_status import status_of
from iris.model.job.gangs import Gang
from iris.model.job.spec import Overrides
from iris.model.job.status import TaskStatus
from iris.model.states import ENDED, TaskState
from iris.scheduling.jobs.cancellations import Cancellations
from iris.scheduling.ledger.recovery import GangReport
from iris.scheduling.placement.refusals import Refusal, RefusalCode
from iris.workflows.jobs.task import TaskWorkflow
from iris.workflows.patient_call import until_done
from iris.workflows.search_attributes import keywords

#: The maximum number of workflows of tasks that one workflow task starts. Each start carries the
#: job's specification, and all starts go in one request, which Temporal limits to 4 MiB.
STARTS_AT_ONCE = 32


class SeparateTasks:
    """The tasks of a job whose tasks have workflows of their own. While tasks wait, the job shows
    the refusal of one of them: why the scheduler has not placed it.

    Args:
        job: the input of the job's workflow.
        changed: called after each change of the job's status.
    """

    def __init__(self, job: Gang, changed: Callable[[], None]) -> None:
        #: The job with the last reported status of each task.
        self.gang = job
        #: The cancellations of single tasks, by index, also of tasks that have ended since. A task
        #: that was cancelled before it started is not in it.
        self.cancelling: dict[int, Cancelling] = {}
        self._changed = changed

    @property
    def _explained(self) -> TaskStatus | None:
        """The task whose reason the job shows while it waits; None if no task waits with a
        reason.
        """
        return next(
            (task for task in self.gang.tasks if task.state is TaskState.PENDING and task.reason),
            None,
        )

    @property
    def refusal(self) -> Refusal | None:
        """The refusal of the task whose reason the job shows, with the parts that the task has
        reported; None if no refusal is known.
        """
        task = self._explained
        if task is None or task.code not in RefusalCode.__members__:
            return None
        return Refusal(code=RefusalCode(task.code), message=task.reason, remedy=task.remedy)

    @property
    def refused_at(self) -> datetime | None:
        """When the scheduler gave `refusal`."""
        return self._explained.refused_at if self._explained is not None else None

    @property
    def waits_for(self) -> str:
        """Why a task waits, as lists show it: the code of a refusal, or the reason why a set-up is
        tried again. Empty if none is known.
        """
        waiting = [task for task in self.gang.tasks if task.state is TaskState.PENDING]
        code = next((task.code for task in waiting if task.code), "")
        return code or next(
            (
                f"task {task.index}: {task.reason}"
                for task in waiting
                if task.setups and task.reason
            ),
            "",
        )

    @property
    def report(self) -> GangReport:
        """Always empty: the requests and the hosts are those of the tasks' workflows."""
        return GangReport()

    def _cancels(self, index: int, reason: str) -> None:
        """Records the cancellation of a task that has started. Later requests change nothing."""
        self.cancelling.setdefault(
            index, Cancelling.begun(reason, workflow.now(), self.gang.spec.grace)
        )

    def ready(self) -> None:
        """Begins to count the time that tasks wait for hosts: the job's dependencies are met."""
        self.gang = self.gang.model_copy(update={"ready_at": workflow.now()})


class IndependentTasks(SeparateTasks):
    """Runs the independent tasks of a job. `gang` contains their current state.

    Args:
        job: the input of the job's workflow.
        changed: called after each change of a task's status.
        places: how many tasks may have a workflow at the same time, for a part of an array; None
            for a whole job. A part does not decide when its job has ended.
    """

    def __init__(self, job: Gang, changed: Callable[[], None], places: int | None = None) -> None:
        super().__init__(job, changed)
        #: The position of each task in `job.tasks`, and so in `gang.tasks`, by the task's index.
        self._places = {task.index: place for place, task in enumerate(job.tasks)}
        self._is_part = places is not None
        if places is None and job.spec.array is not None:
            places = job.spec.array.limit
        #: The maximum number of tasks that have a workflow at the same time. Without a limit, it is
        #: the number of tasks.
        self.places = len(job.tasks) if places is None else places
        self._window = contextlib.nullcontext() if places is None else asyncio.Semaphore(places)
        self._cancellations = Cancellations()
        #: The coroutines that run the tasks, by index.
        self._running: dict[int, asyncio.Task[None]] = {}
        #: The tasks' workflows that have not ended, by index.
        self._workflows: dict[int, workflow.ChildWorkflowHandle[TaskWorkflow, TaskStatus]] = {}
        #: The overrides that the workflows of all tasks have received; None if some workflows have
        #: earlier overrides.
        self._sent_overrides: Overrides | None = job.overrides
        #: The coroutine that waits until all tasks of an earlier job with the same name have ended.
        #: Until then no task starts.
        self._earlier_tasks: asyncio.Task[None] | None = None

    def receive(self, message: JobMessage) -> None:
        """Records a signal. Messages about a gang are ignored."""
        # A report may arrive after the end.
        match message:
            case Overrides():
                self.gang = self.gang.model_copy(update={"overrides": message})
            case TaskCancellation(index=index, reason=reason) if self._is_live(index):
                self._cancellations = self._cancellations.with_task(index, reason)
                if index in self._running:
                    self._cancels(index, reason)
                    self._changed()
                    self._running[index].cancel(reason)
                else:  # the task has not started, for instance because the job waits for others
                    self._set_task(self._cancelled(index))
            case TaskStatus(index=index) if self._is_live(index):
                self._set_task(message)

    def set_places(self, places: int) -> None:
        """Allows more tasks of a part to have a workflow at the same time."""
        assert isinstance(self._window, asyncio.Semaphore)
        for _ in range(self.places, places):
            self._window.release()
        self.places = max(self.places, places)

    async def run(self) -> None:
        """Runs every task until it has ended. Once the job's state is decided, ends the remaining
        tasks.

        Raises:
            asyncio.CancelledError: the workflow was cancelled; all tasks have ended by then.
        """
        starts = asyncio.Semaphore(STARTS_AT_ONCE)
        asyncio.create_task(self._send_overrides())  # noqa: RUF006 - it ends with the workflow
        running = [
            asyncio.create_task(self._run_task(task.index, starts))
            for task in self.gang.tasks
            if task.finished_at is None
        ]
        try:
            while running:
                done, running = await workflow.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if not task.cancelled():  # the user may cancel a task alone
                        task.result()
                if running and not self._is_part and (status := status_of(self.gang)).state.ended:
                    await self._end(running, f"the job ended {status.state}: {status.reason}")
                    return
        except asyncio.CancelledError:
            await self._end(running, workflow.cancellation_reason() or "cancelled")
            raise

    def _is_live(self, index: int) -> bool:
        return index in self._places and self._task(index).state not in ENDED

    def _task(self, index: int) -> TaskStatus:
        return self.gang.tasks[self._places[index]]

    async def _end(self, running: list[asyncio.Task[None]], reason: str) -> None:
        self._cancellations = self._cancellations.with_all(reason)
        for task in (*running, *([self._earlier_tasks] if self._earlier_tasks is not None else [])):
            task.cancel(reason)
        await asyncio.gather(*running, return_exceptions=True)

    # One task, from its start to its end.

    async def _run_task(self, index: int, starts: asyncio.Semaphore) -> None:
        if not self._is_live(index):  # the user has cancelled it
            return
        if (this := asyncio.current_task()) is not None:
            self._running[index] = this
        try:
            async with self._window:
                started, overrides = await self._start_task(index, starts)
                self._workflows[index] = started
                if overrides is not self.gang.overrides:  # they changed during the start
                    self._sent_overrides = None
                status = await started
        except ChildWorkflowError as error:
            status = self._status_of(index, error)
        except asyncio.CancelledError:
            # Cancelled before the task was started.
            self._set_task(self._cancelled(index))
            raise
        finally:
            self._workflows.pop(index, None)
            self._running.pop(index, None)
        self._set_task(status)

    async def _start_task(
        self, index: int, starts: asyncio.Semaphore
    ) -> tuple[workflow.ChildWorkflowHandle[TaskWorkflow, TaskStatus], Overrides]:
        """Starts the task's workflow. Returns the workflow and the overrides that it has."""
        while True:
            try:
                async with starts:
                    while self._earlier_tasks is not None:
                        await asyncio.shield(self._earlier_tasks)
                    overrides = self.gang.overrides
                    return await self._start_workflow(index), overrides
            except WorkflowAlreadyStartedError:
                # A task of an earlier job of this name, which was terminated, is still ending.
                if self._earlier_tasks is None:
                    self._earlier_tasks = asyncio.create_task(self._wait_for_earlier_tasks(index))

    async def _wait_for_earlier_tasks(self, index: int) -> None:
        """Waits for the end of all tasks of the earlier job, and shows that as the reason of one
        task.
        """
        task = self._task(index)
        self._set_task(
            task.model_copy(
                update={"reason": "a task of an earlier job of this name has not ended yet"}
            )
        )
        not_started = [
            each.index
            for each in self.gang.tasks
            if each.finished_at is None and each.index not in self._workflows
        ]
        await until_done(
            JobTasks.await_earlier_tasks, self._refs(not_started), cluster=self.gang.cluster
        )
        if self._task(index).finished_at is None:  # the user has not cancelled it
            self._set_task(task)
        self._earlier_tasks = None

    async def _start_workflow(
        self, index: int
    ) -> workflow.ChildWorkflowHandle[TaskWorkflow, TaskStatus]:
        job, spec = self.gang, self.gang.spec
        if spec.array is not None:
            spec = spec.model_copy(update={"array": spec.array.only([index]), "replicas": 1})
        return await workflow.start_child_workflow(
            TaskWorkflow.run,
            TaskInput(
                cluster=job.cluster,
                spec=spec,
                index=index,
                parent=workflow.info().workflow_id,
                parent_run=workflow.info().first_execution_run_id,
                run_id=job.run_id,
                submitted_at=job.submission,
                ready_at=job.ready_at,
                admitted_at=workflow.now() if isinstance(self._window, asyncio.Semaphore) else None,
                tasks=(self._task(index),),
                overrides=job.overrides,
            ),
            id=names.task_workflow(job.cluster, names.task_id(job.spec.id, index)),
            parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
            cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
            static_summary=f"task {index} of {job.spec.replicas}",
            search_attributes=keywords(
                {
                    names.SA_CLUSTER: job.cluster,
                    names.SA_KIND: names.KIND_TASK,
                    names.SA_USER: job.spec.user,
                    names.SA_PARENT: job.spec.id,
                    names.SA_PRIORITY: job.band,
                }
            ),
        )

    def _set_task(self, task: TaskStatus) -> None:
        self.gang = self.gang.with_task(self._places[task.index], task)
        self._changed()

    def _status_of(self, index: int, error: ChildWorkflowError) -> TaskStatus:
        cause = error.cause
        if isinstance(cause, ApplicationError) and cause.details:
            return TaskStatus.model_validate(cause.details[0])
        if is_cancelled_exception(error):
            return self._cancelled(index)
        return self._ended(index, TaskState.KILLED, f"its workflow ended: {cause or error}")

    def _cancelled(self, index: int) -> TaskStatus:
        """Returns the end of a task that was cancelled. A task that its job was not asked to cancel
        was cancelled on its page in Temporal's Web UI.
        """
        end = self._cancellations.end_of(index) or (TaskState.CANCELLED, "cancelled")
        return self._ended(index, *end)

    def _ended(self, index: int, state: TaskState, reason: str) -> TaskStatus:
        return self._task(index).model_copy(
            update={"state": state, "reason": reason, "finished_at": workflow.now()}
        )

    # Messages to many tasks go through one activity, so that the history does not grow with the
    # number of tasks.

    async def _send_overrides(self) -> None:
        """Sends the user's changes to the tasks."""
        while True:
            await workflow.wait_condition(lambda: self.gang.overrides is not self._sent_overrides)
            overrides = self._sent_overrides = self.gang.overrides
            changed = TaskOverrides(**self._refs(self._workflows).model_dump(), overrides=overrides)
            if changed.indices:
                await until_done(JobTasks.override_tasks, changed, cluster=self.gang.cluster)

    def _refs(self, indices: Iterable[int]) -> TaskRefs:
        return TaskRefs(cluster=self.gang.cluster, job=self.gang.spec.id, indices=tuple(indices))
