"""Declares `run_task` for the workflows that start it.

It is apart from `Tasks`, which implements the activity, so that the control plane does not import
what only hosts need: runtimes, files and environments.
"""

from temporalio import activity

from iris.messages.task import RunTask
from iris.model.job.attempts import TaskOutcome

#: The type of the error if an agent does not take an attempt, but another agent of the same host
#: may take it.
HOST_REFUSED = "HostRefused"
#: The type of the error with which an agent refuses an attempt while its host's incarnation ends.
HOST_LEAVES = "HostLeaves"


class TaskActivity:
    """The activity of a host's own task queue."""

    @activity.defn
    async def run_task(self, task: RunTask) -> TaskOutcome:
        """Runs an attempt of a task, and returns how it ended.

        Raises:
            ApplicationError: the agent does not take the attempt (`HOST_REFUSED`, `HOST_LEAVES`),
                or cannot start it.
        """
        raise NotImplementedError
