"""The lives of tasks and jobs, as tables.

Rule 1: a state changes only through `move_task`; a step that the table does not have raises `IllegalMove` and changes nothing.
Rule 2: a job has no life of its own. Its state is derived from its tasks by `roll_up`, every time it is asked for.

What is *not* here: who pays for a failed attempt (`retries.py`), and when to look (the workflows).
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TypeVar

from iris.errors import IllegalMove

State = TypeVar("State", bound=StrEnum)


class TaskState(StrEnum):
    PENDING = "PENDING"  # waits for a host
    ASSIGNED = "ASSIGNED"  # has a host, which has not reported yet
    BUILDING = "BUILDING"  # the host prepares bundle and environment
    RUNNING = "RUNNING"  # the program runs
    SUCCEEDED = "SUCCEEDED"  # exit code 0
    FAILED = "FAILED"  # the program's own fault: exit code, signal, time-out, out of memory
    KILLED = "KILLED"  # somebody cancelled it, or a sibling's failure ended it
    WORKER_FAILED = "WORKER_FAILED"  # the host was lost, or could not do its part
    PREEMPTED = "PREEMPTED"  # the host or the slice was taken away
    UNSCHEDULABLE = "UNSCHEDULABLE"  # no host within the scheduling timeout


class JobState(StrEnum):
    PENDING = "PENDING"
    HELD = "HELD"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    KILLED = "KILLED"
    WORKER_FAILED = "WORKER_FAILED"
    UNSCHEDULABLE = "UNSCHEDULABLE"

    @property
    def ended(self) -> bool:
        return self not in (JobState.PENDING, JobState.HELD, JobState.RUNNING)


_T = TaskState
#: How an attempt can end once it has a host.
_ENDS = (_T.SUCCEEDED, _T.FAILED, _T.KILLED, _T.WORKER_FAILED, _T.PREEMPTED)

TASK_MOVES: dict[TaskState, frozenset[TaskState]] = {
    _T.PENDING: frozenset({_T.ASSIGNED, _T.KILLED, _T.UNSCHEDULABLE}),
    # A short program has ended before its host's first report: hence the ends. Nobody took it: back to PENDING.
    _T.ASSIGNED: frozenset({_T.BUILDING, _T.RUNNING, _T.PENDING, *_ENDS}),
    _T.BUILDING: frozenset({_T.RUNNING, *_ENDS}),
    _T.RUNNING: frozenset(_ENDS),
    # The three that a retry account may pay for.
    _T.FAILED: frozenset({_T.PENDING}),
    _T.WORKER_FAILED: frozenset({_T.PENDING}),
    _T.PREEMPTED: frozenset({_T.PENDING}),
    _T.SUCCEEDED: frozenset(),
    _T.KILLED: frozenset(),
    _T.UNSCHEDULABLE: frozenset(),
}

LIVE = frozenset({_T.ASSIGNED, _T.BUILDING, _T.RUNNING})
ENDED = frozenset({*_ENDS, _T.UNSCHEDULABLE})


def move_task(now: TaskState, to: TaskState) -> TaskState:
    """The new state.

    Raises:
        IllegalMove: the table has no such step.
    """
    return step(TASK_MOVES, now, to, "a task")


def step(moves: Mapping[State, frozenset[State]], now: State, to: State, what: str) -> State:
    """The new state of something whose life is this table.

    Raises:
        IllegalMove: the table has no such step.
    """
    if to not in moves[now]:
        allowed = ", ".join(sorted(moves[now])) or "nothing: it has ended"
        raise IllegalMove(f"{what} that is {now} cannot become {to}; from {now} it may become {allowed}")
    return to


def roll_up(tasks: Iterable[TaskState], *, has_run: bool = False, max_task_failures: int = 0, held: bool = False) -> JobState:
    """A job's state from those of its tasks: the first rule that holds.

    Args:
        tasks: the tasks' states; FAILED, WORKER_FAILED and PREEMPTED count as ends here: a task to be retried is PENDING again.
        has_run: whether any task ever had a host. A job that has run never shows PENDING again.
        max_task_failures: how many FAILED tasks the job puts up with.
        held: whether its user holds it back; that shows when nothing of it runs.
    """
    states = list(tasks)
    if all(state is _T.SUCCEEDED for state in states):
        return JobState.SUCCEEDED
    if states.count(_T.FAILED) > max_task_failures:
        return JobState.FAILED
    if _T.UNSCHEDULABLE in states:
        return JobState.UNSCHEDULABLE
    if _T.KILLED in states:
        return JobState.KILLED
    if any(state in LIVE for state in states):
        return JobState.RUNNING
    if all(state in ENDED for state in states):
        if _T.WORKER_FAILED in states or _T.PREEMPTED in states:
            return JobState.WORKER_FAILED
        return JobState.SUCCEEDED  # only SUCCEEDED and tolerated FAILED are left
    if held:
        return JobState.HELD
    return JobState.RUNNING if has_run else JobState.PENDING
