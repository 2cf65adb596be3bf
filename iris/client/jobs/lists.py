"""Lists jobs as the Temporal service knows them, the newest first, and the runs of each job."""

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

#: The approximate number of jobs that are read with one request if the client has to filter them.
READ_TOGETHER = 500
#: The length of the first time window in which `newest_first` reads workflows.
FIRST_WINDOW = timedelta(hours=1)
#: The factor by which the time window is lengthened if it contains too few workflows.
GROWTH = 8
#: The maximum number of times that a time window with too many workflows is halved. It is enough to
#: reduce decades to one second, the shortest window.
MOST_HALVINGS = 30
#: The maximum number of workflows in a time window, as a multiple of the wanted number.
MOST_TIMES = 4
#: A time at which no workflow of Iris existed yet.
_FIRST = datetime(2025, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class JobFilter:
    """The conditions that select the jobs of a list. A condition that is not given or is empty
    selects all jobs.

    Args:
        live_only: takes only jobs that have not ended.
        states: takes only jobs in these states.
        user: takes only jobs of this user.
        since: takes only jobs submitted at this time or later.
        text: takes only jobs with this text in their id, command, state, reason, tags or note.
            Upper and lower case are the same.
        below: takes only jobs below this job: its children, their children, and so on.
        prefix: takes only jobs whose ids begin with this text, which has no quote and no backslash.
        tags: takes only jobs with all these tags, which are pairs of a key and a value. An empty
            value stands for any value.
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
        """Returns whether the client has to check conditions, and reads more jobs than it shows."""
        return bool(self.states or self.text or self.tags)

    @property
    def only_running(self) -> bool:
        """Returns whether only jobs that have not ended are wanted."""
        return self.live_only or (
            bool(self.states) and not any(state.ended for state in self.states)
        )

    def takes(self, *texts: str, tags: Mapping[str, str] = MappingProxyType({})) -> bool:
        """Returns whether one of a job's texts contains the text, and the job has all the tags.

        The service checks the tags, too, but Temporal's dev server ignores case.
        """
        return has_tags(tags, self.tags) and self.text.casefold() in " ".join(texts).casefold()

    def query(self) -> str:
        """Returns the conditions that the service checks, for the end of a visibility query. The
        service does not check states and text.

        Raises:
            InvalidValue: a user or a tag cannot have this name.
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
    """Returns the jobs, the newest first. An ended run has its number if a newer run has the same
    name.

    Raises:
        InvalidValue: a user or a tag cannot have this name.
        Unreachable: the service does not answer.
    """
    found: list[tuple[JobRow, str]] = []
    with connection.rpc_errors():
        query = f"{connection.list_query(names.KIND_JOB)} AND {wanted.query()}"
        for prefix in (f"{wanted.below}/" if wanted.below else "", wanted.prefix):
            if prefix:
                workflow = names.job_workflow(connection.record.name, prefix)
                query += f" AND WorkflowId STARTS_WITH '{workflow}'"
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
    """Returns the number of jobs that the filter takes. The service counts them, and ignores states
    and text.

    Args:
        ended: counts the jobs that have ended, instead of the jobs that have not.

    Raises:
        InvalidValue: a user or a tag cannot have this name.
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
    """Returns the ids of the runs of each of these jobs, the oldest first. The service forgets old
    runs.

    A workflow that continued as new counts as one run, with the id of its last one.
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
    """Returns the runs of these jobs that the service knows, in no particular order."""
    # Any client can start a workflow with a quote in its id, and a query cannot contain a quote.
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
    if wanted.only_running:  # the service itself sorts running workflows by their start
        return connection.client.list_workflows(query, limit=None if wanted.needs_all else limit)
    return newest_first(connection.client, query, READ_TOGETHER if wanted.needs_all else limit)


def _numbered(row: JobRow, run_id: str, runs: Sequence[str]) -> JobRow:
    if run_id not in runs[:-1]:
        return row
    return row.model_copy(update={"run": runs.index(run_id) + 1})


async def newest_first(client: Client, query: str, least: int) -> AsyncIterator[WorkflowExecution]:
    """Yields the workflows, the latest started first. Reads them in windows of time, because the
    service does not sort ended workflows.

    Args:
        query: the conditions of a visibility query.
        least: the number of workflows that the caller wants at least. About this many are read
            together.
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
    """Returns the start of a window that has enough workflows and not too many. Returns None for a
    window without a start, which has all remaining workflows.

    Args:
        until: the end of the window. None is now.
        left: the number of workflows that started before the end of the window.
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
