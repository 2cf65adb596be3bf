"""The states of tasks and jobs, and the table of a task's transitions.

Rule 1: a task's state changes only through `move_task`. A transition that is not in the table
raises `IllegalMove` and changes nothing. Rule 2: a job has no transitions of its own. `roll_up`
derives its state from its tasks each time it is needed.

Not in this module: which account pays for a failed attempt (`iris.scheduling.jobs.retries`), and
when a transition is due (the workflows).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum

from iris.model.lifecycle import entering, transition


class TaskState(StrEnum):
    PENDING = "PENDING"  # waits for a host
    ASSIGNED = "ASSIGNED"  # has a host that has not reported yet
    BUILDING = "BUILDING"  # the host prepares the bundle and the environment
    RUNNING = "RUNNING"  # the program runs
    SUCCEEDED = "SUCCEEDED"  # exit code 0
    FAILED = "FAILED"  # the program's own fault: exit code, signal, timeout, out of memory
    KILLED = "KILLED"  # its job was cancelled, or a sibling's failure ended it
    CANCELLED = "CANCELLED"  # a user cancelled this task; the others of its job continue
    WORKER_FAILED = "WORKER_FAILED"  # the host was lost or could not run it
    PREEMPTED = "PREEMPTED"  # the host or the slice was taken away
    UNSCHEDULABLE = "UNSCHEDULABLE"  # no host within the scheduling timeout


class JobState(StrEnum):
    PENDING = "PENDING"
    HELD = "HELD"
    BUILDING = "BUILDING"  # no program runs, and a host prepares one
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    KILLED = "KILLED"
    WORKER_FAILED = "WORKER_FAILED"
    UNSCHEDULABLE = "UNSCHEDULABLE"

    @property
    def ended(self) -> bool:
        return self not in (JobState.PENDING, JobState.HELD, JobState.BUILDING, JobState.RUNNING)


_T = TaskState
#: The states in which an attempt that has a host can end.
_ENDS = (_T.SUCCEEDED, _T.FAILED, _T.KILLED, _T.CANCELLED, _T.WORKER_FAILED, _T.PREEMPTED)

#: The next state of a task, by its state and the event. For tasks, each event is named by the state
#: that the task enters, so the event and the next state are always the same.
TASK_MOVES: Mapping[TaskState, Mapping[TaskState, TaskState]] = {
    _T.PENDING: entering(_T.ASSIGNED, _T.KILLED, _T.CANCELLED, _T.UNSCHEDULABLE),
    # A short program can end before its host's first report, so the end states are here, too. A
    # task becomes PENDING again if no host accepted its attempt.
    _T.ASSIGNED: entering(_T.BUILDING, _T.RUNNING, _T.PENDING, *_ENDS),
    _T.BUILDING: entering(_T.RUNNING, *_ENDS),
    _T.RUNNING: entering(*_ENDS),
    # A retry account can pay for another attempt after these three states.
    _T.FAILED: entering(_T.PENDING),
    _T.WORKER_FAILED: entering(_T.PENDING),
    _T.PREEMPTED: entering(_T.PENDING),
    _T.SUCCEEDED: {},
    _T.KILLED: {},
    _T.CANCELLED: {},
    _T.UNSCHEDULABLE: {},
}

LIVE = frozenset({_T.ASSIGNED, _T.BUILDING, _T.RUNNING})
ENDED = frozenset({*_ENDS, _T.UNSCHEDULABLE})


def move_task(now: TaskState, to: TaskState) -> TaskState:
    """Returns the new state of a task.

    Raises:
        IllegalMove: the table has no such transition.
    """
    return transition(TASK_MOVES, now, to, "a task")


def roll_up(
    tasks: Iterable[TaskState], *, max_task_failures: int = 0, held: bool = False
) -> JobState:
    """Derives a job's state from the states of its tasks, by the first rule that holds.

    Tasks that a user cancelled one by one do not count, unless all of them were: then the job is
    KILLED.

    Args:
        tasks: the tasks' states. FAILED, WORKER_FAILED and PREEMPTED count as ended: a task to be
            retried is already PENDING again.
        max_task_failures: how many FAILED tasks the job tolerates.
        held: whether its user holds the job. It is HELD only while none of its tasks runs.
    """
    counts = Counter(tasks)
    if counts.keys() == {_T.CANCELLED}:
        return JobState.KILLED
    states = counts.keys() - {_T.CANCELLED}
    if states <= {_T.SUCCEEDED}:
        return JobState.SUCCEEDED
    if counts[_T.FAILED] > max_task_failures:
        return JobState.FAILED
    if _T.UNSCHEDULABLE in states:
        return JobState.UNSCHEDULABLE
    if _T.KILLED in states:
        return JobState.KILLED
    if _T.BUILDING in states and _T.RUNNING not in states:
        return JobState.BUILDING
    # The program of an ASSIGNED task may run: hosts report a program once it has run for a second.
    if states & LIVE:
        return JobState.RUNNING
    if states <= ENDED:
        if _T.WORKER_FAILED in states or _T.PREEMPTED in states:
            return JobState.WORKER_FAILED
        return JobState.SUCCEEDED  # only SUCCEEDED and tolerated FAILED are left
    return JobState.HELD if held else JobState.PENDING
