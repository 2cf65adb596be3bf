"""Messages between jobs and the jobs that depend on them."""

from iris.model.frozen import Frozen
from iris.model.job.dependencies import Dependency
from iris.model.states import JobState


class JobEnd(Frozen):
    """How a job ended: the run of the job, and the state in which it ended."""

    #: The id of the first run of the job's workflow.
    run_id: str
    #: The state in which the job ended; None if the Temporal service has deleted its workflow.
    state: JobState | None


class JobEnds(Frozen):
    """The answer to a `Lookup`: one entry for each of its jobs that has ended."""

    ends: tuple[JobEnd, ...]


class Lookup(Frozen):
    """A question whether jobs have ended, and in which state."""

    cluster: str
    jobs: tuple[Dependency, ...]
    #: The job that asks and waits for the other jobs. A job that has not ended yet signals its end
    #: to this job later. Empty if no signal is needed.
    dependent: str = ""


class EndedJob(Frozen):
    """The end of a job, and the waiting jobs to which the end is to be signalled."""

    cluster: str
    dependents: tuple[str, ...]
    end: JobEnd
