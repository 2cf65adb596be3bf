"""Attempts: how a task's attempt ended (`TaskOutcome`), and the records of a gang's attempts
(`AttemptRecord`), which show why a job took as long as it did.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from iris.model.frozen import Frozen
from iris.model.states import TaskState

#: The most attempts kept of one gang, because its workflow passes them from run to run. The oldest
#: ones that never started are dropped first.
KEPT = 250
#: The most members that an attempt's record lists. For a larger gang it lists only members that
#: neither succeeded nor were killed.
NAMED = 16


class Account(StrEnum):
    """The retry account that pays for an attempt."""

    FAILURES = "failures"  # the program's own fault
    PREEMPTIONS = (
        "preemptions"  # caused by the machine, the cloud provider or a job of a higher band
    )
    # its environment could not be made, because something outside the cluster did not answer
    SETUPS = "set-ups"
    UNDELIVERED = "undelivered"  # it never started: free, but the retry is delayed
    NONE = "nobody"  # it succeeded, or was ended on purpose


class TaskOutcome(Frozen):
    """The end of one attempt, as reported by its host or, for a lost host, by the workflow."""

    state: TaskState
    reason: str = ""
    exit_code: int | None = None
    signal: str | None = None
    #: None: the program never started. A lost or preempted attempt without a fault is then
    #: undelivered and free.
    started_at: datetime | None = None
    finished_at: datetime | None = None
    #: The last lines that the program wrote, a few hundred characters.
    last_lines: str = ""
    #: The peak memory of its processes, if the host could measure it; otherwise 0.
    peak_memory_bytes: int = 0
    #: The name of the infrastructure fault that ended it; empty: none.
    fault: str = ""
    #: Whether another attempt would end in the same way, so that there is none.
    final: bool = False
    #: Whether an agent of the host refused the attempt: it serves another incarnation than the
    #: attempt names, or stops.
    refused: bool = False
    #: Whether the host ended or refused the attempt because its incarnation, which the attempt
    #: names, ends or is over.
    host_leaves: bool = False


class MemberEnd(Frozen):
    """The end of one task of an attempt."""

    index: int
    state: TaskState
    exit_code: int | None = None
    reason: str = ""


class AttemptRecord(Frozen):
    """One attempt of a gang: its hosts, its times, how it ended, and the account that paid."""

    number: int
    #: Task i of the gang ran on host i.
    hosts: tuple[str, ...]
    placed_at: datetime
    #: When the first program started; None: no program did.
    started_at: datetime | None
    ended_at: datetime
    account: Account
    reason: str
    ends: tuple[MemberEnd, ...]


def kept(records: Sequence[AttemptRecord]) -> tuple[AttemptRecord, ...]:
    """Returns the records, at most `KEPT`. It drops the oldest undelivered attempts first, then the
    oldest of all.
    """
    surplus = len(records) - KEPT
    if surplus <= 0:
        return tuple(records)
    free = {record.number for record in records[:-1] if record.account is Account.UNDELIVERED}
    left_out = set(sorted(free)[:surplus])
    return tuple(record for record in records if record.number not in left_out)[-KEPT:]


def member_ends(indexes: Sequence[int], outcomes: Sequence[TaskOutcome]) -> tuple[MemberEnd, ...]:
    """Returns the ends to list: all of a small gang; of a large one only those that neither
    succeeded nor were killed.
    """
    ends = [
        MemberEnd(
            index=index, state=outcome.state, exit_code=outcome.exit_code, reason=outcome.reason
        )
        for index, outcome in zip(indexes, outcomes, strict=True)
    ]
    if len(ends) > NAMED:
        ends = [end for end in ends if end.state not in (TaskState.SUCCEEDED, TaskState.KILLED)]
    return tuple(ends[:NAMED])
