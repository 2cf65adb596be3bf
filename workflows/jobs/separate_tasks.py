"""What the runners of independent tasks have in common: the job sees the tasks' states, their own
workflows have the requests.
"""

from collections.abc import Callable
from datetime import datetime

from temporalio import workflow

from iris.model.job.cancelling import Cancelling
from iris.model.job.gangs import Gang
from iris.model.job.status import TaskStatus
from iris.model.states import TaskState
from iris.scheduling.ledger.recovery import GangReport
from iris.scheduling.placement.refusals import Refusal, RefusalCode


class SeparateTasks:
    """Tasks with workflows of their own; `gang` has their states as far as they are known.

    Args:
        job: the input of the job's workflow.
        changed: called after each change of what the job shows.
    """

    def __init__(self, job: Gang, changed: Callable[[], None]) -> None:
        self.gang = job
        #: The tasks that the user cancels alone and whose programs may still run, by index; also
        #: some that have ended since.
        self.cancelling: dict[int, Cancelling] = {}
        self._changed = changed

    @property
    def _explained(self) -> TaskStatus | None:
        """The task whose reason is that of a job that waits; None: no task waits, or none has a
        reason yet.
        """
        return next(
            (task for task in self.gang.tasks if task.state is TaskState.PENDING and task.reason),
            None,
        )

    @property
    def refusal(self) -> Refusal | None:
        """What is known of the refusal of the task whose reason the job shows."""
        task = self._explained
        if task is None or task.code not in RefusalCode.__members__:
            return None
        return Refusal(code=RefusalCode(task.code), message=task.reason, remedy=task.remedy)

    @property
    def refused_at(self) -> datetime | None:
        """When the scheduler gave that refusal."""
        return self._explained.refused_at if self._explained is not None else None

    @property
    def waits_for(self) -> str:
        """The code of the scheduler's reason why a task waits, or why its set-up is tried again;
        empty: none is known.
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
        """The tasks' workflows have the requests and the hosts."""
        return GangReport()

    def _cancels(self, index: int, reason: str) -> None:
        """Records that a task that has begun is cancelled. The first request counts."""
        self.cancelling.setdefault(
            index, Cancelling.begun(reason, workflow.now(), self.gang.spec.grace)
        )

    def ready(self) -> None:
        """Begins to count the time that the tasks wait for hosts: the last job that the job depends
        on has ended.
        """
        self.gang = self.gang.model_copy(update={"ready_at": workflow.now()})
