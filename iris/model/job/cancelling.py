"""The time between the request to cancel a job or a task and its end. During this time, the
programs have their grace period.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol, Self

from pydantic import ValidationError

from iris.model.frozen import Frozen
from iris.model.job.spec import DEFAULT_GRACE
from iris.model.rules import HEARTBEAT_INTERVAL

#: The text that lists show as the state of a job or task that is being cancelled. It is not a value
#: of `JobState` or `TaskState`, because programs still run.
CANCELLING = "CANCELLING"
#: The keys of a job's memo: its `Cancelling` while its programs still run, and its grace period in
#: seconds if that is not the default.
MEMO_CANCELLING, MEMO_GRACE = "iris_cancelling", "iris_grace"


class Cancelling(Frozen):
    """The requested cancellation of a job or a task that has not ended yet."""

    #: Who cancelled the job or task, or why it was cancelled.
    reason: str
    since: datetime
    #: The time at which programs that still run get SIGKILL. Programs on a host without contact run
    #: until their lease ends.
    until: datetime

    @classmethod
    def begun(cls, reason: str | None, now: datetime, grace: timedelta) -> Self:
        """Returns the cancellation of programs with this grace period. The period begins when the
        hosts learn of the cancellation, at most one heartbeat later.
        """
        return cls(reason=reason or "cancelled", since=now, until=now + HEARTBEAT_INTERVAL + grace)

    def __str__(self) -> str:
        return (
            f"{self.reason}; programs that ignore SIGTERM get SIGKILL at about"
            f" {self.until:%H:%M:%S} UTC"
        )


class _Cancellable(Protocol):
    """The status of a job or a task that can be cancelled."""

    @property
    def state(self) -> str: ...

    @property
    def cancelling(self) -> Cancelling | None: ...


def state_text(status: _Cancellable) -> str:
    """Returns the state to show for a job or a task."""
    return CANCELLING if status.cancelling is not None else str(status.state)


def cancelling_in(memo: Mapping[str, Any]) -> Cancelling | None:
    """Returns the cancellation in a job's memo, or None. An invalid value counts as none, because
    any client can write any memo.
    """
    try:
        return Cancelling.model_validate(memo[MEMO_CANCELLING]) if MEMO_CANCELLING in memo else None
    except ValidationError:
        return None


def grace_in(memo: Mapping[str, Any]) -> timedelta:
    """Returns the grace period in a job's memo, or the default."""
    seconds = memo.get(MEMO_GRACE)
    return (
        timedelta(seconds=seconds)
        if isinstance(seconds, int | float) and 0 <= seconds < 10**9
        else DEFAULT_GRACE
    )
