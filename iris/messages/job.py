"""The input of a job's workflow, and its answers to queries."""

from iris.messages.wire import Wire
from iris.model.attempts import AttemptRecord
from iris.model.gangs import Gang


class JobInput(Gang):
    """The tasks of a job, and its state so far. The first run has only the specification."""


class Attempts(Wire):
    """The records of all attempts, the first one first."""

    attempts: tuple[AttemptRecord, ...]
