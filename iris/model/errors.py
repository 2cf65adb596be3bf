"""Every error that Iris raises, written for the person who must act on it.

    IrisError                 any error in Iris or its server                         exit code 1
     ├── IllegalMove          a transition that is not in the state table                       1
     ├── NotFound             no job, host or cluster of that name                             3
     ├── Unreachable          no cluster answers                                               4
     ├── Rejected             the cluster or its client refuses the request                    5
     │    ├── NameTaken       a live job has the name                                         5
     │    ├── NotAllowed      the policy of the cluster does not allow it to this user        5
     │    ├── InvalidValue    one field has a value it cannot have (also a ValueError)         2
     │    └── InvalidJob      fields of a job have values they cannot have (also a ValueError)  2
     ├── WaitTimeout          the wait ended before the job did (also a TimeoutError)        124
     ├── JobFailed            the job ended FAILED, WORKER_FAILED or UNSCHEDULABLE           125
     └── JobCancelled         the job ended KILLED                                           126

JobFailed and JobCancelled are in `iris.model.job.errors`, because they carry a job's status. The
exit codes are those of the command line. Wrong usage that click finds also exits with 2.
"""

from collections.abc import Sequence
from typing import ClassVar


class IrisError(Exception):
    """The base class of Iris's errors. Its text is a sentence that a user can act on."""

    exit_code: ClassVar[int] = 1


class IllegalMove(IrisError):
    """The state table does not contain the requested transition. The state is unchanged."""


class NotFound(IrisError):
    """There is no object with this name."""

    exit_code = 3


class Unreachable(IrisError):
    """No cluster answers, or the cluster does not exist."""

    exit_code = 4


class Rejected(IrisError):
    """The cluster or its client understood the request and refused it."""

    exit_code = 5


class InvalidValue(Rejected, ValueError):
    """A field has a value that is not allowed. Like a usage error of click, it ends the command
    with exit code 2.
    """

    exit_code = 2

    def __init__(self, field: str, value: object, problem: str, remedy: str) -> None:
        self.field = field
        text = str(value)
        shown = text if len(text) <= 80 else f"{text[:77]}..."
        super().__init__(f"{field}: {shown!r} {problem}; {remedy}")


class NameTaken(Rejected):
    """The requested name belongs to another job that has not ended."""


class NotAllowed(Rejected):
    """The policy of the cluster does not allow the request to this user."""


class InvalidJob(Rejected, ValueError):
    """Fields of a job have values that are not allowed, or that contradict each other.

    The text lists every problem.

    Attributes:
        problems: one sentence for each problem. If it is empty, the text is the only problem.
    """

    exit_code = 2

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class WaitTimeout(IrisError, TimeoutError):
    """The wait timed out. The job continues."""

    exit_code = 124


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's text, or the error's type if it has no text. Some
    libraries append pages of text to their errors.
    """
    return (str(error).strip() or type(error).__name__).splitlines()[0]
