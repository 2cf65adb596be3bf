"""Defines the workflow of a part of a large array: it runs the part's tasks, and reports their
status to the job.

If the job itself started ten thousand tasks and received a signal from each, its history would
exceed Temporal's limits. A part always completes, also when it is cancelled: its result is the
status of its tasks, and the job decides what follows from it.
"""

import asyncio
import builtins
import contextlib
from datetime import timedelta

from temporalio import workflow

from iris.messages.array_part import PartInput, PartReport, Places
from iris.messages.task import TaskCancellation
from iris.model.job.spec import Overrides
from iris.model.job.status import TaskStatus
from iris.model.states import ENDED, TaskState
from iris.workflows.jobs.independent_tasks import IndependentTasks
from iris.workflows.signals import send_signal

#: The first pause between two reports of an array's part to its job, and the factor by which each
#: further pause is longer. In a week of changes, a part sends about 120 reports. The 40 parts of
#: the largest array then send half as many signals as one workflow accepts.
FIRST_PAUSE, GROWTH = timedelta(seconds=1), 1.1
#: The maximum number of reports about failed or cancelled tasks that one run of a part's workflow
#: sends before the pause after the previous report is over. A failure may end the job, and a user
#: may wait for a cancellation.
EARLY_REPORTS = 50
#: When a part has fewer unfinished tasks than it may run at the same time, it reports each time
#: their number has decreased to this share of the last reported number. The job then lets other
#: parts run more tasks at the same time.
REST = 0.9
#: If a task enters one of these states, the part reports the task before the pause after the last
#: report is over.
URGENT = (TaskState.FAILED, TaskState.CANCELLED)


@workflow.defn
class ArrayPartWorkflow:
    @workflow.init
    def __init__(self, part: PartInput) -> None:
        self._part = part
        self._reported = tuple(TaskStatus(index=index) for index in part.spec.indices)
        gang = part.model_copy(update={"tasks": self._reported})
        self._tasks = IndependentTasks(gang, lambda: None, places=part.places)
        for index, reason in part.cancelled.items():
            self.cancel_task(TaskCancellation(index=index, reason=reason))
        self._early_reports = EARLY_REPORTS

    @workflow.run
    async def run(self, part: PartInput) -> PartReport:
        reports = asyncio.create_task(self._report())
        # After a cancellation the tasks have ended, and the job knows why.
        with contextlib.suppress(asyncio.CancelledError):
            await self._tasks.run()
        reports.cancel()
        return PartReport(tasks=self._tasks.gang.tasks)

    @workflow.signal(description="A new status of a task of this part")
    def task_changed(self, task: TaskStatus) -> None:
        self._tasks.receive(task)

    @workflow.signal(description="Cancel one task; the others continue")
    def cancel_task(self, cancellation: TaskCancellation) -> None:
        self._tasks.receive(cancellation)

    @workflow.signal(description="Change the priority, or hold or release the tasks")
    def override(self, overrides: Overrides) -> None:
        self._tasks.receive(overrides)

    @workflow.signal(description="More tasks may run at the same time")
    def set_places(self, places: Places) -> None:
        self._tasks.set_places(places.places)

    @workflow.query(description="The current status of the tasks")
    def status(self) -> PartReport:
        return PartReport(tasks=self._tasks.gang.tasks)

    async def _report(self) -> None:
        """Reports the changes at growing intervals: otherwise, the job's history would grow with
        the number of tasks and attempts.
        """
        parent = workflow.get_external_workflow_handle(
            self._part.parent, run_id=self._part.parent_run
        )
        pause = FIRST_PAUSE
        while True:
            await workflow.wait_condition(lambda: self._tasks.gang.tasks is not self._reported)
            before, self._reported = self._reported, self._tasks.gang.tasks
            changed = tuple(
                now for now, old in zip(self._reported, before, strict=True) if now is not old
            )
            if not await send_signal(parent, "part_changed", PartReport(tasks=changed)):
                return  # the job is gone; this part is about to be cancelled
            await workflow.sleep(FIRST_PAUSE)
            with contextlib.suppress(builtins.TimeoutError):
                await workflow.wait_condition(self._is_urgent, timeout=pause)
            pause *= GROWTH

    def _is_urgent(self) -> bool:
        """Returns whether to report the changes before the pause is over."""
        tasks, known = self._tasks.gang.tasks, self._reported
        if tasks is known:
            return False
        left, known_left = _unfinished(tasks), _unfinished(known)
        if left < self._tasks.places and left <= REST * known_left:
            return True
        if _urgent(tasks) > _urgent(known) and self._early_reports:
            self._early_reports -= 1
            return True
        return False


def _unfinished(tasks: tuple[TaskStatus, ...]) -> int:
    return sum(task.state not in ENDED for task in tasks)


def _urgent(tasks: tuple[TaskStatus, ...]) -> int:
    return sum(task.state in URGENT for task in tasks)
