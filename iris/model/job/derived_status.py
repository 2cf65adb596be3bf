"""Derives the status of a job from its tasks and attempts."""

from collections.abc import Mapping

from iris.model.job.cancelling import Cancelling
from iris.model.job.gangs import WAITS_FOR, Gang
from iris.model.job.status import JobStatus
from iris.model.states import ENDED, JobState, TaskState, roll_up

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


def rolled_up(job: Gang) -> JobState:
    """Returns the state alone, in a fraction of the time: a job of ten thousand tasks asks for it
    after each report.
    """
    states = (task.state for task in job.tasks)
    return roll_up(
        states, max_task_failures=job.spec.max_task_failures, held=job.overrides.hold is not None
    )


def status_of(job: Gang) -> JobStatus:
    """Returns the status of a job with these tasks, whether they are a gang or independent."""
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
    """Shows that the job is being cancelled, or some of its tasks, in the place of the reasons that
    they had before.

    Args:
        whole: the cancellation of the job; None: it is not cancelled.
        alone: those of single tasks, by index.
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
    # The first task that has ended makes the job KILLED; programs of others may still run.
    state = JobState.RUNNING if status.state.ended else status.state
    return status.model_copy(
        update={"state": state, "reason": str(whole), "cancelling": whole, "finished_at": None}
    )


def reason_of(job: Gang, state: JobState) -> str:
    """Returns the first task's reason that explains the state, with the task's number if it is not
    that of all of them.
    """
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
