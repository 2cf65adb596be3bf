"""Finds the run and the tasks of a job whose logs, files or results are read."""

from collections.abc import Sequence

from iris.activities.control.service import first_run
from iris.client.connect.rpc import Connection
from iris.client.jobs.find import describe_job
from iris.client.jobs.rows import tasks_in
from iris.model import names
from iris.model.frozen import Frozen
from iris.model.job.arrays import MEMO_ARRAY


class LogSource(Frozen):
    """Identifies the logs, files or results to read: the run of a job, and its tasks."""

    run_id: str
    tasks: int
    #: The indices of the tasks. None if the indices are 0, 1, 2 and so on.
    indices: tuple[int, ...] | None = None
    #: True if the job runs a function, which leaves a result.
    function: bool = False

    @property
    def numbers(self) -> Sequence[int]:
        """The indices of the tasks."""
        return range(self.tasks) if self.indices is None else self.indices


async def log_source(connection: Connection, job: str, run_id: str | None = None) -> LogSource:
    """Returns the run and the tasks of a job. Asks only the service, so it works while no control
    plane answers.

    Raises:
        NotFound: there is no such job.
    """
    described = await describe_job(connection, job, run_id)
    memo = await described.memo()
    run_id = first_run(described)
    indices = None
    if memo.get(MEMO_ARRAY):
        from iris.client.jobs.submitted import submitted_spec  # few commands need it

        indices = tuple((await submitted_spec(connection, job, run_id)).indices)
    return LogSource(
        run_id=run_id,
        tasks=tasks_in(memo),
        indices=indices,
        function=names.MEMO_FUNCTION in memo,
    )
