"""Defines the workflow of one task of a job of several independent tasks. It runs the task like a
job of one task, and reports the task's state to the job.
"""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from iris.messages.job import Attempts
from iris.messages.scheduler import Reason
from iris.messages.task import OwnStatus, TaskInput, TaskProgress
from iris.model.job.cancelling import Cancelling
from iris.model.job.requests import Placement
from iris.model.job.spec import Overrides
from iris.model.job.status import TaskStatus
from iris.model.states import ENDED, TaskState
from iris.scheduling.ledger.recovery import GangReport
from iris.scheduling.placement.preemption import Eviction
from iris.workflows import web_ui
from iris.workflows.jobs.gang_run import GangRun
from iris.workflows.search_attributes import show_band, show_state
from iris.workflows.signals import send_signal

#: The pauses after the first, the second and each further report of a task to its job. A thousand
#: tasks with nine reports each send fewer signals than the 10,000 that one workflow accepts.
REPORT_PAUSES = tuple(
    timedelta(seconds=seconds) for seconds in (1, 1, 10, 100, 10**3, 10**4, 10**5, 10**6, 10**6)
)


@workflow.defn
class TaskWorkflow:
    @workflow.init
    def __init__(self, task: TaskInput) -> None:
        self._task = task
        self._run = GangRun(task, self._changed)
        #: The status to report to the job; None if the job has received the current status.
        self._unreported: TaskStatus | None = None
        #: The last status that was reported to the job, or that waits in `_unreported`.
        self._reported = task.tasks[0]
        #: The cancellation of the task; None if it is not cancelled.
        self._cancelling: Cancelling | None = None

    @workflow.run
    async def run(self, task: TaskInput) -> TaskStatus:
        reports = asyncio.create_task(self._report())
        asyncio.create_task(self._show_cancellation())  # noqa: RUF006 - it ends with the workflow
        try:
            await self._run.run()
        except asyncio.CancelledError:
            show_state(self.status().state)
            raise
        finally:
            reports.cancel()
        status = self.status()
        if status.state is not TaskState.SUCCEEDED:
            show_state(status.state)
            raise ApplicationError(status.reason, status, type=status.state, non_retryable=True)
        return status

    @workflow.signal(description="Hosts from the scheduler")
    def placed(self, placement: Placement) -> None:
        self._run.receive(placement)

    @workflow.signal(description="Progress of the program, from its host")
    def task_progress(self, progress: TaskProgress) -> None:
        self._run.receive(progress)

    @workflow.signal(description="Eviction by the scheduler, or hosts that no longer exist")
    def evicted(self, eviction: Eviction) -> None:
        self._run.receive(eviction)

    @workflow.signal(description="A new reason why the task waits")
    def waits(self, reason: Reason) -> None:
        self._run.receive(reason)

    @workflow.signal(description="Change the priority, or hold or release the task")
    def override(self, overrides: Overrides) -> None:
        if overrides.band is not None and overrides.band is not self._run.gang.overrides.band:
            show_band(overrides.band)
        self._run.receive(overrides)

    @workflow.query(description="The current status of the task")
    def status(self) -> TaskStatus:
        task = self._run.gang.first
        if self._cancelling is None or task.state in ENDED:
            return task
        return task.model_copy(
            update={"cancelling": self._cancelling, "reason": str(self._cancelling)}
        )

    @workflow.query(
        description=(
            "The current status of the task, and the run of its job, for a client that knows both"
            " by name"
        )
    )
    def own_status(self) -> OwnStatus:
        return OwnStatus(run_id=self._task.run_id, task=self.status())

    @workflow.query(
        description=(
            "The request or the placement that the task has, for a scheduler that recovers its"
            " ledger"
        )
    )
    def claim(self) -> GangReport:
        return self._run.report

    @workflow.query(description="The records of all attempts")
    def attempts(self) -> Attempts:
        return Attempts(attempts=self._run.gang.attempts)

    def _changed(self) -> None:
        """Shows the new state. Also reports it to the job if the task is being prepared, runs or
        waits. The end of the task is not reported: the job sees the end of this workflow.
        """
        self._describe()
        status = self._run.gang.first
        waits = status.state is TaskState.PENDING and status.reason
        known = self._reported
        # Only the first step of a preparation is reported: the number of reports is limited.
        built = status.state is TaskState.BUILDING and (known.state, known.attempt) != (
            status.state,
            status.attempt,
        )
        if (status.state is TaskState.RUNNING or waits or built) and not self._known(status):
            self._unreported = self._reported = status

    def _describe(self) -> None:
        workflow.set_current_details(
            web_ui.task_details(
                self._task.spec, self.status(), self._run.refusal, self._run.refused_at
            )
        )

    async def _show_cancellation(self) -> None:
        """Shows the cancellation of the task as soon as it arrives: the program may run on for its
        whole grace period.
        """
        await workflow.wait_condition(lambda: workflow.cancellation_reason() is not None)
        self._cancelling = Cancelling.begun(
            workflow.cancellation_reason(), workflow.now(), self._task.spec.grace
        )
        self._describe()

    def _known(self, status: TaskStatus) -> bool:
        """Returns whether the job knows the status: it was reported, or only a hold differs, which
        the job itself has sent.
        """
        held = (
            self._run.gang.overrides.hold is not None
            and status.state is TaskState.PENDING is self._reported.state
        )
        return held or status == self._reported

    async def _report(self) -> None:
        """Reports the latest status at growing intervals: otherwise, the job's history would grow
        with the number of tasks and attempts.
        """
        parent = workflow.get_external_workflow_handle(
            self._task.parent, run_id=self._task.parent_run
        )
        for pause in REPORT_PAUSES:
            await workflow.wait_condition(lambda: self._unreported is not None)
            status, self._unreported = self._unreported, None
            assert status is not None
            if status.state is TaskState.PENDING and self._run.refusal is not None:
                refusal = self._run.refusal
                known = {
                    "code": refusal.code,
                    "remedy": refusal.remedy,
                    "refused_at": self._run.refused_at,
                }
                status = status.model_copy(update=known)
            if not await send_signal(parent, "task_changed", status):
                return  # the job is gone; this task is about to be cancelled
            await workflow.sleep(pause)
