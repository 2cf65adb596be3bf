"""Messages between jobs and the jobs that depend on them."""

from iris.model.frozen import Frozen
from iris.model.job.dependencies import Dependency
from iris.model.states import JobState


class JobEnd(Frozen):
    """How a run of a job has ended."""

    #: The first run of its workflow.
    run_id: str
    #: None: the service no longer knows it.
    state: JobState | None


class JobEnds(Frozen):
    ends: tuple[JobEnd, ...]


class Lookup(Frozen):
    """Jobs whose ends are wanted."""

    cluster: str
    jobs: tuple[Dependency, ...]
    #: The job that those that have not ended are to signal at their end; empty: none.
    dependent: str = ""


class EndedJob(Frozen):
    """A job that has ended, and the jobs that are to know it."""

    cluster: str
    dependents: tuple[str, ...]
    end: JobEnd
