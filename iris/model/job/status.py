"""Derives the status of a job from its tasks and attempts."""

from collections.abc import Mapping

from iris.model.cancelling import Cancelling
from iris.model.gangs import Gang
from iris.model.job_reasons import reason_of
from iris.model.jobs import JobStatus
from iris.model.states import ENDED, JobState, roll_up


def rolled_up(job: Gang) -> JobState:
    """Returns the state alone, in a fraction of the time: a job of ten thousand tasks asks for it after each report."""
    states = (task.state for task in job.tasks)
    return roll_up(states, max_task_failures=job.spec.max_task_failures, held=job.overrides.hold is not None)


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


def with_cancellations(status: JobStatus, whole: Cancelling | None, alone: Mapping[int, Cancelling]) -> JobStatus:
    """Shows that the job is being cancelled, or some of its tasks, in the place of the reasons that they had before.

    Args:
        whole: the cancellation of the job; None: it is not cancelled.
        alone: those of single tasks, by index.
    """
    if alone:
        tasks = tuple(
            task.model_copy(update={"cancelling": alone[task.index], "reason": str(alone[task.index])})
            if task.index in alone and task.state not in ENDED
            else task
            for task in status.tasks
        )
        status = status.model_copy(update={"tasks": tasks})
    if whole is None or all(task.state in ENDED for task in status.tasks):
        return status
    # The first task that has ended makes the job KILLED; programs of others may still run.
    state = JobState.RUNNING if status.state.ended else status.state
    return status.model_copy(update={"state": state, "reason": str(whole), "cancelling": whole, "finished_at": None})
