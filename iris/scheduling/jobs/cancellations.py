"""Decides how cancelled tasks of a job with several independent tasks end."""

from collections.abc import Mapping
from typing import NamedTuple, Self

from iris.model.states import TaskState


class Cancellations(NamedTuple):
    """The requests to cancel tasks of one job."""

    #: The tasks that the user cancels one by one: the reason by the index of the task.
    alone: Mapping[int, str] = {}
    #: Why the job ends all of its tasks; None if it does not end them.
    all: str | None = None

    def with_task(self, index: int, reason: str) -> Self:
        """Returns the requests with a user's request for one task. An earlier request for the same
        task keeps its reason.
        """
        return self._replace(alone={index: reason, **self.alone})

    def with_all(self, reason: str) -> Self:
        """Returns the requests with a request of the job to end all of its tasks."""
        return self._replace(all=reason)

    def end_of(self, index: int) -> tuple[TaskState, str] | None:
        """Returns the state and the reason with which a cancelled task ends; None if no request
        cancels it.
        """
        if index in self.alone:
            return TaskState.CANCELLED, self.alone[index]
        return (TaskState.KILLED, self.all) if self.all is not None else None
