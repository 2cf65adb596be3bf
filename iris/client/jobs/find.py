"""Finds the job that a name means, or one run of it, and suggests similar ids for a job that does
not exist.
"""

import difflib
import os
from collections.abc import Iterable

from temporalio.client import WorkflowExecutionDescription
from temporalio.service import RPCError, RPCStatusCode

from iris.activities.control.service import first_run
from iris.client.connect.identity import full_job_id
from iris.client.connect.rpc import UNREADABLE_MEMO, Connection, memo_of
from iris.client.jobs.lists import JobFilter, list_jobs, runs_of
from iris.client.jobs.rows import JobRow, row_of
from iris.model import names
from iris.model.errors import NotFound
from iris.model.job.children import Parent, parent_in

#: The minimum similarity of a misspelled name to a known name: the share of letters that both names
#: have in common.
NEAR = 0.75


async def numbered_run(connection: Connection, job: str, number: int) -> str:
    """Returns the id of a run of the job by its number. The oldest run that the service knows has
    number 1.

    Raises:
        NotFound: the job has no such run.
        Unreachable: the service does not answer.
    """
    runs = (await runs_of(connection, [job])).get(job) or []
    if not runs:
        raise await unknown_job(connection, job)
    if not 1 <= number <= len(runs):
        raise NotFound(f"job {job} has no run {number}; its runs are 1 to {len(runs)}")
    return runs[number - 1]


async def describe_job(
    connection: Connection, job: str, run_id: str | None = None
) -> WorkflowExecutionDescription:
    """Describes the job's latest run, or the run with this id if a later job uses the name.

    Raises:
        NotFound: there is no such job.
        Unreachable: the service does not answer.
    """
    described = await find_job(connection, job, run_id)
    if described is None:
        raise await unknown_job(connection, job)
    return described


async def find_job(
    connection: Connection, job: str, run_id: str | None = None
) -> WorkflowExecutionDescription | None:
    """Describes the job as `describe_job` does. Returns None if there is no such job.

    Raises:
        Unreachable: the service does not answer.
    """
    workflow_id = names.job_workflow(connection.record.name, job)
    with connection.rpc_errors():
        try:
            described = await connection.workflow(workflow_id).describe()
            if run_id is not None and first_run(described) != run_id:
                described = await connection.workflow(workflow_id, run_id).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise
    # Another program may use the same id in the namespace for a workflow of another type.
    return described if described.workflow_type == names.WORKFLOW_TYPES[names.KIND_JOB] else None


async def unknown_job(connection: Connection, job: str) -> NotFound:
    """Returns the error for a job that does not exist, with the ids of similar jobs."""
    known = [row.id for row in await list_jobs(connection, JobFilter(), 500)]
    within, name = os.environ.get(names.ENV_JOB_ID), job.partition("/")[2]
    near = near_jobs(job, known)
    if within is not None and "/" not in name:
        near = list(dict.fromkeys([*near, *near_jobs(names.child_id(within, name), known)]))
    hint = f"did you mean {', '.join(near)}?" if near else "`iris jobs --all` lists all jobs"
    return NotFound(f"there is no job {job}; {hint}")


def near_jobs(job: str, known: Iterable[str]) -> list[str]:
    """Returns the jobs that the user may have meant: jobs with similar names, and jobs of other
    users and parents with the same name.

    Only the parts after the user's name are compared. Most ids have the same user, which would make
    any two of them similar.
    """
    # A job that has just begun may be in the list.
    others = [other for other in dict.fromkeys(known) if other != job]
    _, _, name = job.partition("/")
    names_of = {other: other.partition("/")[2] for other in others}
    # A user who means a child writes the parent, too: compare only ids of the same depth.
    alike = {
        own: other for other, own in reversed(names_of.items()) if own.count("/") == name.count("/")
    }
    near = [alike[own] for own in difflib.get_close_matches(name, list(alike), n=3, cutoff=NEAR)]
    near += [
        other
        for own, other in alike.items()
        if own.startswith(f"{name}-") or name.startswith(f"{own}-")
    ][:3]
    near += [other for other in others if f"/{other}".endswith(f"/{name}")]
    return list(dict.fromkeys(near))


async def listed_job(connection: Connection, job: str, run_id: str | None = None) -> JobRow:
    """Returns the row of one job. Asks only the service, so it works while no control plane
    answers.

    Raises:
        NotFound: there is no such job.
        Unreachable: the service does not answer.
    """
    return await row_of(await describe_job(connection, job, run_id))


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
