"""Runs a large array: each of its parts in a workflow of its own, within the array's limit, until
the state of the whole job is decided.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError, ChildWorkflowError, WorkflowAlreadyStartedError

from iris.activities.control.job_tasks import JobTasks
from iris.messages.array_part import PartInput, PartRef, PartReport, Places
from iris.messages.job_signals import JobMessage
from iris.messages.task import TaskCancellation
from iris.model import names
from iris.model.job.arrays import KIND_PART, MAX_KEPT_REASON, format_indices, part_workflow
from iris.model.job.demand_limits import cut
from iris.model.job.derived_status import rolled_up, status_of
from iris.model.job.gangs import Gang
from iris.model.job.spec import Overrides
from iris.model.job.status import TaskStatus
from iris.model.states import ENDED, TaskState
from iris.scheduling.jobs.array_windows import PartLoad, chunks, shares
from iris.scheduling.jobs.cancellations import Cancellations
from iris.workflows.jobs.array_part import ArrayPartWorkflow
from iris.workflows.jobs.independent_tasks import SeparateTasks
from iris.workflows.patient_call import until_done
from iris.workflows.search_attributes import keywords

#: The maximum number of tasks of an array that have a workflow at the same time. A control plane
#: keeps five times as many workflows in memory (`CACHED_WORKFLOWS`).
MOST_AT_ONCE = 1_000


class _Part:
    """A part of the array, with the signals that its workflow has not received yet."""

    def __init__(self, number: int, indices: Sequence[int]) -> None:
        self.number = number
        self.indices = indices
        #: The number of tasks of the part that have not ended.
        self.unfinished = len(indices)
        #: The maximum number of tasks of the part that may have a workflow at the same time.
        self.places = 0
        #: The coroutine that runs the part's workflow; None before the part begins.
        self.running: asyncio.Task[None] | None = None
        #: The names of the signals to send, with their arguments.
        self.unsent: list[tuple[str, Any]] = []


class ArrayParts(SeparateTasks):
    """Runs the parts of a large array. `gang` contains the last reported status of each task.

    Args:
        job: the input of the job's workflow.
        changed: called after each report.
    """

    def __init__(self, job: Gang, changed: Callable[[], None]) -> None:
        assert job.spec.array is not None
        super().__init__(job, changed)
        self._limit = min(job.spec.array.limit or MOST_AT_ONCE, MOST_AT_ONCE)
        self._parts = [
            _Part(number, each)
            for number, each in enumerate(chunks(job.spec.indices, job.spec.array.part))
        ]
        self._part_of = {index: part for part in self._parts for index in part.indices}
        self._places = {task.index: place for place, task in enumerate(job.tasks)}
        self._cancellations = Cancellations()
        for task in job.tasks:
            # The user has cancelled it while an earlier run of the workflow waited for other jobs.
            if task.state in ENDED:
                self._cancellations = self._cancellations.with_task(task.index, task.reason)
                self._part_of[task.index].unfinished -= 1
        #: The statuses that parts have reported and that are not in `gang` yet. Several are added
        #: at once: with ten thousand tasks, it would take too long to make a new `gang` for each
        #: signal.
        self._reported: list[TaskStatus] = []

    def receive(self, message: JobMessage) -> None:
        """Records a signal. Messages about a gang are ignored."""
        match message:
            case Overrides():
                self.gang = self.gang.model_copy(update={"overrides": message})
                for part in self._parts:
                    part.unsent.append(("override", message))
            case TaskCancellation(index=index, reason=reason):
                if (part_of := self._part_of.get(index)) is not None:
                    self._cancellations = self._cancellations.with_task(index, reason)
                    part_of.unsent.append(("cancel_task", message))
                    if part_of.running is not None:
                        self._cancels(index, reason)
                    else:
                        self._reported += self._unfinished([index], reason, TaskState.CANCELLED)
                        if not self._running:  # the job waits for other jobs
                            self._take_reports()
            case PartReport(tasks=tasks):
                self._reported += tasks

    async def run(self) -> None:
        """Runs every part until it has ended. Once the job's state is decided, ends the remaining
        parts.

        Raises:
            asyncio.CancelledError: the workflow was cancelled; all tasks have ended by then.
        """
        try:
            while any(part.unfinished for part in self._parts):
                self._share_places()
                await workflow.wait_condition(lambda: bool(self._reported))
                self._take_reports()
                if rolled_up(self.gang).ended and any(part.unfinished for part in self._parts):
                    status = status_of(self.gang)
                    await self._end(f"the job ended {status.state}: {status.reason}")
            await asyncio.gather(*self._running)
        except asyncio.CancelledError:
            await self._end(workflow.cancellation_reason() or "cancelled")
            raise

    @property
    def _running(self) -> list[asyncio.Task[None]]:
        return [part.running for part in self._parts if part.running is not None]

    def _share_places(self) -> None:
        loads = [PartLoad(part.unfinished, part.places) for part in self._parts]
        for part, places in zip(self._parts, shares(self._limit, loads), strict=True):
            if places > part.places:
                part.places = places
                part.unsent.append(("set_places", Places(places=places)))
                if part.running is None:
                    part.running = asyncio.create_task(self._run_part(part))

    async def _end(self, reason: str) -> None:
        """Ends all parts, and the tasks of parts that have not started."""
        self._cancellations = self._cancellations.with_all(reason)
        for each in self._running:
            each.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._take_reports()
        self._reported += self._unfinished(self._places, reason)
        self._take_reports()

    async def _run_part(self, part: _Part) -> None:
        sender: asyncio.Task[None] | None = None
        # The job may end before the part has started.
        with contextlib.suppress(asyncio.CancelledError):
            try:
                started = await self._start(part)
                sender = asyncio.create_task(self._send(part, started))
                end = await started  # apart from the next line, which must not read before this
                self._reported += end.tasks
            except ChildWorkflowError as error:
                self._reported += self._unfinished(
                    part.indices, f"the workflow of its part ended: {error.cause or error}"
                )
        if sender is not None:
            sender.cancel()

    async def _start(
        self, part: _Part
    ) -> workflow.ChildWorkflowHandle[ArrayPartWorkflow, PartReport]:
        while True:
            try:
                return await self._start_workflow(part)
            except WorkflowAlreadyStartedError:
                # A part of an earlier job of this name, which was terminated, is still ending.
                await self._wait_for_earlier_part(part)

    async def _wait_for_earlier_part(self, part: _Part) -> None:
        """Waits for the end of the earlier job's part, and shows that as the reason of one task."""
        task = self.gang.tasks[self._places[part.indices[0]]]
        self._reported.append(
            task.model_copy(
                update={"reason": "a part of an earlier job of this name has not ended yet"}
            )
        )
        earlier = PartRef(cluster=self.gang.cluster, job=self.gang.spec.id, number=part.number)
        await until_done(JobTasks.await_earlier_part, earlier, cluster=earlier.cluster)
        self._reported.append(task)

    async def _start_workflow(
        self, part: _Part
    ) -> workflow.ChildWorkflowHandle[ArrayPartWorkflow, PartReport]:
        job, indices, info = self.gang, part.indices, workflow.info()
        assert job.spec.array is not None
        array = job.spec.array.only(indices)
        alone = self._cancellations.alone
        part.unsent.clear()  # the input contains all of it
        return await workflow.start_child_workflow(
            ArrayPartWorkflow.run,
            PartInput(
                cluster=job.cluster,
                spec=job.spec.model_copy(update={"array": array, "replicas": len(indices)}),
                run_id=job.run_id,
                submitted_at=job.submission,
                ready_at=job.ready_at,
                overrides=job.overrides,
                parent=info.workflow_id,
                parent_run=info.first_execution_run_id,
                places=part.places,
                cancelled={index: alone[index] for index in indices if index in alone},
            ),
            id=part_workflow(job.cluster, job.spec.id, part.number),
            parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
            cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
            static_summary=f"tasks {cut(format_indices(indices), 60)}",
            search_attributes=keywords(
                {
                    names.SA_CLUSTER: job.cluster,
                    names.SA_KIND: KIND_PART,
                    names.SA_USER: job.spec.user,
                    names.SA_PARENT: job.spec.id,
                }
            ),
        )

    async def _send(
        self, part: _Part, started: workflow.ChildWorkflowHandle[ArrayPartWorkflow, PartReport]
    ) -> None:
        """Sends the part the signals that the job has received for it since the part started."""
        while True:
            await workflow.wait_condition(lambda: bool(part.unsent))
            signal, argument = part.unsent.pop(0)
            with contextlib.suppress(ApplicationError):  # the part has ended
                await started.signal(signal, argument)

    def _unfinished(
        self, indices: Iterable[int], reason: str, state: TaskState = TaskState.KILLED
    ) -> list[TaskStatus]:
        """Returns statuses with this end, for the tasks that have not ended."""
        end = {"state": state, "reason": reason, "finished_at": workflow.now()}
        found = (self.gang.tasks[self._places[index]] for index in indices)
        return [task.model_copy(update=end) for task in found if task.state not in ENDED]

    def _take_reports(self) -> None:
        """Puts the reported statuses into `gang`. Ignores reports about tasks that have ended."""
        tasks = list(self.gang.tasks)
        for task in self._reported:
            place = self._places[task.index]
            if tasks[place].state not in ENDED:
                tasks[place] = self._kept(task)
                self._part_of[task.index].unfinished -= task.state in ENDED
        self._reported = []
        self.gang = self.gang.model_copy(update={"tasks": tuple(tasks)})
        self._changed()

    def _kept(self, task: TaskStatus) -> TaskStatus:
        """Returns the status as the job stores it, with short texts. A task that ended because the
        whole job ended has the job's reason.
        """
        reason = (
            self._cancellations.all if task.state is TaskState.KILLED else None
        ) or task.reason
        texts = {
            "reason": cut(reason, MAX_KEPT_REASON),
            "remedy": cut(task.remedy, MAX_KEPT_REASON),
        }
        return task.model_copy(update=texts)
