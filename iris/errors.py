"""Every error Iris raises, written for the person who must act on it.

    IrisError                 anything that went wrong in Iris or its server          exit code 1
     ├── IllegalMove          a life was asked to take a step its table does not have          1
     ├── NotFound             no job, host or cluster of that name                             3
     ├── Unreachable          no cluster answers                                               4
     ├── Rejected             the cluster or its client refuses the request                    5
     │    └── InvalidValue    one field has a value it cannot have (also a ValueError)         5
     ├── WaitTimeout          the wait ended before the job did                              124
     ├── JobFailed            the job ended FAILED, WORKER_FAILED or UNSCHEDULABLE           125
     └── JobCancelled         the job ended KILLED                                           126

The exit codes are those of the command line. Wrong usage of the command line is click's own error and exits with 2.
"""

from typing import ClassVar


class IrisError(Exception):
    """The root. Its text is a sentence a user can act on."""

    exit_code: ClassVar[int] = 1


class IllegalMove(IrisError):
    """A state machine was asked for a move its table does not have; nothing was changed."""


class NotFound(IrisError):
    """There is nothing of that name."""

    exit_code = 3


class Unreachable(IrisError):
    """The cluster could not be reached, or there is none."""

    exit_code = 4


class Rejected(IrisError):
    """The request was understood and refused."""

    exit_code = 5


class InvalidValue(Rejected, ValueError):
    """One field has a value that it cannot have."""

    def __init__(self, field: str, value: object, problem: str, remedy: str) -> None:
        self.field = field
        text = str(value)
        shown = text if len(text) <= 80 else f"{text[:77]}..."
        super().__init__(f"{field}: {shown!r} {problem}; {remedy}")


class WaitTimeout(IrisError):
    """The time given to a wait is over; what was waited for goes on."""

    exit_code = 124


class JobFailed(IrisError):
    """The job ended without success."""

    exit_code = 125


class JobCancelled(IrisError):
    """The job was cancelled."""

    exit_code = 126


def first_line(error: BaseException) -> str:
    """What an error says, without the pages that some libraries add; its kind, when it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
