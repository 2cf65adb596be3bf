"""Attempts: how a task's attempt ended (`TaskOutcome`), and the records of a gang's attempts
(`AttemptRecord`), which show why a job took as long as it did.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from iris.model.frozen import Frozen
from iris.model.states import TaskState

#: The limit on attempts that a gang's record keeps, because each run of the workflow passes the
#: record to the next run. The oldest attempts that never started are dropped first.
KEPT = 250
#: The limit on tasks that an attempt's record lists. If the gang has more tasks, the record lists
#: only tasks that failed: tasks that are neither SUCCEEDED nor KILLED.
NAMED = 16


class Account(StrEnum):
    """The account of retries that an attempt counts against, by the cause of the attempt's end. The
    accounts are separate: preemptions, for example, do not use up the retries for failures of the
    program.
    """

    FAILURES = "failures"  # the program's own fault
    PREEMPTIONS = (
        "preemptions"  # the machine, the cloud provider or a job of a higher band ended it
    )
    # the environment could not be set up, because something outside the cluster did not answer
    SETUPS = "set-ups"
    UNDELIVERED = "undelivered"  # it never started: the retry costs nothing, but is delayed
    NONE = "nobody"  # it succeeded, or was ended on purpose


class TaskOutcome(Frozen):
    """How an attempt of a task ended, as the host reports it. If the host is lost, the workflow
    sets the outcome.
    """

    state: TaskState
    reason: str = ""
    exit_code: int | None = None
    signal: str | None = None
    #: When the program started. It is None if the program never started. A lost or preempted
    #: attempt that never started, without a fault, costs no retry.
    started_at: datetime | None = None
    finished_at: datetime | None = None
    #: The last lines that the program wrote, a few hundred characters.
    last_lines: str = ""
    #: The peak memory of the task's processes; 0 if the host could not measure it.
    peak_memory_bytes: int = 0
    #: The name of the infrastructure fault that ended the attempt. It is empty if there was none.
    fault: str = ""
    #: True if another attempt would end in the same way, so that Iris does not retry.
    final: bool = False
    #: True if an agent refused the attempt, because the agent is stopping, or because the attempt
    #: names another incarnation of the host. Such an attempt does not count towards a quarantine of
    #: the host.
    refused: bool = False
    #: True if the attempt ended, or was refused, because the incarnation of the host that it names
    #: is ending or has ended, or because the host's machine no longer exists. The scheduler then
    #: places no more gangs on this incarnation.
    host_leaves: bool = False


class MemberEnd(Frozen):
    """How one task of a gang's attempt ended."""

    index: int
    state: TaskState
    exit_code: int | None = None
    reason: str = ""


class AttemptRecord(Frozen):
    """One attempt of a gang: its hosts, its times, how it ended, and the retry account that it
    counts against.
    """

    number: int
    #: The hosts of the gang. Task i ran on `hosts[i]`.
    hosts: tuple[str, ...]
    placed_at: datetime
    #: When the first program started; None if no program started.
    started_at: datetime | None
    ended_at: datetime
    account: Account
    reason: str
    ends: tuple[MemberEnd, ...]


def kept(records: Sequence[AttemptRecord]) -> tuple[AttemptRecord, ...]:
    """Returns the newest records, at most `KEPT`. Attempts that never started are dropped first."""
    surplus = len(records) - KEPT
    if surplus <= 0:
        return tuple(records)
    free = {record.number for record in records[:-1] if record.account is Account.UNDELIVERED}
    left_out = set(sorted(free)[:surplus])
    return tuple(record for record in records if record.number not in left_out)[-KEPT:]


def member_ends(indexes: Sequence[int], outcomes: Sequence[TaskOutcome]) -> tuple[MemberEnd, ...]:
    """Returns the ends to record: all of a small gang, and only the failed tasks of a large one."""
    ends = [
        MemberEnd(
            index=index, state=outcome.state, exit_code=outcome.exit_code, reason=outcome.reason
        )
        for index, outcome in zip(indexes, outcomes, strict=True)
    ]
    if len(ends) > NAMED:
        ends = [end for end in ends if end.state not in (TaskState.SUCCEEDED, TaskState.KILLED)]
    return tuple(ends[:NAMED])
