"""Derives the reason of a job's state from the reasons of its tasks."""

from iris.model.gangs import WAITS_FOR, Gang
from iris.model.states import JobState, TaskState

#: The tasks whose reasons explain the state of their job.
_EXPLAINS = {
    JobState.PENDING: (TaskState.PENDING,),
    JobState.FAILED: (TaskState.FAILED,),
    JobState.KILLED: (TaskState.KILLED,),
    JobState.WORKER_FAILED: (TaskState.WORKER_FAILED, TaskState.PREEMPTED),
    JobState.UNSCHEDULABLE: (TaskState.UNSCHEDULABLE,),
    JobState.RUNNING: (TaskState.PENDING,),
    JobState.BUILDING: (TaskState.BUILDING,),
}
#: States that all tasks may have for one reason.
_SHARED = (JobState.PENDING, JobState.KILLED, JobState.UNSCHEDULABLE)


def reason_of(job: Gang, state: JobState) -> str:
    """Returns the first task's reason that explains the state, with the task's number if it is not that of all of them."""
    if state is JobState.HELD:
        return str(job.overrides.hold)
    if state is JobState.SUCCEEDED:
        return _shortfall(job)
    explains, tasks, together = _EXPLAINS.get(state, ()), list(job.tasks), job.spec.is_gang
    if state is JobState.KILLED and all(task.state is TaskState.CANCELLED for task in tasks):
        explains = (TaskState.CANCELLED,)
    if state.ended and job.attempts:
        # The task that ended the others explains the end; their reasons only refer to it.
        tasks.sort(key=lambda task: task.reason != job.attempts[-1].reason)
    if state is JobState.BUILDING:  # what the whole gang waits for comes before what one host does
        tasks.sort(key=lambda task: not task.reason.startswith(WAITS_FOR))
    reasons = [(task.index, task.reason) for task in tasks if task.state in explains and task.reason]
    if not reasons:
        return ""
    index, reason = reasons[0]
    if state in _SHARED and len(reasons) > 1 and all(each == reason for _, each in reasons):
        return reason
    alone = len(tasks) == 1 or (together and state not in (JobState.FAILED, JobState.WORKER_FAILED))
    return reason if alone else f"{_limit(job, state)}task {index}: {reason}"


def _shortfall(job: Gang) -> str:
    """Counts the tasks of a job that succeeded without them; empty if all succeeded."""
    states, total = [task.state for task in job.tasks], len(job.tasks)
    failed, cancelled = states.count(TaskState.FAILED), states.count(TaskState.CANCELLED)
    if not failed and not cancelled:
        return ""
    parts = [f"{total - failed - cancelled} of {total} tasks ended with exit code 0"]
    parts += [f"{failed} failed, as the job allows"] if failed else []
    parts += [f"{cancelled} {'was' if cancelled == 1 else 'were'} cancelled"] if cancelled else []
    return "; ".join(parts)


def _limit(job: Gang, state: JobState) -> str:
    """Names the limit that failed a job of several tasks; empty in any other case."""
    if state is not JobState.FAILED or job.spec.is_gang:
        return ""
    failed = sum(task.state is TaskState.FAILED for task in job.tasks)
    return f"{failed} failed, more than max_task_failures {job.spec.max_task_failures}; "
