"""Lists jobs as the Temporal service knows them, and numbers the runs of a name that was used
again.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

from temporalio.client import Client, WorkflowExecution

from iris.client.connect.rpc import Connection
from iris.client.jobs.rows import JobRow, row_of, state_of
from iris.model import names
from iris.model.job.cancelling import CANCELLING
from iris.model.job.tags import check_tag, format_tags, has_tags, written
from iris.model.states import JobState

#: About how many jobs are read together if not all of them are in the list.
READ_TOGETHER = 500


@dataclass(frozen=True)
class JobFilter:
    """Which jobs a list has; by default all.

    Args:
        live_only: leaves out ended jobs.
        states: only jobs in these states; empty: in any state.
        user: only jobs of this user; empty: of all.
        since: only jobs submitted at this time or later.
        text: only jobs with this text in their id, command, state, reason, tags or note, in small
            or capital letters.
        below: only jobs that belong to this job, or to one of those; empty: all.
        prefix: only jobs whose ids begin with this, in which there is no quote and no backslash;
            empty: all.
        tags: only jobs with all these tags: keys with a value, or with an empty one for any value.
    """

    live_only: bool = False
    states: Collection[JobState] = ()
    user: str = ""
    since: datetime | None = None
    text: str = ""
    below: str = ""
    prefix: str = ""
    tags: Collection[tuple[str, str]] = ()

    @property
    def needs_all(self) -> bool:
        """Returns whether the service cannot check all conditions, so that more jobs must be read
        than are shown.
        """
        return bool(self.states or self.text or self.tags)

    @property
    def only_running(self) -> bool:
        """Returns whether no job that has ended is wanted. No ended workflow shows a live state."""
        return self.live_only or (
            bool(self.states) and not any(state.ended for state in self.states)
        )

    def takes(self, *texts: str, tags: Mapping[str, str] = MappingProxyType({})) -> bool:
        """Returns whether one of a job's texts has the text, and the job all the tags.

        The service has looked for the tags too, but Temporal's dev server takes small and capital
        letters for the same.
        """
        return has_tags(tags, self.tags) and self.text.casefold() in " ".join(texts).casefold()

    def query(self) -> str:
        """Returns the conditions that the service checks, for the end of a visibility query. It
        does not check states and text.

        Raises:
            InvalidValue: no user can have this name, or no job such a tag.
        """
        conditions = ["ExecutionStatus != 'ContinuedAsNew'"]
        if self.only_running:
            conditions.append("ExecutionStatus = 'Running'")
        if self.user:
            conditions.append(f"{names.SA_USER} = '{names.check_name('user', self.user)}'")
        for key, value in self.tags:
            check_tag(key, value)
            conditions.append(f"{names.SA_TAGS} = '{written(key, value)}'")
        if self.since is not None:
            conditions.append(f"StartTime >= '{self.since.astimezone(UTC).isoformat()}'")
        return " AND ".join(conditions)


async def list_jobs(connection: Connection, wanted: JobFilter, limit: int) -> list[JobRow]:
    """Returns the jobs, the newest first. If ended jobs are wanted, those of which there is a newer
    run have its number.

    Raises:
        InvalidValue: no user can have this name.
        Unreachable: the service does not answer.
    """
    found: list[tuple[JobRow, str]] = []
    with connection.rpc_errors():
        query = f"{connection.list_query(names.KIND_JOB)} AND {wanted.query()}"
        if wanted.below:
            query += (
                " AND WorkflowId STARTS_WITH"
                f" '{names.job_workflow(connection.record.name, wanted.below)}/'"
            )
        if wanted.prefix:
            query += (
                " AND WorkflowId STARTS_WITH"
                f" '{names.job_workflow(connection.record.name, wanted.prefix)}'"
            )
        async for execution in _newest_first(connection, query, wanted, limit):
            if wanted.states and state_of(execution) not in wanted.states:
                continue
            if len(found) == limit:
                break
            row = await row_of(execution)
            texts = (
                row.id,
                row.command,
                row.state,
                CANCELLING * (row.cancelling is not None),
                row.reason,
                row.note,
            )
            if wanted.takes(*texts, *format_tags(row.tags), tags=row.tags):
                found.append((row, execution.run_id))
    if wanted.live_only or not found:
        return [row for row, _ in found]
    runs = await runs_of(connection, {row.id for row, _ in found})
    return [_numbered(row, run_id, runs.get(row.id, ())) for row, run_id in found]


async def count_jobs(connection: Connection, wanted: JobFilter, *, ended: bool) -> int:
    """Returns how many jobs that the filter takes have ended, or have not. The service counts, so
    it ignores states and text.

    Raises:
        InvalidValue: no user can have this name.
        Unreachable: the service does not answer.
    """
    query = (
        f"{connection.list_query(names.KIND_JOB)} AND"
        f" {replace(wanted, live_only=not ended).query()}"
    )
    with connection.rpc_errors():
        return (
            await connection.client.count_workflows(
                query + " AND ExecutionStatus != 'Running'" * ended
            )
        ).count


async def runs_of(connection: Connection, jobs: Iterable[str]) -> dict[str, list[str]]:
    """Returns the ids of all runs of each of these jobs that the service knows, the oldest first.

    Of a workflow that continued as new, it is the id of its last run.

    Raises:
        Unreachable: the service does not answer.
    """
    found = [
        (each.start_time.timestamp(), each.run_id, each.id)
        for each in await executions_of(connection, jobs)
    ]
    runs: dict[str, list[str]] = {}
    for _, run_id, workflow_id in sorted(found):
        runs.setdefault(names.job_of_workflow(workflow_id), []).append(run_id)
    return runs


async def executions_of(connection: Connection, jobs: Iterable[str]) -> list[WorkflowExecution]:
    """Returns all runs of each of these jobs that the service knows, in no particular order, as
    `runs_of` does.

    Raises:
        Unreachable: the service does not answer.
    """
    # Any client can start a workflow of any id, and the service has no way to write a quote in a
    # query.
    ids = [
        f"'{names.job_workflow(connection.record.name, job)}'"
        for job in sorted(jobs)
        if "'" not in job and "\\" not in job
    ]
    if not ids:
        return []
    only = f"WorkflowId IN ({', '.join(ids)}) AND ExecutionStatus != 'ContinuedAsNew'"
    with connection.rpc_errors():
        return [
            each
            async for each in connection.client.list_workflows(
                f"{connection.list_query(names.KIND_JOB)} AND {only}"
            )
        ]


def _newest_first(
    connection: Connection, query: str, wanted: JobFilter, limit: int
) -> AsyncIterator[WorkflowExecution]:
    if wanted.only_running:  # those the service sorts by their start
        return connection.client.list_workflows(query, limit=None if wanted.needs_all else limit)
    from iris.client.jobs.lists import newest_first  # most lists have only jobs that run

    return newest_first(connection.client, query, READ_TOGETHER if wanted.needs_all else limit)


def _numbered(row: JobRow, run_id: str, runs: Sequence[str]) -> JobRow:
    if run_id not in runs[:-1]:
        return row
    return row.model_copy(update={"run": runs.index(run_id) + 1})


#: The length of the first window, and how many times longer the next one is if it has too few.
FIRST_WINDOW, GROWTH = timedelta(hours=1), 8
#: Windows that have too many are halved at most this many times: decades become a second, which is
#: not halved.
MOST_HALVINGS = 30
#: How many times more than wanted are read together.
MOST_TIMES = 4
#: No workflow of Iris started before.
_FIRST = datetime(2025, 1, 1, tzinfo=UTC)


async def newest_first(client: Client, query: str, least: int) -> AsyncIterator[WorkflowExecution]:
    """Yields the workflows, the latest started first.

    Args:
        query: the conditions of a visibility query.
        least: how many are wanted at least, if there are so many; about so many are read together.
    """
    until: datetime | None = None
    left = (await client.count_workflows(query)).count
    while left > 0:
        start = (
            await _start(client, query, until, least, left) if left > MOST_TIMES * least else None
        )
        found = [each async for each in client.list_workflows(_within(query, start, until))]
        found.sort(key=lambda each: each.start_time, reverse=True)
        for each in found:
            yield each
        if start is None:
            return
        until, left = start, left - len(found)


async def _start(
    client: Client, query: str, until: datetime | None, least: int, left: int
) -> datetime | None:
    """Returns the start of a window that has enough workflows and not too many, if there is one;
    None: it has the whole past.

    Args:
        until: the end of the window; None: it is not over.
        left: how many workflows started before its end.
    """
    latest = until or datetime.now(UTC).replace(microsecond=0)
    length, few = FIRST_WINDOW, latest
    while True:
        start = latest - length
        if start < _FIRST:
            return None
        count = (await client.count_workflows(_within(query, start, until))).count
        if count >= least or count >= left:
            break
        few, length = start, GROWTH * length
    for _ in range(MOST_HALVINGS):
        middle = (start + (few - start) / 2).replace(microsecond=0)
        if count <= MOST_TIMES * least or middle <= start:
            break
        between = (await client.count_workflows(_within(query, middle, until))).count
        if between >= least:
            start, count = middle, between
        else:
            few = middle
    return start


def _within(query: str, start: datetime | None, until: datetime | None) -> str:
    since = f" AND StartTime >= '{start.isoformat()}'" if start is not None else ""
    return f"{query}{since}" + (
        f" AND StartTime < '{until.isoformat()}'" if until is not None else ""
    )
