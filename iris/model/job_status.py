"""Derives the status of a job from its tasks and attempts."""

from iris.model.gangs import Gang
from iris.model.job_reasons import reason_of
from iris.model.jobs import JobStatus
from iris.model.states import JobState, roll_up


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
