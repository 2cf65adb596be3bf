"""The child jobs of a job, and the jobs above a waiting job."""

from collections.abc import Iterator

from temporalio.service import RPCError, RPCStatusCode

from iris.client.connect.rpc import Connection
from iris.client.jobs.lists import JobFilter, list_jobs
from iris.client.jobs.rows import JobRow
from iris.model import names
from iris.model.host.resources import format_amounts
from iris.scheduling.placement.refusals import Refusal, RefusalCode

#: The most children of a job that are listed.
MAX_CHILDREN = 1000


class ChildJobsClient:
    """The jobs of one cluster that belong to other jobs."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def children(self, job: str, first_run: str) -> list[JobRow]:
        """Returns the jobs that belong to the job, the first one first; none from a service that
        cannot list workflows.

        Args:
            first_run: which of the jobs of this name.

        Raises:
            Unreachable: the service does not answer.
        """
        try:
            rows = await list_jobs(self._connection, JobFilter(below=job), MAX_CHILDREN)
        except RPCError as error:
            if (
                error.status is RPCStatusCode.UNIMPLEMENTED
            ):  # it keeps no lists; the rest of an explanation does not need them
                return []
            raise
        return [
            row
            for row in reversed(rows)
            if row.parent_run == first_run and names.parent_id(row.id) == job
        ]

    async def live_below(self, job: str) -> int:
        """Returns the number of live jobs that belong to the job or to one of those. They end with
        it, unless it succeeds.

        Raises:
            Unreachable: the service does not answer.
        """
        return len(
            await list_jobs(self._connection, JobFilter(below=job, live_only=True), MAX_CHILDREN)
        )

    async def held_above(self, job: str, refusal: Refusal) -> str:
        """Returns a remark for a job that waits for capacity: which job above it holds as much.
        Empty: none does.

        Raises:
            Unreachable: the service does not answer.
        """
        if refusal.code not in (RefusalCode.BUSY, RefusalCode.KEPT):
            return ""
        from iris.client.jobs.submitted import submitted_spec  # few jobs wait for one above them

        for parent in _above(job):
            resources = (await submitted_spec(self._connection, parent)).resources.amounts()
            if all(
                refusal.free.get(name, 0) + resources.get(name, 0) >= needed
                for name, needed in refusal.needed.items()
            ):
                return (
                    f"{parent}, to which it belongs, holds {format_amounts(resources)} itself: if"
                    " that job waits for this one, request less for one of them, or add a host"
                )
        return ""


def _above(job: str) -> Iterator[str]:
    while (parent := names.parent_id(job)) is not None:
        yield parent
        job = parent
