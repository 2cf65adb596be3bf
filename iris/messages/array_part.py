"""Messages between the job of a large array and the workflows of the array's parts."""

from pydantic import Field

from iris.model.frozen import Frozen
from iris.model.job.gangs import Gang
from iris.model.job.status import TaskStatus


class PartInput(Gang):
    """A part of an array: its specification has the indices of the part."""

    #: The workflow of the job, and its run.
    parent: str
    parent_run: str
    #: The most tasks of the part that may have a workflow at the same time.
    places: int
    #: Why the user has cancelled tasks before the part began, by index.
    cancelled: dict[int, str] = Field(default_factory=dict)


class PartRef(Frozen):
    """A part of an array, by its number."""

    cluster: str
    job: str
    number: int


class Places(Frozen):
    """The number of places that a part has from now on. It never decreases."""

    places: int


class PartReport(Frozen):
    """The status of tasks of a part: of those that have changed since the last report, or of all at
    the end.
    """

    tasks: tuple[TaskStatus, ...]
