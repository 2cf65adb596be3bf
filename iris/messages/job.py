"""The input of a job's workflow, and its answers to queries."""

from iris.messages.dependencies import JobEnd
from iris.model.frozen import Frozen
from iris.model.job.attempts import AttemptRecord
from iris.model.job.children import Parent
from iris.model.job.endpoints import Endpoint
from iris.model.job.gangs import Gang


class ChildRef(Frozen):
    """A job that belongs to another job, and its first run."""

    job: str
    run_id: str


class JobInput(Gang):
    """The tasks of a job, and its state so far. The first run has only the specification."""

    #: The latest jobs that belong to it, also those that have ended.
    children: tuple[ChildRef, ...] = ()
    #: The jobs that wait for its end.
    dependents: tuple[str, ...] = ()
    #: The ends of jobs that it waits for.
    dependency_ends: tuple[JobEnd, ...] = ()


class ChildStart(Frozen):
    """A job that starts, and the job that it belongs to."""

    cluster: str
    parent: Parent
    child: ChildRef
    #: Whether it is to be registered with its parent.
    signals: bool


class Registration(Frozen):
    """The answer to a job that belongs to another job and starts."""

    #: Why it must not start; empty: it may.
    refusal: str = ""


class EndedParent(Frozen):
    """Children of a job that did not succeed, which are to be cancelled."""

    cluster: str
    children: tuple[ChildRef, ...]
    reason: str


class Attempts(Frozen):
    """The records of all attempts, the first one first."""

    attempts: tuple[AttemptRecord, ...]


class Endpoints(Frozen):
    """The endpoints of a job's tasks."""

    endpoints: tuple[Endpoint, ...]
