"""Lists jobs as the Temporal service knows them, the newest first, and the runs of each job."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError, RPCStatusCode

from iris.client.connect.rpc import Connection
from iris.client.jobs.rows import JobRow, row_of, state_of
from iris.model import names
from iris.model.errors import InvalidValue
from iris.model.job.cancelling import CANCELLING
from iris.model.job.tags import POOL_MARK, check_tag, format_tags, has_tags, written
from iris.model.states import JobState

#: The approximate number of jobs that are read with one request if the client has to filter them.
READ_TOGETHER = 500
#: The maximum number of workflows in one page of Temporal's answer.
LARGEST_PAGE = 1_000
#: The length of the first time window in which `newest_first` reads workflows. It is short, because
#: Temporal first counts the workflows of the window, which takes longer the more there are.
FIRST_WINDOW = timedelta(minutes=1)
#: The factor by which the time window is lengthened if it contains too few workflows.
GROWTH = 8
#: The maximum number of times that a time window with too many workflows is shortened. It is enough
#: to reduce decades to one millisecond, the shortest window.
MOST_SHORTENED = 80
#: Each step of the search for the start of a time window tries a time between a start that is too
#: late (too few workflows) and one that is early enough. The time is at least the first and at most
#: the second fraction of the way from the late start to the early one.
_LEAST, _MOST = 0.1, 0.9
#: The maximum number of queries for which the first time window is remembered for the next list.
MOST_KNOWN = 100
#: A time window is shortened if it contains more workflows than this factor times the number that
#: the caller needs.
MOST_TIMES = 2
#: The time before which no time window begins: Iris did not exist yet, so there are no earlier
#: workflows.
_FIRST = datetime(2025, 1, 1, tzinfo=UTC)
#: The maximum number of descendants of a job that are listed.
MAX_CHILDREN = 1000


@dataclass(frozen=True)
class JobFilter:
    """The conditions that select the jobs of a list. A condition that is not given or is empty
    selects all jobs.

    Args:
        live_only: takes only jobs that have not ended.
        states: takes only jobs in these states.
        user: takes only jobs of this user.
        since: takes only jobs submitted at this time or later.
        until: takes only jobs submitted at this time or earlier.
        text: takes only jobs with this text in their id, command, state, reason, tags or note.
            Upper and lower case are the same.
        below: takes only jobs below this job: its children, their children, and so on.
        prefix: takes only jobs whose ids begin with this text, which has no quote and no backslash.
        tags: takes only jobs with all these tags, which are pairs of a key and a value. An empty
            value stands for any value.
        top_level: takes only jobs without a parent.
        pools: takes only jobs whose tasks are workers of a pool.
    """

    live_only: bool = False
    states: Collection[JobState] = ()
    user: str = ""
    since: datetime | None = None
    until: datetime | None = None
    text: str = ""
    below: str = ""
    prefix: str = ""
    tags: Collection[tuple[str, str]] = ()
    top_level: bool = False
    pools: bool = False

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
        service does not check the text.

        Raises:
            InvalidValue: a user or a tag cannot have this name.
        """
        conditions = ["ExecutionStatus != 'ContinuedAsNew'"]
        if self.only_running:
            conditions.append("ExecutionStatus = 'Running'")
        if self.states:
            conditions.append(f"({' OR '.join(sorted(map(_is_in, self.states)))})")
        if self.top_level:
            conditions.append(f"{names.SA_PARENT} IS NULL")
        if self.pools:
            conditions.append(f"{names.SA_TAGS} = '{POOL_MARK}'")
        if self.user:
            conditions.append(f"{names.SA_USER} = '{names.check_name('user', self.user)}'")
        for key, value in self.tags:
            check_tag(key, value)
            conditions.append(f"{names.SA_TAGS} = '{written(key, value)}'")
        if self.since is not None:
            conditions.append(f"StartTime >= '{self.since.astimezone(UTC).isoformat()}'")
        if self.until is not None:
            conditions.append(f"StartTime < '{_after(self.until).isoformat()}'")
        return " AND ".join(conditions)


def _after(time: datetime) -> datetime:
    """Returns the next microsecond. Times of the service can be finer than Python's."""
    return time.astimezone(UTC) + timedelta(microseconds=1)


def _is_in(state: JobState) -> str:
    """Returns the condition that a job is in this state, as `state_of` decides it."""
    shown = f"{names.SA_STATE} = '{state}'"
    match state:
        case JobState.SUCCEEDED:
            return "ExecutionStatus = 'Completed'"
        case JobState.KILLED:
            return f"ExecutionStatus IN ('Canceled', 'Terminated') OR {shown}"
        case JobState.PENDING:
            return f"(ExecutionStatus = 'Running' AND ({shown} OR {names.SA_STATE} IS NULL))"
        case JobState.FAILED:
            others = ", ".join(
                f"'{each}'" for each in JobState if each.ended and each is not JobState.FAILED
            )
            unknown = f"{names.SA_STATE} IS NULL OR {names.SA_STATE} NOT IN ({others})"
            return f"ExecutionStatus = 'TimedOut' OR (ExecutionStatus = 'Failed' AND ({unknown}))"
        case _ if state.ended:
            return f"(ExecutionStatus = 'Failed' AND {shown})"
    return f"(ExecutionStatus = 'Running' AND {shown})"


class JobPage(NamedTuple):
    """A part of the list of jobs."""

    rows: list[JobRow]
    #: The place in the list where the next part begins. Empty if this part is the last one.
    older: str
    #: Whether the search for the filter's text stopped before the page was full, because it had
    #: read the maximum number of jobs. The next part continues the search at `older`.
    stopped: bool


class _Place(NamedTuple):
    """A place in the list of jobs, by the time at which the last job before it was submitted."""

    time: datetime
    #: The number of jobs before this place in the list that were submitted exactly at `time`.
    skip: int

    def __str__(self) -> str:
        return f"{self.time.astimezone(UTC).strftime('%Y-%m-%dT%H:%M:%S.%fZ')}~{self.skip}"


def _parse_place(text: str) -> _Place | None:
    if not text:
        return None
    time, _, skip = text.partition("~")
    try:
        return _Place(datetime.fromisoformat(time).astimezone(UTC), int(skip))
    except (ValueError, OverflowError):
        raise InvalidValue(
            "from",
            text,
            "is not a position that an earlier page of the list returned",
            "open the list at its start",
        ) from None


async def list_jobs(connection: Connection, wanted: JobFilter, limit: int) -> list[JobRow]:
    """Returns the jobs, the newest first. An ended run has its number if a newer run has the same
    name.

    Raises:
        InvalidValue: a user or a tag cannot have this name.
        Unreachable: the service does not answer.
    """
    found: list[JobRow] = []
    with connection.rpc_errors():
        async for execution in _newest_first(connection, wanted, limit):
            if (row := await _row_taken(wanted, execution)) is None:
                continue
            if len(found) == limit:
                break
            found.append(row)
    return found if wanted.live_only else await _numbered(connection, found)


async def page_of_jobs(
    connection: Connection, wanted: JobFilter, limit: int, start: str, most: int
) -> JobPage:
    """Returns a part of the list, the newest jobs first. It costs the same at every place.

    Args:
        start: the `older` of the part before this one. Empty for the first part.
        most: the maximum number of jobs that are searched for the text.

    Raises:
        InvalidValue: a user or a tag cannot have this name, or `start` is no place.
        Unreachable: the service does not answer.
    """
    place, read, older = _parse_place(start), 0, ""
    if place is not None:
        wanted = replace(wanted, until=place.time)
    skip = place.skip if place is not None else 0
    found: list[JobRow] = []
    with connection.rpc_errors():
        async for execution in _newest_first(connection, wanted, limit):
            time = execution.start_time
            if place is not None and time == place.time and skip:
                skip -= 1
                continue
            if len(found) == limit or read == most:
                older = str(place)
                break
            read += 1
            same = place is not None and time == place.time
            place = _Place(time, place.skip + 1 if place is not None and same else 1)
            if (row := await _row_taken(wanted, execution)) is not None:
                found.append(row)
    rows = found if wanted.live_only else await _numbered(connection, found)
    return JobPage(rows, older, bool(older) and len(found) < limit)


async def _row_taken(wanted: JobFilter, execution: WorkflowExecution) -> JobRow | None:
    """Returns the job's row; None if the filter does not take the job."""
    if wanted.states and state_of(execution) not in wanted.states:
        return None
    row = await row_of(execution)
    texts = (
        row.id,
        row.command,
        row.state,
        CANCELLING * (row.cancelling is not None),
        row.reason,
        row.note,
    )
    return row if wanted.takes(*texts, *format_tags(row.tags), tags=row.tags) else None


async def count_by_state(connection: Connection, wanted: JobFilter) -> dict[JobState, int]:
    """Returns the number of the jobs in each state that the service knows. The service counts them,
    and ignores the filter's states and text.

    Raises:
        InvalidValue: a user or a tag cannot have this name.
        Unreachable: the service does not answer.
    """
    wanted = replace(wanted, live_only=False, states=())
    with connection.rpc_errors():
        query = _query(connection, wanted)
        ends = await connection.client.count_workflows(f"{query} GROUP BY ExecutionStatus")
        by_end = {str(group.group_values[0]): group.count for group in ends.groups}

        async def count(state: JobState) -> int:
            narrow = _query(connection, replace(wanted, states=(state,)))
            return (await connection.client.count_workflows(narrow)).count

        counts = {
            JobState.SUCCEEDED: by_end.get("Completed", 0),
            JobState.KILLED: by_end.get("Canceled", 0) + by_end.get("Terminated", 0),
        }
        for end, rest in (("Running", JobState.PENDING), ("Failed", JobState.FAILED)):
            others = [
                state
                for state in JobState
                if state is not rest and state not in counts and state.ended is rest.ended
            ]
            found = await asyncio.gather(*map(count, others)) if by_end.get(end) else ()
            counts.update(zip(others, found, strict=False))
            counts[rest] = max(0, by_end.get(end, 0) - sum(found))
        counts[JobState.FAILED] += by_end.get("TimedOut", 0)
    return {state: counts.get(state, 0) for state in JobState}


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
        f" {replace(wanted, live_only=not ended, states=()).query()}"
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


def _query(connection: Connection, wanted: JobFilter) -> str:
    query = f"{connection.list_query(names.KIND_JOB)} AND {wanted.query()}"
    for prefix in (f"{wanted.below}/" if wanted.below else "", wanted.prefix):
        if prefix:
            workflow = names.job_workflow(connection.record.name, prefix)
            query += f" AND WorkflowId STARTS_WITH '{workflow}'"
    return query


def _newest_first(
    connection: Connection, wanted: JobFilter, limit: int
) -> AsyncIterator[WorkflowExecution]:
    """Yields the jobs that the service finds, the latest started first. The caller takes `limit` of
    them, or more if it checks the text.
    """
    query, least = _query(connection, wanted), READ_TOGETHER if wanted.text else limit + 1
    if wanted.only_running:  # the service itself sorts running workflows by their start
        return connection.client.list_workflows(query, page_size=min(least, LARGEST_PAGE))
    until = None if wanted.until is None else _after(wanted.until)
    return newest_first(connection.client, query, least, until, connection.windows)


async def _numbered(connection: Connection, rows: list[JobRow]) -> list[JobRow]:
    """Returns the rows. An ended run has its number if a newer run has the same name. A run that
    has not ended is the newest of its name.
    """
    runs = await runs_of(connection, {row.id for row in rows if row.state.ended})
    return [
        row.model_copy(update={"run": runs[row.id].index(row.run_id) + 1})
        if row.run_id in runs.get(row.id, ())[:-1]
        else row
        for row in rows
    ]


async def newest_first(
    client: Client,
    query: str,
    least: int,
    until: datetime | None = None,
    windows: dict[str, datetime] | None = None,
) -> AsyncIterator[WorkflowExecution]:
    """Yields the workflows, the latest started first. Reads them in windows of time, because the
    service does not sort ended workflows.

    Args:
        query: the conditions of a visibility query.
        least: the number of workflows that the caller wants at least. About this many are read
            together.
        until: the end of the first window. None is now.
        windows: the starts of the first windows until now, by query. The next list of the same
            query begins with the same window, if it still has the right size.
    """
    known = windows if windows is not None and until is None else {}
    if (start := known.get(query)) is not None:
        count = (await client.count_workflows(_within(query, start, None))).count
        if least <= count <= MOST_TIMES * least:
            for each in await _listed(client, _within(query, start, None)):
                yield each
            until = start
    left = (await client.count_workflows(_within(query, None, until))).count
    while left > 0:
        start = (
            await _start(client, query, until, least, left) if left > MOST_TIMES * least else None
        )
        if until is None and start is not None:
            while len(known) >= MOST_KNOWN:
                del known[next(iter(known))]
            known[query] = start
        found = await _listed(client, _within(query, start, until))
        for each in found:
            yield each
        if start is None:
            return
        until, left = start, left - len(found)


async def _listed(client: Client, query: str) -> list[WorkflowExecution]:
    """Returns the workflows, the latest started first."""
    found = [each async for each in client.list_workflows(query)]
    return sorted(found, key=lambda each: (each.start_time, each.run_id), reverse=True)


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
    length, few, fewer = FIRST_WINDOW, latest, 0
    while True:
        start = latest - length
        if start < _FIRST:
            return None
        count = (await client.count_workflows(_within(query, start, until))).count
        if count >= least or count >= left:
            break
        few, fewer, length = start, count, GROWTH * length
    for step in range(MOST_SHORTENED):
        # The right part if the workflows started evenly. In a burst of them, halves are better.
        part = 0.5 if step % 2 else (1.5 * least - fewer) / max(1, count - fewer)
        middle = _in_milliseconds(few - (few - start) * min(_MOST, max(_LEAST, part)))
        if count <= MOST_TIMES * least or not start < middle < few:
            break
        between = (await client.count_workflows(_within(query, middle, until))).count
        if between >= least:
            start, count = middle, between
        else:
            few, fewer = middle, between
    return start


def _in_milliseconds(time: datetime) -> datetime:
    return time.replace(microsecond=time.microsecond // 1000 * 1000)


def _within(query: str, start: datetime | None, until: datetime | None) -> str:
    since = f" AND StartTime >= '{start.isoformat()}'" if start is not None else ""
    return f"{query}{since}" + (
        f" AND StartTime < '{until.isoformat()}'" if until is not None else ""
    )


class ChildJobsClient:
    """Lists the jobs below a job."""

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
