"""Lists jobs as the Temporal service knows them, and numbers the runs of a name that was used again."""

from collections.abc import Iterable, Sequence

from iris.client.connect.rpc import Connection, memo_of
from iris.client.job_filter import JobFilter, device_in, tasks_in
from iris.client.views import JobRow, attribute, state_of
from iris.model import names

#: The command of a job whose description is encrypted with a key that this client does not have.
UNREADABLE = "(cannot be read with the keys known here)"


async def list_jobs(connection: Connection, wanted: JobFilter, limit: int) -> list[JobRow]:
    """Returns the jobs, the newest first. If ended jobs are wanted, those of which there is a newer run have its number.

    Raises:
        InvalidValue: no user can have this name.
        Unreachable: the service does not answer.
    """
    found: list[tuple[JobRow, str]] = []
    with connection.rpc_errors():
        query = f"{connection.list_query(names.KIND_JOB)} AND {wanted.query()}"
        async for execution in connection.client.list_workflows(query, limit=None if wanted.needs_all else limit):
            if wanted.states and state_of(execution) not in wanted.states:
                continue
            if len(found) == limit:
                break
            memo = await memo_of(execution)
            job, command = names.job_of_workflow(execution.id), UNREADABLE
            if memo is not None:
                command = str(memo.get(names.MEMO_COMMAND, ""))
            if not wanted.takes(job, command):
                continue
            row = JobRow(
                id=job,
                state=state_of(execution),
                user=attribute(execution, names.SA_USER),
                submitted_at=execution.start_time,
                command=command,
                priority=attribute(execution, names.SA_PRIORITY),
                tasks=tasks_in(memo) if memo is not None else None,
                device=device_in(memo) if memo is not None else "",
            )
            found.append((row, execution.run_id))
    # The service sorts ended jobs by their end.
    found.sort(key=lambda each: each[0].submitted_at, reverse=True)
    if wanted.live_only or not found:
        return [row for row, _ in found]
    runs = await runs_of(connection, {row.id for row, _ in found})
    return [_numbered(row, run_id, runs.get(row.id, ())) for row, run_id in found]


async def runs_of(connection: Connection, jobs: Iterable[str]) -> dict[str, list[str]]:
    """Returns the ids of all runs of each of these jobs that the service knows, the oldest first.

    Of a workflow that continued as new, it is the id of its last run.

    Raises:
        Unreachable: the service does not answer.
    """
    # Any client can start a workflow of any id, and the service has no way to write a quote in a query.
    ids = [f"'{names.job_workflow(connection.record.name, job)}'" for job in sorted(jobs) if "'" not in job and "\\" not in job]
    found: list[tuple[float, str, str]] = []
    if ids:
        with connection.rpc_errors():
            only = f"WorkflowId IN ({', '.join(ids)}) AND ExecutionStatus != 'ContinuedAsNew'"
            async for each in connection.client.list_workflows(f"{connection.list_query(names.KIND_JOB)} AND {only}"):
                found.append((each.start_time.timestamp(), each.run_id, names.job_of_workflow(each.id)))
    runs: dict[str, list[str]] = {}
    for _, run_id, job in sorted(found):
        runs.setdefault(job, []).append(run_id)
    return runs


def _numbered(row: JobRow, run_id: str, runs: Sequence[str]) -> JobRow:
    if run_id not in runs[:-1]:
        return row
    return row.model_copy(update={"run": runs.index(run_id) + 1})
