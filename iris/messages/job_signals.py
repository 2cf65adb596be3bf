"""The signals that a job's workflow passes on to the runner of its tasks.

Clients do not use them. In another module, they would make clients import the scheduler's state.
"""

from iris.messages.array_part import PartReport
from iris.messages.scheduler import Reason
from iris.messages.task import TaskCancellation, TaskProgress
from iris.model.job.requests import Placement
from iris.model.job.spec import Overrides
from iris.model.job.status import TaskStatus
from iris.scheduling.placement.preemption import Eviction

#: Any signal that the workflow of a job, of an array's part or of a task passes on to the object
#: that runs the tasks: a `GangRun`, `IndependentTasks` or `ArrayParts`.
JobMessage = (
    Placement
    | Eviction
    | Reason
    | TaskProgress
    | Overrides
    | TaskCancellation
    | TaskStatus
    | PartReport
)
