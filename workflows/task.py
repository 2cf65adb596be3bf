"""One task of a job of several: the same life that a job of one task lives, told to the job as it goes."""

import asyncio
from datetime import timedelta
from typing import NoReturn

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from iris import details
from iris.gangs import Placement
from iris.jobs import TaskStatus
from iris.preemption import Eviction
from iris.roll import Claim
from iris.states import TaskState
from iris.wishes import Wishes
from iris.workflows.attributes import show_band, show_state
from iris.workflows.gang_life import GangLife
from iris.workflows.messages import Attempts, Reason, TaskInput, TaskProgress
from iris.workflows.on_hosts import Gang

#: After each piece of news; a thousand tasks with nine each stay below the 10,000 signals that a workflow takes.
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
        self._life = GangLife(gang, self._changed, self._renew)
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
    def wish(self, wishes: Wishes) -> None:
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
        """The job hears what its users wait for: that the task runs, or waits again. Ends travel as this workflow's own end."""
        status = self.status()
        workflow.set_current_details(details.task_details(self._task.spec, status))
        if status.state is TaskState.RUNNING or (status.state is TaskState.PENDING and status.reason):
            self._news = [status]

    async def _tell_parent(self) -> None:
        """Tell the latest news, ever less often: a job's history must not grow with tasks times attempts."""
        parent = workflow.get_external_workflow_handle(self._task.parent, run_id=self._task.run_id)
        for pause in NEWS_PAUSES:
            await workflow.wait_condition(lambda: bool(self._news))
            status = self._news.pop()
            try:
                await parent.signal("task_changed", status)
            except ApplicationError:
                return  # the job is gone; this task is about to be cancelled
            await workflow.sleep(pause)
