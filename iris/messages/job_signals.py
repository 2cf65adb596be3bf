"""The signals that a job's workflow passes on to what runs its tasks. Clients import `iris.messages.job` without these."""

from iris.messages.array_part import PartReport
from iris.messages.scheduler import Reason
from iris.messages.task import TaskCancellation, TaskProgress
from iris.model.jobs import TaskStatus
from iris.model.overrides import Overrides
from iris.model.requests import Placement
from iris.scheduling.preemption import Eviction

JobMessage = Placement | Eviction | Reason | TaskProgress | Overrides | TaskCancellation | TaskStatus | PartReport
