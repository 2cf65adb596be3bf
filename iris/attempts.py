"""What became of an attempt: kept for every one, and shown to whoever asks why a job took so long."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from iris.jobs import TaskOutcome
from iris.states import TaskState

#: Attempts kept of one gang: they travel with its workflow from run to run. Of those that never started the oldest go first.
KEPT = 250
#: A gang's record names the members that ended otherwise than by the gang's end, at most so many.
NAMED = 16


class Account(StrEnum):
    """Who pays for an attempt."""

    FAILURES = "failures"  # the program's own fault
    PREEMPTIONS = "preemptions"  # the machine's, the cloud's or a stronger job's
    UNDELIVERED = "undelivered"  # it never started: free, but slowed down
    NOBODY = "nobody"  # it succeeded, or somebody wanted it to end


class MemberEnd(BaseModel):
    """How one task of an attempt ended."""

    model_config = ConfigDict(frozen=True)

    index: int
    state: TaskState
    exit_code: int | None = None
    reason: str = ""


class AttemptRecord(BaseModel):
    """One attempt of a gang: where, when, how it ended, who paid."""

    model_config = ConfigDict(frozen=True)

    number: int
    #: Task i of the gang ran on host i.
    hosts: tuple[str, ...]
    placed_at: datetime
    #: When the first program started; None: none did.
    started_at: datetime | None
    ended_at: datetime
    account: Account
    reason: str
    ends: tuple[MemberEnd, ...]


def kept(records: Sequence[AttemptRecord]) -> tuple[AttemptRecord, ...]:
    """All records, as long as there are not too many; then the oldest of those that nobody paid for are left out, and after them
    the oldest."""
    surplus = len(records) - KEPT
    if surplus <= 0:
        return tuple(records)
    free = {record.number for record in records[:-1] if record.account is Account.UNDELIVERED}
    left_out = set(sorted(free)[:surplus])
    return tuple(record for record in records if record.number not in left_out)[-KEPT:]


def member_ends(indexes: Sequence[int], outcomes: Sequence[TaskOutcome]) -> tuple[MemberEnd, ...]:
    """The ends worth a line each: of a small gang all of them, of a large one those that were somebody's fault."""
    ends = [
        MemberEnd(index=index, state=outcome.state, exit_code=outcome.exit_code, reason=outcome.reason)
        for index, outcome in zip(indexes, outcomes, strict=True)
    ]
    if len(ends) > NAMED:
        ends = [end for end in ends if end.state not in (TaskState.SUCCEEDED, TaskState.KILLED)]
    return tuple(ends[:NAMED])
