"""Every error that Iris raises, written for the person who must act on it.

    IrisError                 any error in Iris or its server                         exit code 1
     ├── IllegalMove          a transition that is not in the state table                       1
     ├── NotFound             no job, host or cluster of that name                             3
     ├── Unreachable          no cluster answers                                               4
     ├── Rejected             the cluster or its client refuses the request                    5
     │    ├── NameTaken       a live job has the name                                         5
     │    ├── InvalidValue    one field has a value it cannot have (also a ValueError)         2
     │    └── InvalidJob      fields of a job have values they cannot have (also a ValueError)  2
     ├── WaitTimeout          the wait ended before the job did (also a TimeoutError)        124
     ├── JobFailed            the job ended FAILED, WORKER_FAILED or UNSCHEDULABLE           125
     └── JobCancelled         the job ended KILLED                                           126

The exit codes are those of the command line. Wrong usage of the command line that click finds
exits with 2, too.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from iris.model.job.spec import JobStatus, TaskStatus


class IrisError(Exception):
    """The base class of Iris's errors. Its text is a sentence that a user can act on."""

    exit_code: ClassVar[int] = 1


class IllegalMove(IrisError):
    """A transition that the state table does not have was requested; the state is unchanged."""


class NotFound(IrisError):
    """An object of that name does not exist."""

    exit_code = 3


class Unreachable(IrisError):
    """The cluster cannot be reached or does not exist."""

    exit_code = 4


class Rejected(IrisError):
    """The cluster or its client understood the request and refused it."""

    exit_code = 5


class InvalidValue(Rejected, ValueError):
    """A field has a value that it cannot have. A usage error, as those that click finds."""

    exit_code = 2

    def __init__(self, field: str, value: object, problem: str, remedy: str) -> None:
        self.field = field
        text = str(value)
        shown = text if len(text) <= 80 else f"{text[:77]}..."
        super().__init__(f"{field}: {shown!r} {problem}; {remedy}")


class NameTaken(Rejected):
    """A live job has the name."""


class InvalidJob(Rejected, ValueError):
    """The fields of a job have values that they cannot have, or not together.

    The text has every problem.

    Attributes:
        problems: each as a sentence of its own; empty: the text is the only one.
    """

    exit_code = 2

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class WaitTimeout(IrisError, TimeoutError):
    """The wait timed out; the job continues."""

    exit_code = 124


class _HasStatus(Exception):
    """An error about a job that has ended.

    Attributes:
        exit_code: that of the command `iris` for this kind of error, not that of the job's program.
        status: the job's last status, with the state, reason and exit code of each task; None: not
            known.
        task: the task that the error is about, such as the first that failed; None: no single one,
            or not known.
        last_lines: the last lines of that task's output, where the result was asked for; empty: not
            known.
    """

    def __init__(
        self, message: str, status: "JobStatus | None" = None, task: "TaskStatus | None" = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.task = task
        self.last_lines: tuple[str, ...] = ()

    @property
    def task_exit_code(self) -> int | None:
        """The exit code of that task's program; None: it has none, for example because its host was
        lost.
        """
        return self.task.exit_code if self.task is not None else None


class JobFailed(_HasStatus, IrisError):
    """The job failed."""

    exit_code = 125


class JobCancelled(_HasStatus, IrisError):
    """The job was cancelled."""

    exit_code = 126


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's text, or the error's type if it has no text. Some
    libraries append pages of text.
    """
    return (str(error).strip() or type(error).__name__).splitlines()[0]
