"""The input of the workflow that a schedule starts."""

from iris.model.frozen import Frozen
from iris.model.job.spec import JobSpec

#: The state of a schedule's run whose job could not be started.
NOT_STARTED = "NOT_STARTED"
#: The state of a schedule's run that starts no job, because the same time of day comes again when
#: the clock is set back. The second run starts the job.
LEFT_OUT = "LEFT_OUT"


class ScheduledJob(Frozen):
    """The job that a schedule starts each time."""

    cluster: str
    spec: JobSpec
    #: The time zone of the schedule's cron expressions, to find the times that come twice when the
    #: clock is set back. Empty if none can come twice: the schedule has an interval, or Temporal
    #: computes its times in UTC.
    time_zone: str = ""
