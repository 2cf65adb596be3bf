"""Messages between jobs and the jobs that depend on them."""

from iris.model.frozen import Frozen
from iris.model.job.dependencies import Dependency
from iris.model.states import JobState


class JobEnd(Frozen):
    """The end of a job."""

    #: The first run of the job's workflow.
    run_id: str
    #: The state in which it ended; None if the service has deleted it.
    state: JobState | None


class JobEnds(Frozen):
    """The ends of the jobs of a `Lookup` that have ended."""

    ends: tuple[JobEnd, ...]


class Lookup(Frozen):
    """A request for the ends of jobs."""

    cluster: str
    jobs: tuple[Dependency, ...]
    #: The job to which jobs that have not ended are to signal their end; empty for none.
    dependent: str = ""


class EndedJob(Frozen):
    """A job that has ended, and the dependents to which its end is to be signalled."""

    cluster: str
    dependents: tuple[str, ...]
    end: JobEnd
