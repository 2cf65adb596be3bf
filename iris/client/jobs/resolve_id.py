"""Finds the job that a name means. In a job, a bare name means the job's own child first."""

import os

from iris.client.connect.identity import full_job_id
from iris.client.connect.rpc import UNREADABLE_MEMO, Connection, memo_of
from iris.client.jobs.find import find_job
from iris.model import names
from iris.model.job.children import Parent, parent_in


async def resolve_id(connection: Connection, text: str) -> str:
    """Returns the id of the job that a user names by `NAME`, `USER/NAME` or `USER/NAME/CHILD`. The
    text may end with the number of a run (`#2`) or of a task (`:3`).

    In a job, a bare name means a child of this run of the job. If there is no such child, it means
    a child of the parent job, and so on. If no job above has such a child, it means the user's job.

    Raises:
        InvalidValue: the text has another form.
        Unreachable: the service does not answer.
    """
    name = text.partition("#")[0].partition(":")[0]
    job, found = full_job_id(name), None
    if (
        "/" not in name
        and names.ENV_JOB_ID in os.environ
        and os.environ.get(names.ENV_CLUSTER) == connection.record.name
    ):
        run = os.environ.get(names.ENV_ATTEMPT_KEY, "").rpartition("/")[2]
        found = await _child(connection, os.environ[names.ENV_JOB_ID], run, name)
    return found or job


async def _child(connection: Connection, job: str, run: str, name: str) -> str | None:
    """Returns the id of the child with this name of the job, or of the nearest job above it.

    Args:
        run: the beginning of the id of the job's run. Empty if the run is not known.
    """
    child = names.child_id(job, name)
    if await _belongs(connection, child, run):
        return child
    above = names.parent_id(job)
    if above is None:
        return None
    parent = await _parent(connection, job)
    return await _child(
        connection, above, names.short_run(parent.run_id) if parent is not None else "", name
    )


async def _belongs(connection: Connection, child: str, run: str) -> bool:
    """Returns whether the child exists and belongs to this run of its parent."""
    if (found := await find_job(connection, child)) is None:
        return False
    if (memo := await memo_of(found)) is UNREADABLE_MEMO:
        return True  # the id of the child names its parent
    parent = parent_in(memo)
    return parent is not None and parent.run_id.startswith(run)


async def _parent(connection: Connection, job: str) -> Parent | None:
    found = await find_job(connection, job)
    return None if found is None else parent_in(await memo_of(found))
