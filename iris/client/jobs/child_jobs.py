"""The child jobs of a job, and the jobs above a waiting job."""

from collections.abc import Iterator

from temporalio.service import RPCError, RPCStatusCode

from iris.client import jobs
from iris.client.connect.rpc import Connection
from iris.client.jobs.lists import JobFilter, list_jobs
from iris.client.jobs.rows import JobRow
from iris.model import names
from iris.model.host.resources import format_amounts
from iris.scheduling.placement.refusals import Refusal, RefusalCode

#: The maximum number of descendants of a job that are listed.
MAX_CHILDREN = 1000


class ChildJobsClient:
    """Finds the child jobs and the parent jobs of a job."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def children(self, job: str, first_run: str) -> list[JobRow]:
        """Returns the children of the job, the oldest first. Returns no jobs if the service cannot
        list workflows.

        Args:
            first_run: the first run of the job. Earlier jobs of the same name have other children.
        """
        try:
            rows = await list_jobs(self._connection, JobFilter(below=job), MAX_CHILDREN)
        except RPCError as error:
            # Such a service keeps no lists. The rest of an explanation does not need them.
            if error.status is RPCStatusCode.UNIMPLEMENTED:
                return []
            raise
        return [
            row
            for row in reversed(rows)
            if row.parent_run == first_run and names.parent_id(row.id) == job
        ]

    async def live_below(self, job: str) -> int:
        """Returns the number of running jobs below the job: its children, their children, and so
        on. These jobs end with the job, unless it succeeds.
        """
        return len(
            await list_jobs(self._connection, JobFilter(below=job, live_only=True), MAX_CHILDREN)
        )

    async def held_above(self, job: str, refusal: Refusal) -> str:
        """Returns a remark for a job that waits for capacity: which job above it holds enough
        resources for it. Returns an empty text if no job above does.
        """
        if refusal.code not in (RefusalCode.BUSY, RefusalCode.KEPT):
            return ""
        for parent in _above(job):
            resources = (
                await jobs.submitted.submitted_spec(self._connection, parent)
            ).resources.amounts()
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
    """Yields the parent of the job, the parent of that job, and so on."""
    while (parent := names.parent_id(job)) is not None:
        yield parent
        job = parent
