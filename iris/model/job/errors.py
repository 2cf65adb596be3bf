"""The errors for a job that did not succeed. They carry its last status."""

from iris.model.errors import IrisError
from iris.model.job.status import JobStatus, TaskStatus


class _HasStatus(Exception):
    """An error about a job that has ended.

    Attributes:
        exit_code: that of the command `iris` for this kind of error, not that of the job's program.
        status: the job's last status, with the state, reason and exit code of each task; None: not
            known.
        task: the task that the error is about, such as the first that failed; None: no single one,
            or not known.
        last_lines: the last lines of that task's output, where the result was asked for; empty: not
            known.
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
        """The exit code of that task's program; None: it has none, for example because its host was
        lost.
        """
        return self.task.exit_code if self.task is not None else None


class JobFailed(_HasStatus, IrisError):
    """The job failed."""

    exit_code = 125


class JobCancelled(_HasStatus, IrisError):
    """The job was cancelled."""

    exit_code = 126
