"""Derives the status of a job from its tasks and attempts."""

from collections.abc import Mapping

from iris.model.job.cancelling import Cancelling
from iris.model.job.gangs import WAITS_FOR, Gang
from iris.model.job.status import JobStatus
from iris.model.states import ENDED, JobState, TaskState, roll_up

#: By the state of a job: the states of the tasks whose reasons explain the job's state.
_EXPLAINS = {
    JobState.PENDING: (TaskState.PENDING,),
    JobState.FAILED: (TaskState.FAILED,),
    JobState.KILLED: (TaskState.KILLED,),
    JobState.WORKER_FAILED: (TaskState.WORKER_FAILED, TaskState.PREEMPTED),
    JobState.UNSCHEDULABLE: (TaskState.UNSCHEDULABLE,),
    JobState.RUNNING: (TaskState.PENDING,),
    JobState.BUILDING: (TaskState.BUILDING,),
}
#: The states of a job in which all tasks often have the same reason. Then the job shows this reason
#: without the index of a task.
_SHARED = (JobState.PENDING, JobState.KILLED, JobState.UNSCHEDULABLE)


def rolled_up(job: Gang) -> JobState:
    """Returns the state only. It is much faster than `status_of`: a job of ten thousand tasks needs
    it after each report.
    """
    states = (task.state for task in job.tasks)
    return roll_up(
        states, max_task_failures=job.spec.max_task_failures, held=job.overrides.hold is not None
    )


def status_of(job: Gang) -> JobStatus:
    """Returns the status of a job, whether its tasks are a gang or independent."""
    started = [task.started_at for task in job.tasks if task.started_at]
    finished = [task.finished_at for task in job.tasks if task.finished_at]
    state = rolled_up(job)
    return JobStatus(
        id=job.spec.id,
        state=state,
        reason=reason_of(job, state),
        user=job.spec.user,
        held=job.overrides.hold is not None,
        submitted_at=job.submission,
        started_at=min(started, default=None),
        finished_at=max(finished, default=None) if state.ended else None,
        tasks=job.tasks,
    )


def with_cancellations(
    status: JobStatus, whole: Cancelling | None, alone: Mapping[int, Cancelling]
) -> JobStatus:
    """Returns the status with the cancellation of the job, or of some of its tasks, in place of the
    earlier reasons.

    Args:
        whole: the cancellation of the whole job; None if it is not being cancelled.
        alone: the cancellations of single tasks, by index.
    """
    if alone:
        tasks = tuple(
            task.model_copy(
                update={"cancelling": alone[task.index], "reason": str(alone[task.index])}
            )
            if task.index in alone and task.state not in ENDED
            else task
            for task in status.tasks
        )
        status = status.model_copy(update={"tasks": tasks})
    if whole is None or all(task.state in ENDED for task in status.tasks):
        return status
    # The first task that has ended makes the job KILLED, although programs of other tasks may still
    # run.
    state = JobState.RUNNING if status.state.ended else status.state
    return status.model_copy(
        update={"state": state, "reason": str(whole), "cancelling": whole, "finished_at": None}
    )


def reason_of(job: Gang, state: JobState) -> str:
    """Returns the reason of the first task that explains the job's state. The reason names the
    task, unless all tasks share the reason.
    """
    if state is JobState.HELD:
        return str(job.overrides.hold)
    if state is JobState.SUCCEEDED:
        return _shortfall(job)
    explains, tasks, together = _EXPLAINS.get(state, ()), list(job.tasks), job.spec.is_gang
    if state is JobState.KILLED and all(task.state is TaskState.CANCELLED for task in tasks):
        explains = (TaskState.CANCELLED,)
    if state.ended and job.attempts:
        # The task that ended the other tasks explains the end. The reasons of the others only refer
        # to it.
        tasks.sort(key=lambda task: task.reason != job.attempts[-1].reason)
    if state is JobState.BUILDING:  # a reason of the whole gang comes before a reason of one host
        tasks.sort(key=lambda task: not task.reason.startswith(WAITS_FOR))
    reasons = [
        (task.index, task.reason) for task in tasks if task.state in explains and task.reason
    ]
    if not reasons:
        return ""
    index, reason = reasons[0]
    if state in _SHARED and len(reasons) > 1 and all(each == reason for _, each in reasons):
        return reason
    alone = len(tasks) == 1 or (together and state not in (JobState.FAILED, JobState.WORKER_FAILED))
    return reason if alone else f"{_limit(job, state)}task {index}: {reason}"


def _shortfall(job: Gang) -> str:
    """Returns how many tasks of a successful job failed or were cancelled; empty if none did."""
    states, total = [task.state for task in job.tasks], len(job.tasks)
    failed, cancelled = states.count(TaskState.FAILED), states.count(TaskState.CANCELLED)
    if not failed and not cancelled:
        return ""
    parts = [f"{total - failed - cancelled} of {total} tasks ended with exit code 0"]
    parts += [f"{failed} failed, as the job allows"] if failed else []
    parts += [f"{cancelled} {'was' if cancelled == 1 else 'were'} cancelled"] if cancelled else []
    return "; ".join(parts)


def _limit(job: Gang, state: JobState) -> str:
    """Returns the limit that made a job of several tasks fail; empty in all other cases."""
    if state is not JobState.FAILED or job.spec.is_gang:
        return ""
    failed = sum(task.state is TaskState.FAILED for task in job.tasks)
    return f"{failed} failed, more than max_task_failures {job.spec.max_task_failures}; "
