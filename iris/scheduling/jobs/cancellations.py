"""Which tasks of a job of several independent tasks are cancelled, by whom, and how they end
then.
"""

from collections.abc import Mapping
from typing import NamedTuple, Self

from iris.model.states import TaskState


class Cancellations(NamedTuple):
    """The requests to cancel tasks of one job."""

    #: Why the user cancels tasks, by index, while the others continue.
    alone: Mapping[int, str] = {}
    #: Why the job ends all of its tasks; None: it does not.
    all: str | None = None

    def with_task(self, index: int, reason: str) -> Self:
        """Returns the requests with that of the user for one task. An earlier request for the task
        counts.
        """
        return self._replace(alone={index: reason, **self.alone})

    def with_all(self, reason: str) -> Self:
        """Returns the requests when the job ends."""
        return self._replace(all=reason)

    def end_of(self, index: int) -> tuple[TaskState, str] | None:
        """Returns the state and the reason with which a cancelled task ends; None: its cancellation
        was not requested here.
        """
        if index in self.alone:
            return TaskState.CANCELLED, self.alone[index]
        return (TaskState.KILLED, self.all) if self.all is not None else None
