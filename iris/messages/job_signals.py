"""The signals that a job passes on to what runs its tasks. Clients need none of them, and would import the scheduler's state."""

from iris.messages.array_part import PartReport
from iris.messages.scheduler import Reason
from iris.messages.task import TaskCancellation, TaskProgress
from iris.model.jobs import TaskStatus
from iris.model.overrides import Overrides
from iris.model.requests import Placement
from iris.scheduling.preemption import Eviction

JobMessage = Placement | Eviction | Reason | TaskProgress | Overrides | TaskCancellation | TaskStatus | PartReport
