"""Runs one task of a job of several independent tasks, as a job of one task runs, and reports its state to the job."""

import asyncio
from datetime import timedelta
from typing import NoReturn

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from iris.messages.job import Attempts
from iris.messages.scheduler import Reason
from iris.messages.task import TaskInput, TaskProgress
from iris.model.jobs import TaskStatus
from iris.model.overrides import Overrides
from iris.model.requests import Placement
from iris.model.states import TaskState
from iris.scheduling.preemption import Eviction
from iris.scheduling.recovery import Claim
from iris.workflows import web_ui
from iris.workflows.gang_attempt import Gang
from iris.workflows.gang_run import GangRun
from iris.workflows.search_attributes import show_band, show_state

#: The pause after each report. A thousand tasks with nine reports each stay below the 10,000 signals that a workflow takes.
NEWS_PAUSES = tuple(timedelta(seconds=seconds) for seconds in (1, 1, 10, 100, 10**3, 10**4, 10**5, 10**6, 10**6))


@workflow.defn
class TaskWorkflow:
    @workflow.init
    def __init__(self, task: TaskInput) -> None:
        self._task = task
        gang = Gang(
            cluster=task.cluster,
            spec=task.spec,
            run_id=task.run_id,
            submitted_at=task.submitted_at,
            tasks=[task.status or TaskStatus(index=task.index)],
            wishes=task.wishes,
            held_for=task.held_for,
            attempts=list(task.attempts),
        )
        self._life = GangRun(gang, self._changed, self._renew)
        self._news: list[TaskStatus] = []

    @workflow.run
    async def run(self, task: TaskInput) -> TaskStatus:
        teller = asyncio.create_task(self._tell_parent())
        try:
            await self._life.run()
        except asyncio.CancelledError:
            show_state(self.status().state)
            raise
        finally:
            teller.cancel()
        status = self.status()
        if status.state is not TaskState.SUCCEEDED:
            show_state(status.state)
            raise ApplicationError(status.reason, status, type=status.state, non_retryable=True)
        return status

    @workflow.signal(description="The scheduler found a host")
    def placed(self, placement: Placement) -> None:
        self._life.placed(placement)

    @workflow.signal(description="The host says how far the program is")
    def task_progress(self, progress: TaskProgress) -> None:
        self._life.progressed(progress)

    @workflow.signal(description="The scheduler takes the host away")
    def evicted(self, eviction: Eviction) -> None:
        self._life.evicted(eviction)

    @workflow.signal(description="Why the task waits is not what it was")
    def waits(self, reason: Reason) -> None:
        self._life.waits(reason)

    @workflow.signal(description="The user has changed the band, holds the job back, or lets it go")
    def wish(self, wishes: Overrides) -> None:
        if wishes.band is not None and wishes.band is not self._life.gang.wishes.band:
            show_band(wishes.band)
        self._life.wish(wishes)

    @workflow.query(description="The task as it is now")
    def status(self) -> TaskStatus:
        return self._life.gang.tasks[0]

    @workflow.query(description="What it waits for or holds, itself")
    def claim(self) -> Claim:
        return self._life.claim

    @workflow.query(description="What became of every attempt")
    def attempts(self) -> Attempts:
        return Attempts(attempts=tuple(self._life.gang.attempts))

    def _renew(self) -> NoReturn:
        gang = self._life.gang
        changes = {"status": self.status(), "wishes": gang.wishes, "held_for": gang.held_for, "attempts": tuple(gang.attempts)}
        workflow.continue_as_new(self._task.model_copy(update=changes))

    def _changed(self) -> None:
        """Shows the new state, and reports to the job that the task runs or waits again. Its end reaches the job as this
        workflow's own end."""
        status = self.status()
        workflow.set_current_details(web_ui.task_details(self._task.spec, status))
        if status.state is TaskState.RUNNING or (status.state is TaskState.PENDING and status.reason):
            self._news = [status]

    async def _tell_parent(self) -> None:
        """Reports the latest status, at growing intervals: a job's history must not grow with tasks times attempts."""
        parent = workflow.get_external_workflow_handle(self._task.parent, run_id=self._task.run_id)
        for pause in NEWS_PAUSES:
            await workflow.wait_condition(lambda: bool(self._news))
            status = self._news.pop()
            try:
                await parent.signal("task_changed", status)
            except ApplicationError:
                return  # the job is gone; this task is about to be cancelled
            await workflow.sleep(pause)
