"""The errors for a job that ended without success. They carry the job's last status."""

from iris.model.errors import IrisError
from iris.model.job.status import JobStatus, TaskStatus


class _HasStatus(Exception):
    """An error about a job that has ended.

    Attributes:
        exit_code: the exit code of the command `iris` for this kind of error. It is not the exit
            code of the job's program.
        status: the job's last status, with the state, reason and exit code of each task; None if it
            is not known.
        task: the task that the error is about, for example the first task that failed; None if the
            error is not about a single task.
        last_lines: the last lines of that task's output, if the caller asked for the job's result;
            otherwise empty.
    """

    def __init__(
        self, message: str, status: JobStatus | None = None, task: TaskStatus | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.task = task
        self.last_lines: tuple[str, ...] = ()

    @property
    def task_exit_code(self) -> int | None:
        """The exit code of the task's program; None if it has none, for example because its host
        was lost.
        """
        return self.task.exit_code if self.task is not None else None


class JobFailed(_HasStatus, IrisError):
    """The job, or the task whose result was read, ended FAILED, WORKER_FAILED or UNSCHEDULABLE."""

    exit_code = 125


class JobCancelled(_HasStatus, IrisError):
    """The job, or the task whose result was read, was cancelled."""

    exit_code = 126
