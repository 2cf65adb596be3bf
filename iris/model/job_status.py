"""Derives the status of a job from its tasks and attempts: its state, and the reason that explains it."""

from iris.model.gangs import Gang
from iris.model.jobs import JobStatus
from iris.model.states import JobState, TaskState, roll_up

#: The states of the tasks whose reasons explain a state of their job.
_EXPLAINING: dict[JobState, tuple[TaskState, ...]] = {
    JobState.PENDING: (TaskState.PENDING,),
    JobState.FAILED: (TaskState.FAILED,),
    JobState.KILLED: (TaskState.KILLED,),
    JobState.WORKER_FAILED: (TaskState.WORKER_FAILED, TaskState.PREEMPTED),
    JobState.UNSCHEDULABLE: (TaskState.UNSCHEDULABLE,),
    JobState.RUNNING: (TaskState.PENDING,),
}


def status_of(job: Gang) -> JobStatus:
    """Returns the status of a job with these tasks, whether they are a gang or independent."""
    started = [task.started_at for task in job.tasks if task.started_at]
    finished = [task.finished_at for task in job.tasks if task.finished_at]
    held = job.overrides.hold is not None
    state = roll_up((task.state for task in job.tasks), max_task_failures=job.spec.max_task_failures, held=held)
    return JobStatus(
        id=job.spec.id,
        state=state,
        reason=_reason(job, state),
        user=job.spec.user,
        held=held,
        submitted_at=job.submission,
        started_at=min(started, default=None),
        finished_at=max(finished, default=None) if state.ended else None,
        tasks=job.tasks,
    )


def _reason(job: Gang, state: JobState) -> str:
    """Returns the first task's reason that explains the state, with the task's number if it is not that of all of them."""
    if state is JobState.HELD:
        return str(job.overrides.hold)
    explains = _EXPLAINING.get(state, ())
    tasks, together = list(job.tasks), job.spec.is_gang
    if state.ended and job.attempts:
        # The task that ended the others explains the end; their reasons only refer to it.
        tasks.sort(key=lambda task: task.reason != job.attempts[-1].reason)
    reasons = [(task.index, task.reason) for task in tasks if task.state in explains and task.reason]
    if not reasons:
        return ""
    index, reason = reasons[0]
    shared = state in (JobState.PENDING, JobState.KILLED, JobState.UNSCHEDULABLE) and len(reasons) > 1
    if shared and all(each == reason for _, each in reasons):
        return reason
    alone = len(tasks) == 1 or (together and state not in (JobState.FAILED, JobState.WORKER_FAILED))
    return reason if alone else f"{_limit(job, state)}task {index}: {reason}"


def _limit(job: Gang, state: JobState) -> str:
    """Names the limit that failed a job of several tasks; empty in any other case."""
    if state is not JobState.FAILED or job.spec.is_gang:
        return ""
    failed = sum(task.state is TaskState.FAILED for task in job.tasks)
    return f"{failed} failed, more than max_task_failures {job.spec.max_task_failures}; "
