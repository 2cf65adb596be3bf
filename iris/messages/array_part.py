"""Messages between the job of a large array and the workflows of the array's parts."""

from pydantic import Field

from iris.model.frozen import Frozen
from iris.model.job.gangs import Gang
from iris.model.job.status import TaskStatus


class PartInput(Gang):
    """The input of the workflow of one part of an array. The job specification in it contains only
    the indices of the part.
    """

    #: The id of the job's workflow.
    parent: str
    #: The id of the first run of the job's workflow.
    parent_run: str
    #: The maximum number of tasks of the part that may have a workflow at the same time.
    places: int
    #: The tasks that the user cancelled before the part started: the reason of each cancellation,
    #: by the task's index.
    cancelled: dict[int, str] = Field(default_factory=dict)


class PartRef(Frozen):
    """A reference to a part of an array by its number."""

    cluster: str
    job: str
    number: int


class Places(Frozen):
    """The new limit on tasks of a part that may have a workflow at the same time. It never
    decreases.
    """

    places: int


class PartReport(Frozen):
    """The status of the tasks that have changed since the last report, or of all tasks at the end
    of the part.
    """

    tasks: tuple[TaskStatus, ...]
