"""The input of a job's workflow, and its answers to queries."""

from datetime import datetime, timedelta

from iris.messages.wire import Wire
from iris.model.attempts import AttemptRecord
from iris.model.jobs import JobSpec, TaskStatus
from iris.model.overrides import Overrides


class JobInput(Wire):
    """The state that a run of a job's workflow passes to the next. The first run has only the specification."""

    cluster: str
    spec: JobSpec
    submitted_at: datetime | None = None
    tasks: tuple[TaskStatus, ...] = ()
    wishes: Overrides = Overrides()
    #: How long the job has been held. The scheduling timeout does not count this time.
    held_for: timedelta = timedelta(0)
    attempts: tuple[AttemptRecord, ...] = ()


class Attempts(Wire):
    """The records of all attempts, the first one first."""

    attempts: tuple[AttemptRecord, ...]
