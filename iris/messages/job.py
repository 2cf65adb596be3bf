"""The input of a job's workflow, and its answers to queries."""

from iris.messages.dependencies import JobEnd
from iris.model.frozen import Frozen
from iris.model.job.attempts import AttemptRecord
from iris.model.job.children import Parent
from iris.model.job.endpoints import Endpoint
from iris.model.job.gangs import Gang


class ChildRef(Frozen):
    """A child job, with the id of the first run of its workflow."""

    job: str
    run_id: str


class JobInput(Gang):
    """The input of a job's workflow: its tasks and its state so far. In the first run, it is only
    the specification.
    """

    #: The latest children of the job, including ended ones. If there are many, older ones are left
    #: out.
    children: tuple[ChildRef, ...] = ()
    #: The ids of the jobs that wait for the end of this job.
    dependents: tuple[str, ...] = ()
    #: How the jobs that this job waits for have ended, for those whose end is known.
    dependency_ends: tuple[JobEnd, ...] = ()


class ChildStart(Frozen):
    """A child job that starts, and its parent."""

    cluster: str
    parent: Parent
    child: ChildRef
    #: Whether to signal the start of the child job to its parent's workflow, which then registers
    #: the child. It is False if the history of the parent is already long.
    signals: bool


class Registration(Frozen):
    """The result of the registration of a child job with its parent."""

    #: The reason why the child job must not start; empty if it may start.
    refusal: str = ""


class EndedParent(Frozen):
    """A job that has ended without success. Its children are to be cancelled."""

    cluster: str
    children: tuple[ChildRef, ...]
    reason: str


class Attempts(Frozen):
    """The records of the attempts of a task or gang, in the order of their starts. If there are
    more than `iris.model.job.attempts.KEPT`, some are left out.
    """

    attempts: tuple[AttemptRecord, ...]


class Endpoints(Frozen):
    """The endpoints of a job's tasks."""

    endpoints: tuple[Endpoint, ...]
