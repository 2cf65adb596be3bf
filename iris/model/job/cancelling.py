"""The time between the request to cancel a job, or one of its tasks, and its end: its programs have
their grace period.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol, Self

from pydantic import ValidationError

from iris.model.frozen import Frozen
from iris.model.rules import HEARTBEAT_INTERVAL

#: What people read as the state meanwhile. It is no state of its own: programs still run, or are
#: still waited for.
CANCELLING = "CANCELLING"
#: The keys of a job's memo: the `Cancelling` of a job whose programs run; its grace period in
#: seconds, if it is not the default.
MEMO_CANCELLING, MEMO_GRACE = "iris_cancelling", "iris_grace"


class Cancelling(Frozen):
    """A cancellation that was requested, of a job or a task that has not ended."""

    #: Who cancelled it, or why.
    reason: str
    since: datetime
    #: When programs that still run get SIGKILL. Those of a host without contact run on until their
    #: lease ends.
    until: datetime

    @classmethod
    def begun(cls, reason: str | None, now: datetime, grace: timedelta) -> Self:
        """Returns the cancellation of programs with this grace period, which begins when their
        hosts hear of it.
        """
        return cls(reason=reason or "cancelled", since=now, until=now + HEARTBEAT_INTERVAL + grace)

    def __str__(self) -> str:
        return (
            f"{self.reason}; programs that ignore SIGTERM get SIGKILL at about"
            f" {self.until:%H:%M:%S} UTC"
        )


class _Cancellable(Protocol):
    """The part of a status that tells whether it is being cancelled."""

    @property
    def state(self) -> str: ...

    @property
    def cancelling(self) -> Cancelling | None: ...


def state_text(status: _Cancellable) -> str:
    """Returns the state that people read of a job or a task."""
    return CANCELLING if status.cancelling is not None else str(status.state)


def cancelling_in(memo: Mapping[str, Any]) -> Cancelling | None:
    """Returns the cancellation in a job's memo; None: it has none. Any client can start a workflow
    with any memo.
    """
    try:
        return Cancelling.model_validate(memo[MEMO_CANCELLING]) if MEMO_CANCELLING in memo else None
    except ValidationError:
        return None


def grace_in(memo: Mapping[str, Any], default: timedelta) -> timedelta:
    """Returns the grace period of a job's programs by its memo."""
    seconds = memo.get(MEMO_GRACE)
    return (
        timedelta(seconds=seconds)
        if isinstance(seconds, int | float) and 0 <= seconds < 10**9
        else default
    )
