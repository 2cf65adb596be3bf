"""The input of the workflow that a schedule starts."""

from iris.messages.wire import Wire
from iris.model.jobs import JobSpec

#: The state of a run whose job could not be started, beside those of jobs.
NOT_STARTED = "NOT_STARTED"


class ScheduledJob(Wire):
    """The job that is started each time."""

    cluster: str
    spec: JobSpec
