"""The input of the workflow that a schedule starts."""

from iris.model.frozen import Frozen
from iris.model.job.spec import JobSpec

#: The state of a run whose job could not be started, beside those of jobs.
NOT_STARTED = "NOT_STARTED"
#: The state of a run at a time that comes again when the clock is set back: the job starts then.
LEFT_OUT = "LEFT_OUT"


class ScheduledJob(Frozen):
    """The job that is started each time."""

    cluster: str
    spec: JobSpec
    #: The time zone of the schedule's times; empty: none of them comes twice.
    time_zone: str = ""
