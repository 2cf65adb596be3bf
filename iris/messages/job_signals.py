"""The signals that a job passes on to what runs its tasks. Clients need none of them, and would
import the scheduler's state.
"""

from iris.messages.array_part import PartReport
from iris.messages.scheduler import Reason
from iris.messages.task import TaskCancellation, TaskProgress
from iris.model.job.requests import Placement
from iris.model.job.spec import Overrides
from iris.model.job.status import TaskStatus
from iris.scheduling.placement.preemption import Eviction

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
